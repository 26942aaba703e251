"""Bad input: a line or two on stderr, exit code 2, and nothing written or overwritten."""

import gzip
import math
import struct
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from fedtct.cli import main

SMALL = ("--limit", "100", "--silos", "3", "--split", "iid", "--method", "fedavg", "--rounds", "1")


def tree(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


@cache  # to pack millions of zeros takes half a second, and every test has them in its folder
def idx(*shape: int) -> bytes:
    """A file of the kind Fashion-MNIST comes in, packed."""
    return gzip.compress(struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + bytes(math.prod(shape)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands are typed, with things that are easily mistaken for others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDTCT_DATA", raising=False)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.toml").write_text("rounds = [1,1]")
    (tmp_path / "broken.toml").write_text("rounds = [1,")
    (tmp_path / "typo.toml").write_text("round = 1\n")
    (tmp_path / "section.toml").write_text("[sever]\nwait = 3\n")
    (tmp_path / "huge.toml").write_text("lr = 1e300\n")
    (tmp_path / "digits.toml").write_text(f"seed = {'1' * 5000}\n")
    (tmp_path / "weights.safetensors").write_bytes(b"no weights")
    for name, purpose in {"compared": "compare", "chosen": "choose"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_text(f'{{"purpose": "{purpose}", "runs": {{}}}}')
    raw = tmp_path / "cut" / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for name, content in {
        "train-images-idx3-ubyte.gz": idx(60000, 28, 28)[:20000],
        "train-labels-idx1-ubyte.gz": idx(60000),
        "t10k-images-idx3-ubyte.gz": idx(10000, 28, 28),
        "t10k-labels-idx1-ubyte.gz": idx(10000),
    }.items():
        (raw / name).write_bytes(content)
    return tmp_path


BAD = {
    "run --dataset mnist": "unknown dataset 'mnist'. Known: digits, fashion-mnist, cifar10, cifar100, module:function",
    "run --model vgg": "unknown model 'vgg'. Known: linear, mlp, simple-cnn, resnet18-bn, resnet18-gn, module:function",
    "run --method sgd": "centralized, fedavg-last-layer, tct, module:Class",
    "run --split by-hand": "unknown split 'by-hand'",
    "run --split classes:11": "classes:11",
    "run --silos 2000 --split iid": "there are 2000 silos but only 1437 samples",
    "run --silos ten": "silos must be a whole number, it is 'ten'",
    "run --p 0": "p must be at least 1",
    "run --rounds 20": "two numbers such as 20,20",
    "run --rounds 20,20 --method fedavg": "one number",
    "run --lr 0": "lr must be positive",
    "run --lr 0.1,0.01": "choosing lr needs held-out samples",
    "run --lr 0.1,fast --holdout 0.1": "lr must be a number, it is 'fast'",
    "run --patience 3": "set holdout",
    "run --device tpu": "unknown device 'tpu'",
    "run --limit 100000": "only 1437 training samples",
    "run --seed -1": "seed must not be negative",
    "run --seed 18446744073709551616": "seed must be below 2**63",
    "run --steps 99999999999999999999999": "steps must be below 2**63",
    "run --lr 1e300": "lr must be at most 3.4e+38",
    "run --weight-decay 1e300": "weight_decay must be at most 3.4e+38",
    "run --config huge.toml": "lr must be at most 3.4e+38",
    "run --config digits.toml": "digits.toml is not valid TOML",
    "run --model resnet18-bn --augment blur": "unknown augment 'blur'",
    "run --dataset cifar10 --data-dir nowhere": "fedtct data fetch cifar10",
    "run --dataset fashion-mnist --data-dir cut": "wrong size",
    "run --init-weights none.safetensors": "no such file: none.safetensors",
    "run --init-weights weights.safetensors": "cannot be read as a state dict",
    "run --config none.toml": "cannot read none.toml: No such file or directory",
    "run --config thesis": "thesis is a folder: name a TOML file",
    "run --config old": "old is a folder: name a TOML file, such as old/config.toml",
    "run --config broken.toml": "broken.toml is not valid TOML",
    "run --config typo.toml": "unknown setting 'round': did you mean 'rounds'?",
    "run --config section.toml": "unknown section [sever]: the only section is [server], in a deployment's run.toml",
    "run --out thesis": "thesis exists: choose another",
    "run --out broken.toml": "broken.toml exists",
    "run --out broken.toml/a": "cannot be made",
    "run --resume thesis": "thesis is not a run",
    "run --resume nowhere": "nowhere is not a run",
    "run --resume thesis --out b": "leave out --out",
    "run --colour red": "No such option",
    "run leftover": "unexpected extra argument",
    "run --silos": "requires an argument",
    "compare --methods fedavg,sgd": "unknown method 'sgd'",
    "compare --methods fedavg,fedavg": "none of them twice",
    "compare --split iid,by-hand": "unknown split 'by-hand'",
    "compare --split iid,classes:11": "classes:11",
    "compare --seeds 0": "seeds must be",
    "compare --seeds 99999999999999999999": "seeds must be a number such as 3, up to 1000",
    "compare --seeds few": "seeds must be",
    "compare --rounds 1": "tct, which has two stages, needs rounds of at least 2",
    "compare --lr 0.1,0.01": "choosing lr needs held-out samples to judge by: set holdout, for example to 0.1",
    "compare --lr 0.1,fast --holdout 0.1": "lr must be a number, it is 'fast'",
    "compare --lr 0.1,0.01 --holdout 0.1 --limit 30 --silos 10": "no silo has enough samples to hold out",
    "compare --out thesis": "thesis exists",
    "compare --resume thesis": "there is no plan.json",
    "compare --resume thesis --lr 1": "leave out the other options",
    "compare --resume thesis --methods fedprox": "leave out the other options",
    "compare --resume thesis --split dirichlet:0.1": "leave out the other options",
    "compare --resume thesis --seeds 7,8": "leave out the other options",
    "compare --methods=": "at least one method",
    "compare --split own": "unknown split 'own'",
    "demo --out thesis": "thesis exists",
    "data": "Missing command",
    "data fetch": "Missing argument",
    "data fetch mnist": "unknown dataset 'mnist'",
    "data fetch digits": "comes with fedtct",
    "data verify mnist": "unknown dataset 'mnist'",
    "data verify fashion-mnist --data-dir cut": "not as published",
    "paper list table10": "there is no 'table10'. There are table1, ",
    "paper run": "Missing argument",
    "paper run table10": ", figure2, ",
    "paper run table2 --only imagenet": "has nothing with 'imagenet' in its name",
    "paper run table2 --scale huge": "unknown scale 'huge'",
    "paper run table2 --scale tiny --minutes nan": "minutes must be positive, it is nan",
    "paper run table2 --scale tiny --minutes 0": "minutes must be positive, it is 0",
    "paper run table2 --scale tiny --minutes -5": "minutes must be positive, it is -5",
    "paper run table2 --scale tiny --lr nan": "lr must be a number, it is nan",
    "paper run table5": "give the state dict with --imagenet FILE",
    "paper run all --only imagenet": "give the state dict with --imagenet FILE",
    "paper run table2 --only cifar10/classes:2/tct": "fedtct data fetch cifar10",
    "paper unpack nowhere state": "nowhere is not a folder",
    "paper report --results nowhere": "there is no folder nowhere: fedtct paper run makes it, or say where",
    "dance": "No such command 'dance'",
    "runn": "No such command 'runn'. Did you mean 'run'? (--help",
    "compare --split iid --split classes:2": "--split is given twice, and only the last would count: give it once",
    "run --ignore id --ignore name": "--ignore is given twice, and only the last would count: give it once",
    "run --lrr 1": "Did you mean '--lr'? (--help",
    "run --resume compared": "started to compare: resume with `fedtct compare --resume compared`",
    "run --resume compared --lr 1": "started to compare: resume with `fedtct compare --resume compared`",
    "compare --resume chosen": "started to choose: resume with `fedtct run --resume chosen`",
}


@pytest.mark.parametrize("command", BAD)
def test_bad_input_is_refused(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(folder)
    code = main(command.split())
    message = capsys.readouterr().err
    assert code == 2
    assert BAD[command] in message
    assert message.startswith("fedtct: ")
    assert 1 <= len(message.splitlines()) <= 2
    assert tree(folder) == before
    assert not (folder / "runs").exists()


def test_a_gpu_without_memory_is_told_of_in_a_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    no_memory = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
    monkeypatch.setattr("fedtct.seated_silo.SeatedSilo.train", no_memory)
    assert main(["run", *SMALL, "--out", "a"]) == 2
    assert "fedtct: the GPU is out of memory" in capsys.readouterr().err


def test_a_run_is_never_overwritten_nor_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *SMALL, "--out", "a", "--json"]) == 0
    before = tree(folder)
    for command, message in {
        ("run", *SMALL, "--out", "a"): "a exists: choose another folder with --out, or resume it with --resume a",
        ("run", "--resume", "a", "--lr", "0.5"): "other settings: lr was 0.1, now it is 0.5",
        ("compare", "--resume", "a"): "there is no plan.json",
    }.items():
        assert main(command) == 2
        assert message in capsys.readouterr().err
        assert tree(folder) == before
