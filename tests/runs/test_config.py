"""Configurations: what is written is what is read, and what cannot work is refused at once."""

import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtct import (
    TCT,
    Centralized,
    ConjugateGradient,
    FedAdam,
    FedAvg,
    FedAvgRegression,
    FedDyn,
    FedProx,
    FedtctError,
    GradientDescent,
    Ridge,
    Scaffold,
    ScaffoldRegression,
)
from fedtct.data import DATASETS
from fedtct.errors import LARGEST_NUMBER, LARGEST_WHOLE
from fedtct.models import registry
from fedtct.runs.config import RunConfig
from fedtct.runs.methods import KINDS, SOLVERS, build_method
from fedtct.runs.settings import METHODS, MODEL_OF, MODELS, SETTINGS, STAGE1, STAGE2, read_toml, settings_of
from fedtct.runs.toml import as_toml

positive = st.floats(min_value=0, exclude_min=True, max_value=LARGEST_NUMBER)
counts = st.integers(1, 10**9)
settings = {
    "dataset": st.sampled_from(["digits", "fashion-mnist", "cifar10", "cifar100"]),
    "data_dir": st.text(),
    "init_weights": st.text(),
    "limit": st.integers(0, 10**9),
    "split": st.sampled_from(["iid", "classes:1", "classes:10", "dirichlet:0.1", "dirichlet:1e-3"]),
    "silos": counts,
    "holdout": st.floats(0, 0.99),
    "model": st.sampled_from(["linear", "mlp", "simple-cnn", "resnet18-bn", "resnet18-gn"]),
    "local_epochs": counts,
    "lr": positive,
    "weight_decay": st.floats(0, 1),
    "augment": st.sampled_from(["none", "crop-flip"]),
    "p": counts,
    "stage1": st.sampled_from(STAGE1),
    "normalize": st.booleans(),
    "stage2_lr": st.just("auto") | positive,
    "ridge": st.just("gcv") | positive,
    "seed": st.integers(0, 2**40),
    "split_seed": st.just("seed") | st.integers(0, 2**40),
}


@st.composite
def configs(draw: st.DrawFn) -> RunConfig:
    method, stage2 = draw(st.sampled_from(list(METHODS))), draw(st.sampled_from(list(STAGE2)))
    second = 1 if stage2 == "ridge" else draw(counts)
    rounds = (draw(counts), second) if method == "tct" else (draw(counts),)
    rest = draw(st.fixed_dictionaries({}, optional=settings))
    return RunConfig.of(method=method, stage2=stage2, rounds=rounds, **rest)


few = hypothesis.settings(max_examples=40)  # each has about half of the settings


@few
@given(configs())
def test_what_is_written_as_toml_is_read_back_the_same(config: RunConfig) -> None:
    assert RunConfig.of(**tomllib.loads(config.to_toml())) == config


@given(st.lists(st.text()))
def test_any_names_are_written_as_toml(names: list[str]) -> None:
    assert tomllib.loads(f"names = {as_toml(tuple(names))}") == {"names": names}


@few
@given(configs())
def test_a_file_says_everything(config: RunConfig) -> None:
    assert list(tomllib.loads(config.to_toml())) == [field.name for field in fields(RunConfig)]


@few
@given(configs())
def test_text_of_the_command_line_means_what_the_value_means(config: RunConfig) -> None:
    def text(value: Any) -> Any:
        if isinstance(value, tuple):
            return ",".join(map(str, value))
        return value if isinstance(value, bool) else str(value)

    as_text = {field.name: text(getattr(config, field.name)) for field in fields(config)}
    assert RunConfig.of(**as_text) == config


@few
@given(configs())
def test_a_configuration_does_not_differ_from_itself_nor_by_where_data_lies(config: RunConfig) -> None:
    own = {field.name: getattr(config, field.name) for field in fields(config)}
    assert config.differences(own | {"data_dir": "elsewhere"}) == []
    assert config.differences({"seed": config.seed + 1, "silos": config.silos}) == ["seed"]


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("fedavg", FedAvg),
        ("fedprox", FedProx),
        ("scaffold", Scaffold),
        ("feddyn", FedDyn),
        ("fedadam", FedAdam),
        ("centralized", Centralized),
        ("fedavg-last-layer", FedAvg),
        ("tct", TCT),
    ],
)
def test_every_method_is_built_with_its_settings(method: str, kind: type) -> None:
    built: Any = RunConfig.of(method=method, lr=0.03, seed=5, mu=0.7, alpha=0.6, server_lr=0.5).build()
    assert type(built) is kind
    stage1 = built.stage1 if method == "tct" else built
    assert (stage1.lr, stage1.seed) == (0.03, 5)
    own = {"fedprox": ("mu", 0.7), "feddyn": ("alpha", 0.6), "fedadam": ("server_lr", 0.5)}
    name, value = own.get(method, ("trainable", "last-layer" if method == "fedavg-last-layer" else "all"))
    assert getattr(stage1, name) == value


def test_settings_name_all_that_can_be_built() -> None:
    assert (set(MODELS), set(MODEL_OF)) == (set(registry.MODELS), set(DATASETS))
    assert (METHODS.keys() - {"tct"}, STAGE2.keys()) == (KINDS.keys(), SOLVERS.keys())


def test_defaults_follow_the_dataset_and_the_method() -> None:
    assert RunConfig.of(dataset="cifar10").model == "resnet18-bn"
    assert RunConfig.of(dataset="fashion-mnist").model == "simple-cnn"
    assert RunConfig.of(method="fedavg").rounds == (200,)
    assert RunConfig.of(method="tct").rounds == (100, 100)
    ridge = RunConfig.of(stage2="ridge", rounds=7, d=50)
    assert ridge.rounds == (7, 1)
    built = ridge.build()
    assert isinstance(built, TCT)
    assert built.stage2 == Ridge(d=50)
    assert RunConfig.of() == RunConfig()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"dataset": "mnist"}, "unknown dataset 'mnist'"),
    ({"model": "vgg"}, "unknown model 'vgg'"),
    ({"method": "sgd"}, "unknown method 'sgd'"),
    ({"stage1": "tct"}, "unknown stage1 'tct'"),
    ({"stage2": "newton"}, "unknown stage2 'newton'"),
    ({"split": "classes"}, "unknown split 'classes'"),
    ({"split": "classes:0"}, "N must be a whole number from 1 on"),
    ({"split": "dirichlet:x"}, "ALPHA must be a number"),
    ({"split": "iid:3"}, "unknown split"),
    ({"augment": "blur"}, "unknown augment 'blur'"),
    ({"rounds": 20}, "two numbers such as 20,20, not 20"),
    ({"rounds": "1,2,3"}, "two numbers"),
    ({"rounds": ()}, "two numbers"),
    ({"rounds": "many"}, "rounds must be whole numbers, it is 'many'"),
    ({"stage2_lr": [1, 2]}, r"stage2_lr must be a number or a word, it is \[1, 2\]"),
    ({"method": "fedavg", "rounds": (20, 20)}, "one number, not 20,20"),
    ({"method": "fedavg", "rounds": -1}, "negative"),
    ({"rounds": "5,0"}, "at least 1"),
    ({"stage2": "ridge", "rounds": (5, 5)}, "one round"),
    ({"silos": 0}, "silos must be at least 1"),
    ({"silos": "ten"}, "silos must be a whole number, it is 'ten'"),
    ({"silos": 2.5}, "silos must be a whole number"),
    ({"silos": True}, "silos must be a whole number"),
    ({"lr": "fast"}, "lr must be a number, it is 'fast'"),
    ({"lr": 0}, "lr must be positive"),
    ({"lr": float("nan")}, "lr must be a number"),
    ({"lr": "inf"}, "lr must be a number"),
    ({"dataset": 5}, "dataset must be text, it is 5"),
    ({"normalize": "yes"}, "normalize must be true or false"),
    ({"p": 0}, "p must be at least 1"),
    ({"stage2": "ridge", "d": 0}, "d must be at least 1"),
    ({"stage2": "ridge", "ridge": "best"}, "'gcv' or 'holdout'"),
    ({"stage2": "ridge", "ridge": "holdout"}, "set holdout"),
    ({"stage2_lr": "fast"}, "stage2_lr must be a number or 'auto'"),
    ({"stage2_lr": -1}, "lr, if not 'auto', must be positive"),
    ({"patience": 3}, "set holdout"),
    ({"patience": 3, "holdout": 0.1, "per_round": 2}, "with per_round different silos rate each round"),
    ({"holdout": 1}, "from 0 to below 1"),
    ({"seed": -1}, "seed must not be negative"),
    ({"split_seed": -1}, "split_seed must not be negative"),
    ({"split_seed": "first"}, "split_seed must be a whole number or 'seed', it is 'first'"),
    ({"split_seed": 0.5}, "split_seed must be a whole number or a word, it is 0.5"),
    ({"limit": -1}, "limit must not be negative"),
    ({"target": "age"}, "target is for your own data"),
    ({"image_size": "8,8"}, "image_size is for your own data"),
    ({"method": "fedprox", "rounds": 1, "mu": -1}, "mu must not be negative"),
]


@pytest.mark.parametrize(("values", "message"), BAD, ids=[str(values) for values, _ in BAD])
def test_what_cannot_work_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(FedtctError, match=message):
        RunConfig.of(**values)


READ_BY: dict[str, dict[str, Any]] = {name: {"stage2": "ridge"} for name in ("d", "ridge")}
READ_BY |= {name: {"stage2": "ridge", "epsilon": 1} for name in ("epsilon", "delta", "clip")}
READ_BY |= {"mu": {"method": "fedprox"}, "alpha": {"method": "feddyn"}, "server_lr": {"method": "fedadam"}}
READ_BY |= {"rounds": {"method": "fedavg"}, "patience": {"holdout": 0.1}}
WHOLE = [name for name, spec in SETTINGS.items() if spec.type in (int, tuple[int, ...]) and name != "image_size"]
REAL = [name for name, spec in SETTINGS.items() if spec.type in (float, float | str)]


@pytest.mark.parametrize("name", [*WHOLE, *REAL])
def test_numbers_that_are_too_large_are_refused(name: str) -> None:
    largest = LARGEST_WHOLE if name in WHOLE else LARGEST_NUMBER
    for value in (LARGEST_WHOLE + 1, 10**400) if name in WHOLE else (1e39, 1e300, 10**400):
        for written in (value, str(value)):
            with pytest.raises(FedtctError, match=name.removeprefix("stage2_")):
                RunConfig.of(**READ_BY.get(name, {}) | {name: written})
    if name not in ("holdout", "epsilon", "delta"):  # these are bounded more narrowly
        RunConfig.of(**READ_BY.get(name, {}) | {name: largest})


OTHER: dict[str, Any] = {
    "mu": 9.0,
    "alpha": 9.0,
    "server_lr": 9.0,
    "p": 9,
    "normalize": False,
    "steps": 9,
    "stage2_lr": 9.0,
}
OTHER |= {"ridge": 9.0, "d": 9, "stage1": "scaffold"}


@pytest.mark.parametrize(
    "values",
    [
        *({"method": name, "stage2": "ridge"} for name in METHODS),
        *({"stage2": name} for name in STAGE2),
        *({"stage1": name} for name in STAGE1),
    ],
    ids=str,
)
def test_settings_that_are_not_read_change_nothing_and_the_others_do(values: dict[str, str]) -> None:
    config = RunConfig.of(**values)
    for name, value in OTHER.items() - vars(config).items():
        changed = replace(config, **{name: value})
        unchanged = build_method(changed, "linear") == build_method(config, "linear")
        assert unchanged == (name in changed.unread()), name


@pytest.mark.parametrize("method", METHODS)
def test_what_not_every_method_reads_is_no_part_of_the_task(method: str) -> None:
    assert set(RunConfig.of(method=method).unread()) <= set(settings_of("method"))


def test_an_unknown_setting_is_named_with_the_one_that_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('dataset = "digits"\nlocal_epoch = 3\n')
    with pytest.raises(FedtctError, match=r"run\.toml has an unknown setting 'local_epoch': .*'local_epochs'"):
        read_toml(file)
    with pytest.raises(FedtctError, match="unknown setting 'zzz': known are dataset, "):
        RunConfig.of(zzz=1)


@pytest.mark.parametrize("content", [b"lr = ", b"lr = 1\nlr = 2\n", b"\xff\xfe"])
def test_a_file_that_is_not_toml_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    with pytest.raises(FedtctError, match="not valid TOML"):
        read_toml(tmp_path / "run.toml")


def test_a_file_may_begin_with_a_byte_order_mark_as_editors_on_windows_write_it(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("lr = 0.5\n", encoding="utf-8-sig")
    assert read_toml(tmp_path / "run.toml") == {"lr": 0.5}


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedtctError, match=r"cannot read .*no\.toml: No such file"):
        read_toml(tmp_path / "no.toml")


@pytest.mark.parametrize("method", [FedAvg, FedProx, Scaffold, FedDyn, FedAdam, Centralized])
def test_defaults_of_commands_are_those_of_methods(method: type[FedAvg]) -> None:
    assert RunConfig.of(method=method.__name__.lower()).build() == method("mlp")


@pytest.mark.parametrize("stage1", [FedAvg, FedProx, Scaffold, FedDyn, FedAdam])
def test_any_of_them_is_a_stage_1_of_tct(stage1: type[FedAvg]) -> None:
    assert RunConfig.of(stage1=stage1.__name__.lower()).build() == TCT("mlp", stage1("mlp", rounds=100))


@pytest.mark.parametrize(
    ("name", "stage2"),
    [
        ("scaffold", ScaffoldRegression()),
        ("fedavg", FedAvgRegression()),
        ("conjugate-gradient", ConjugateGradient()),
        ("gradient-descent", GradientDescent()),
        ("ridge", Ridge()),
    ],
)
def test_defaults_of_commands_are_those_of_stage_2(name: str, stage2: Any) -> None:
    built = RunConfig.of(method="tct", stage2=name).build()
    assert built == TCT("mlp", FedAvg("mlp", rounds=100), stage2=stage2)


def test_what_learns_no_labels_is_not_stopped_by_patience() -> None:
    built = RunConfig.of(stage2="conjugate-gradient", pretext="rotations", patience=3, holdout=0.1).build()
    assert isinstance(built, TCT)
    assert built.stage1 == FedAvg("mlp", rounds=100, pretext="rotations")
    assert built.stage2 == ConjugateGradient(rounds=20, patience=3)
