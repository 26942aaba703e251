"""Run folders: what is in them, and that nothing in them is lost."""

import errno
import json
import math
import shlex
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError

from fedtct import Classifier, FedtctError
from fedtct.federation import Cost
from fedtct.files import HALF, write_text
from fedtct.history import Checkpoint, Row
from fedtct.runs import jobs
from fedtct.runs.checkpoint import flatten, read_checkpoint, rows_at, unflatten, write_checkpoint
from fedtct.runs.config import RunConfig
from fedtct.runs.environment import _git, environment, git_commit, git_dirty
from fedtct.runs.execute import execute, rehearse
from fedtct.runs.folder import CONFIG, RunFolder
from fedtct.runs.jobs import prepare
from fedtct.runs.places import free_folder, resuming
from fedtct.runs.plan import Plan
from fedtct.runs.settings import read_toml
from fedtct.runs.summary import Summary, final_row, kept_round
from fedtct.runs.watcher import Watcher

SMALL: dict[str, Any] = {"limit": 200, "silos": 3, "split": "iid", "local_epochs": 1, "method": "fedavg", "rounds": 2}

names = st.text(min_size=1) | st.sampled_from(["fc.weight", "100%", "%2E"])
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)


def tree(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@given(st.dictionaries(names, numbers | st.dictionaries(names, numbers, min_size=1, max_size=3), max_size=3))
def test_flattening_can_be_undone(nested: dict[str, Any]) -> None:
    assert unflatten(flatten(nested)) == nested


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path: Path) -> None:
    w = torch.randn(7)
    checkpoint = Checkpoint(
        round=3,
        state={"parameters": w, "buffers": torch.zeros(0), "server_steps": 0.1 + 0.2},
        cost=Cost(5, 7, 1 / 3),
        silos={"0/stage1/own": w, "1/stage1/own": torch.full((2,), math.nan)},
        best={"accuracy": 0.7, "round": 1, "state": {"parameters": w[2:5], "buffers": torch.zeros(0)}},
    )
    path = tmp_path / "stage1.safetensors"
    write_checkpoint(path, checkpoint, rows=4)
    back = read_checkpoint(path, torch.device("cpu"))
    assert (back.round, back.cost, back.finished, rows_at(path)) == (3, checkpoint.cost, False, 4)
    for mine, other in [(checkpoint.state, back.state), (checkpoint.silos, back.silos), (checkpoint.best, back.best)]:
        ours, theirs = flatten(mine), flatten(other)
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(theirs[name], value, rtol=0, atol=0, equal_nan=True)
            else:
                assert theirs[name] == value
    assert [file.name for file in tmp_path.iterdir()] == ["stage1.safetensors"]


def test_a_checkpoint_keeps_numbers_and_names_of_any_kind(tmp_path: Path) -> None:
    path = tmp_path / "stage1.safetensors"
    state = {"least": math.inf, "momenta": {"fc.weight": 1.0, "50 %": -math.inf}}
    write_checkpoint(path, Checkpoint(1, state), rows=1)
    assert read_checkpoint(path, torch.device("cpu")).state == state


def test_a_run_folder_holds_all_there_is(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a", RunConfig.of(**SMALL))
    fit = execute(folder)
    files = tree(tmp_path / "a")
    assert files.keys() == {
        "config.toml",
        "agreement.json",
        "metrics.jsonl",
        "environment.json",
        "checkpoints/stage1.safetensors",
        "model/model.safetensors",
    }
    assert RunConfig.of(**read_toml(tmp_path / "a" / "config.toml")) == folder.config
    assert [row.round for row in folder.history] == [0, 1, 2]
    [session] = json.loads(files["environment.json"])
    assert session.keys() >= {"fedtct", "torch", "python", "platform", "device", "threads", "git_commit", "command"}
    x, y = prepare(folder.config).test
    assert Classifier.load(tmp_path / "a" / "model").score(x, y) == folder.history[-1].test_accuracy
    assert torch.equal(fit.model.scores(x), folder.fit().model.scores(x))


def test_a_finished_run_is_only_read(tmp_path: Path) -> None:
    first = execute(RunFolder.create(tmp_path / "a", RunConfig.of(**SMALL)))
    before = tree(tmp_path / "a")
    again = RunFolder.resume(tmp_path / "a")
    assert again.finished
    assert list(execute(again).history) == list(first.history)
    assert tree(tmp_path / "a") == before


def test_nothing_is_written_before_a_stage_begins(tmp_path: Path) -> None:
    bad = RunConfig.of(**SMALL | {"init_weights": str(tmp_path / "none.safetensors")})
    with pytest.raises(FedtctError, match="no such file"):
        execute(RunFolder.create(tmp_path / "a", bad))
    assert not (tmp_path / "a").exists()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    config = RunConfig.of(**SMALL)
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", config)
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / f"{CONFIG}.0123abcd{HALF}").write_text("dataset")  # as it began
    RunFolder.create(tmp_path / "killed", config)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for path in ("used", "file"):
        with pytest.raises(FedtctError, match="exists: choose another"):
            RunFolder.create(tmp_path / path, config)
    with pytest.raises(FedtctError, match="cannot be made"):
        RunFolder.create(tmp_path / "file" / "below", config)


@given(st.text(min_size=1))
def test_the_command_that_goes_on_is_what_a_shell_takes(folder: str) -> None:
    assert shlex.split(resuming("fedtct run", folder)) == ["fedtct", "run", "--resume", folder]


def test_errors_tell_commands_that_a_shell_takes(tmp_path: Path) -> None:
    folder = tmp_path / "my run"
    run = RunFolder.create(folder, RunConfig.of(**SMALL))
    assert run.go_on == f"fedtct run --resume '{folder}'"
    run.begin("stage1", 2, 0)
    with pytest.raises(FedtctError, match=f"resume it with --resume '{folder}'"):
        free_folder(folder)
    Plan("choose", {}).write(folder)
    with pytest.raises(FedtctError, match=f"resume with `fedtct run --resume '{folder}'`"):
        Plan.read(folder, "compare")


def test_what_is_not_a_run_cannot_be_resumed(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FedtctError, match="is not a run"):
            RunFolder.resume(path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("checkpoints/stage1.safetensors", b"no", "is damaged"),
        ("metrics.jsonl", b"", "is damaged: it has 0 rows"),
        ("metrics.jsonl", b"{}\n" * 9, "is damaged: a line is not a row"),
        ("config.toml", b"method = 'fedavg'\nsilos = 0\n", "silos must be at least 1"),
        ("config.toml", b"", "config.toml is damaged: it names no method"),
    ],
)
def test_a_damaged_run_says_what_is_damaged(file: str, content: bytes, message: str, tmp_path: Path) -> None:
    execute(RunFolder.create(tmp_path / "a", RunConfig.of(**SMALL)))
    (tmp_path / "a" / "model" / "model.safetensors").unlink()
    (tmp_path / "a" / file).write_bytes(content)
    with pytest.raises(FedtctError, match=message):
        RunFolder.resume(tmp_path / "a")
    if file == "config.toml":
        with pytest.raises(FedtctError, match=message):
            RunFolder.read(tmp_path / "a")


@pytest.mark.parametrize("lost", ["stage1", "convexify", "stage2"])
def test_a_lost_checkpoint_costs_time_and_nothing_else(lost: str, tmp_path: Path) -> None:
    small = SMALL | {"method": "tct", "rounds": (1, 2), "p": 50, "steps": 5}
    whole = execute(RunFolder.create(tmp_path / "a", RunConfig.of(**small)))
    (tmp_path / "a" / "model" / "model.safetensors").unlink()
    (tmp_path / "a" / "checkpoints" / f"{lost}.safetensors").unlink()
    again = execute(RunFolder.resume(tmp_path / "a"))

    def told(history: Any) -> list[Any]:
        return [(row.stage, row.round, row.test_accuracy, row.train_loss, row.bytes_up) for row in history]

    assert told(again.history) == told(whole.history) == told(RunFolder.read(tmp_path / "a").history)


def test_an_agreement_of_another_version_is_refused(tmp_path: Path) -> None:
    execute(RunFolder.create(tmp_path / "a", RunConfig.of(**SMALL)))
    shutil.rmtree(tmp_path / "a" / "model")
    (tmp_path / "a" / "agreement.json").write_text("{}")
    with pytest.raises(FedtctError, match="with another version of fedtct: start a new one"):
        execute(RunFolder.resume(tmp_path / "a"))


def test_another_configuration_is_refused_by_name(tmp_path: Path) -> None:
    execute(RunFolder.create(tmp_path / "a", RunConfig.of(**SMALL)))
    same = {"silos": "3", "rounds": "2", "data_dir": "elsewhere"}
    assert RunFolder.resume(tmp_path / "a", same).config.data_dir == "elsewhere"
    with pytest.raises(FedtctError, match=r"other settings: lr was 0\.1, now it is 0\.5; seed was 0, now it is 1"):
        RunFolder.resume(tmp_path / "a", {"lr": "0.5", "silos": "3", "seed": 1})


def test_a_step_size_that_stage_2_refuses_does_not_cost_stage_1(tmp_path: Path) -> None:
    config = RunConfig.of(**SMALL | {"method": "tct", "rounds": (1, 1), "p": 100, "steps": 10, "stage2_lr": 1e9})
    with pytest.raises(FedtctError, match="stage 2 diverges"):
        execute(RunFolder.create(tmp_path / "a", config))
    assert RunFolder.read(tmp_path / "a").failure.startswith("stage 2 diverges with lr=1e+09")
    with pytest.raises(FedtctError, match="other settings: lr was"):
        RunFolder.resume(tmp_path / "a", {"lr": 0.5, "stage2_lr": "auto"})
    goes_on = RunFolder.resume(tmp_path / "a", {"stage2_lr": "auto"})
    assert [row.stage for row in goes_on.history] == ["stage1", "stage1", "convexify", "convexify"]
    execute(goes_on)
    assert not (tmp_path / "a" / "findings" / "diverged.json").exists()
    assert RunFolder.read(tmp_path / "a").config.stage2_lr == "auto"
    with pytest.raises(FedtctError, match="other settings: stage2_lr was"):
        RunFolder.resume(tmp_path / "a", {"stage2_lr": 0.1})


def test_a_limit_is_a_seeded_subset() -> None:
    def samples(**more: Any) -> set[bytes]:
        silos = prepare(RunConfig.of(**SMALL | more)).silos
        return {x.numpy().tobytes() for silo in silos for x in silo.x}

    assert sum(map(len, prepare(RunConfig.of(**SMALL)).silos)) == 200
    assert samples() == samples(split="dirichlet:1")
    assert samples() != samples(seed=1)
    with pytest.raises(FedtctError, match="only 1437 training samples"):
        samples(limit=10**6)


@pytest.mark.parametrize(
    "options", [{"method": "tct", "rounds": (1, 1), "stage2": "ridge", "ridge": "holdout"}, {"patience": 1}]
)
def test_silos_too_small_to_hold_out_are_refused_where_that_decides(options) -> None:
    tiny = SMALL | {"limit": 12, "silos": 6, "holdout": 0.1} | options
    who = r"silo 0 \(of 2\), .* silo 5 \(of 2\)\. Give every silo holdout=0\.5, for example$"
    with pytest.warns(UserWarning, match="nothing is held out"), pytest.raises(FedtctError, match=who):
        rehearse(RunConfig.of(**tiny))
    with pytest.warns(UserWarning, match=r"there are too few samples for holdout=0\.1: nothing is held out"):
        rehearse(RunConfig.of(**tiny | {"ridge": 1.0, "patience": 0}))


@pytest.mark.parametrize(("silos", "told"), [(4, "6 of 10 classes are in the test set but in no silo"), (10, "")])
def test_classes_that_no_silo_is_dealt_are_told(silos, told, recwarn):
    prepare(RunConfig.of(split="classes:1", silos=silos, method="fedavg", limit=300))
    assert [told] * bool(told) == [text[: len(told)] for w in recwarn if "in no silo" in (text := str(w.message))]


def test_features_that_will_not_fit_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    tct = RunConfig.of(**SMALL | {"method": "tct", "rounds": (1, 1), "p": 1000})
    need = 2 * 1000 * (200 + 360)
    monkeypatch.setattr(jobs, "free_bytes", lambda device: need)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare(tct)
    monkeypatch.setattr(jobs, "free_bytes", lambda device: need - 1)
    with pytest.warns(UserWarning, match="stage 2 needs about 0 GB"):
        prepare(tct)


def test_a_watcher_sees_every_round_and_reply(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Spy(Watcher):
        def begin(self, stage: str, rounds: int, done: int) -> None:
            seen.append((stage, rounds, done))

        def reply(self, question: str, done: int, total: int) -> None:
            seen.append((question, done))

        def record(self, row: Row) -> None:
            seen.append(row.round)

    execute(RunFolder.create(tmp_path / "a", RunConfig.of(**SMALL), Spy()))
    rounds = [[("train", k) for k in (1, 2, 3)] + [number] for number in (0, 1)]
    after = [("evaluate", k) for k in (1, 2, 3)]
    begun = seen.index(("stage1", 2, 0))
    assert seen[begun + 1 :] == [*rounds[0], *rounds[1], *after, 2]


def test_with_patience_the_summary_is_of_the_model_that_was_kept(tmp_path: Path) -> None:
    patient = SMALL | {"rounds": 8, "holdout": 0.2, "patience": 2, "method": "fedadam", "server_lr": 1.0}
    folder = RunFolder.create(tmp_path / "a", RunConfig.of(**patient))
    fit = execute(folder)
    assert len(folder.history) < 9, "it was meant to run out of patience"
    x, y = prepare(folder.config).test
    assert Summary.of(folder).test_accuracy == pytest.approx(fit.model.score(x, y))
    kept, last = final_row(folder.history, folder.config), folder.history[-1]
    assert kept is not last
    told = (
        f"patience: training ended after round {last.round} of 8, and the best model, of round {kept.round}, was kept"
    )
    assert kept_round(folder.history, folder.config).startswith(told)
    assert kept_round(folder.history[: kept.round + 1], folder.config) == ""


def test_what_diverged_was_not_kept_whatever_it_got_right() -> None:
    """Scores that are no numbers take all for the first class, which many samples may have."""
    rows = [
        Row("stage1", 0, train_accuracy=0.3, train_loss=0.7, holdout_accuracy=0.3),
        Row("stage1", 1, train_accuracy=0.7, train_loss=None, holdout_accuracy=0.7),
    ]
    assert rows[1].diverged
    assert final_row(rows, RunConfig.of(method="fedavg", holdout=0.2, patience=2)) is rows[0]


@pytest.mark.parametrize(
    ("program", "own"),
    [
        ("/usr/bin/fedtct", True),
        ("/usr/lib/python3/site-packages/fedtct/__main__.py", True),
        ("/usr/bin/flwr-serverapp", False),
        ("/usr/lib/python3/site-packages/pytest/__main__.py", False),
        ("", False),
    ],
)
def test_commands_of_fedtct_alone_are_kept(program: str, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [program, "--token", "secret"])
    assert environment("cpu")["command"] == (f"{program} --token secret" if own else None)


def test_a_file_git_does_not_know_has_no_commit(tmp_path: Path) -> None:
    (tmp_path / "file.py").touch()
    assert git_commit(tmp_path / "file.py") is None
    assert git_dirty(tmp_path / "file.py") is None


def test_edits_since_the_commit_count_in_the_package_alone(tmp_path: Path) -> None:
    name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for folder in ("package", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file.py").touch()
    for words in (["init", "-q"], ["add", "."], [*name, "commit", "-qm", "all"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)

    def dirty() -> bool | None:
        _git.cache_clear()
        return git_dirty(tmp_path / "package" / "file.py")

    assert dirty() is False
    (tmp_path / "other" / "file.py").write_text("1")
    assert dirty() is False
    (tmp_path / "package" / "new.py").touch()
    assert dirty() is True
    (tmp_path / "package" / "new.py").unlink()
    (tmp_path / "package" / "file.py").write_text("1")
    assert dirty() is True


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "stage1.safetensors"
    write_checkpoint(path, Checkpoint(1, {"w": torch.ones(3)}), rows=1)

    def full(*_, **__):
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("fedtct.runs.checkpoint.save_file", full)
    with pytest.raises(FedtctError, match="No space left on device") as raised:
        write_checkpoint(path, Checkpoint(2, {"w": torch.zeros(3)}), rows=2)
    assert "free disk space and resume" in str(raised.value)
    assert read_checkpoint(path, torch.device("cpu")).round == 1
    assert list(tmp_path.iterdir()) == [path]


def test_of_a_file_that_a_full_disk_does_not_take_nothing_is_left_and_its_name_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "a", "before")

    def full(self: Path, *words: Any, **more: Any) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path / 'a'}'"):
        write_text(tmp_path / "a", "after")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a", "before")]
