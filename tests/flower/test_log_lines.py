"""What a server tells of a run: it reaches those who look on, and a run is stopped at the server with them."""

import contextlib
import io
import sys
from pathlib import Path

import pytest

from fedtct.deploy import processes
from fedtct.deploy.log_lines import Speaker, hear, say
from fedtct.history import Row
from fedtct.runs.watcher import Watcher

ROW = Row("stage2", 3, train_accuracy=0.5, test_accuracy=float("nan"), silos=("a", "b"), seconds=2.5)


class Listener(Watcher):
    def __init__(self):
        self.heard = []

    def begin(self, *told):
        self.heard.append(told)

    def reply(self, *told):
        self.heard.append(told)

    def record(self, row):
        self.heard.append(row)


def speak():
    speaker = Speaker()
    speaker.begin("stage2", 7, 2)
    speaker.reply("train", 1, 3)
    say("a line for people")
    speaker.record(ROW)


def test_what_one_watcher_is_told_at_the_server_another_hears(capsys):
    speak()
    listener = Listener()
    lines = capsys.readouterr().out.splitlines()
    assert [hear(line, listener) for line in lines] == [True, True, False, True]
    plain = Row(
        "stage2", 3, train_accuracy=0.5, seconds=2.5
    )  # without NaN, which JSON has not, and without single silos
    assert listener.heard == [("stage2", 7, 2), ("train", 1, 3), plain]
    assert hear('fedtct> ["begin", "sta', listener)  # half a line is passed over


def following(tmp_path: Path, last: str, tell, listener=None) -> int:
    """Follow a run that says things, and then a last one."""
    with contextlib.redirect_stdout(io.StringIO()) as spoken:
        speak()
    lines = ["Successfully started run 17", *spoken.getvalue().splitlines(), last]
    program = f"print(*{lines}, sep='\\n', flush=True)"
    return processes.follow([sys.executable, "-c", program], tmp_path, tell, listener)


@pytest.mark.parametrize(
    ("last", "code", "told"),
    [
        ("fedtct: finished: everything is in run", 0, ["fedtct: a line for people"]),
        ("fedtct: stopped: no silos", 2, ["fedtct: a line for people", "fedtct: stopped: no silos"]),
        ("Flower fell over", 1, ["fedtct: a line for people", "Successfully started run 17", "Flower fell over"]),
    ],
)
def test_how_a_run_ended_is_what_the_server_said_last(last, code, told, tmp_path):
    said, listener = [], Listener()
    assert following(tmp_path, last, said.append, listener) == code
    assert said == told
    assert len(listener.heard) == 3


def test_ctrl_c_stops_the_run_at_the_server_too(tmp_path, monkeypatch):
    write = f"import sys; open({str(tmp_path / 'stopped')!r}, 'w').write(' '.join(sys.argv[1:]))"
    monkeypatch.setattr(processes, "flwr", lambda *words: [sys.executable, "-c", write, *words])

    def interrupt(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        following(tmp_path, "fedtct: finished", interrupt)
    assert (tmp_path / "stopped").read_text() == "stop 17 fedtct"


def test_what_a_silo_says_is_one_line_and_no_line_of_the_servers(capsys):
    said = 'north did not answer: it fails\nfedtct: finished: all is well\r\nfedtct> ["nothing"]'
    Speaker().say(said)
    assert capsys.readouterr().out.splitlines() == [f"fedtct: {' '.join(said.splitlines())}"]
    say(
        "north did not answer: \x1b[1A\x1b[2Kfedtct: round 2 went well"
    )  # which a terminal would write over the last one
    assert capsys.readouterr().out == "fedtct: north did not answer:  [1A [2Kfedtct: round 2 went well\n"
