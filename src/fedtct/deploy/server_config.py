"""A run.toml: the settings of a run, and in its [server] table what a run across machines needs besides."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fedtct.deploy.settings import check_settings
from fedtct.errors import FedtctError, check_not_negative
from fedtct.federation.flower.exchange import Terms
from fedtct.importing import import_function, is_function_name
from fedtct.runs.config import RunConfig
from fedtct.runs.folder import RunFolder
from fedtct.runs.settings import ELSEWHERE, OWN, OWN_DEFAULTS, check_names
from fedtct.runs.toml import parse_toml

OF_SILOS = ("data", "holdout", "group", "precision")  # settings of `fedtct run` that belong into a silo.toml here


@dataclass(frozen=True)
class ServerConfig:
    """The [server] table of a run.toml: what only a run across machines needs."""

    out: str = "runs/deployed"
    min_silos: int = 0  # how many silos a round needs; 0: all
    round_timeout: float = 600.0
    wait: float = 600.0
    grace: float = -1.0  # seconds for the others once min_silos have answered; -1: all of round_timeout
    wire: str = "fp32"  # or fp16: half the bytes
    num_classes: int = 0  # 0: one more than the largest label of all silos
    test: str = ""  # a data file on the server, scored after every round; a relative path begins at the app folder

    def __post_init__(self) -> None:
        check_settings(asdict(self), USUAL, "[server]")
        if self.wire not in ("fp32", "fp16"):
            raise FedtctError(f"wire must be 'fp32' or 'fp16', it is '{self.wire}'")
        check_not_negative(num_classes=self.num_classes)

    def terms(self, silos: int) -> Terms:
        """When a round counts."""
        return Terms(
            silos=silos,
            min_silos=self.min_silos or silos,
            round_timeout=self.round_timeout,
            wait=self.wait,
            grace=self.grace if self.grace >= 0 else None,
            fp16=self.wire == "fp16",
        )


USUAL = {spec.name: spec.default for spec in fields(ServerConfig)}


def read_run(
    path: Path, overrides: Mapping[str, Any] | None = None, resume: str | Path = ""
) -> tuple[RunConfig, ServerConfig]:
    """The run that the run.toml of an app folder describes; ``overrides`` are settings of either kind.

    Settings that it leaves out are the defaults for silos' own data, or those of the run at ``resume``.
    """
    run, server = _tables(path, overrides or {})
    unsaid = asdict(RunFolder.read(resume).config) if resume else {}
    if not {"dataset", "split"} & set(run):  # else silos have parts of a known dataset, to try things out
        # Without test data the server reads no file, so how files are read is silos' own, too.
        of_silos = OF_SILOS if server.get("test") else (*OF_SILOS, "texts", "ignore")
        if theirs := [name for name in of_silos if name in run]:
            raise FedtctError(f"{path}: {theirs[0]} belongs to each silo: set it in silo.toml, not here")
        unsaid = unsaid or OWN_DEFAULTS | {"silos": RunConfig.silos}
        run |= {"dataset": "silos' own data", "split": OWN, "data": ELSEWHERE}
    config, settings = RunConfig.of(**unsaid | run | {"device": "cpu"}), ServerConfig(**server)
    _check(path, config, settings)
    return config, settings


def _tables(path: Path, overrides: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the run and of its [server] table, checked by name; paths of files begin at the app folder."""
    values = parse_toml(path)
    if not isinstance(told := values.pop("server", {}), dict):
        raise FedtctError(f"{path}: [server] must be a table of settings, it is {told!r}")
    server = told | {k: v for k, v in overrides.items() if k in USUAL}
    run = values | {k: v for k, v in overrides.items() if k not in USUAL}
    for table, name in ((server, "test"), (run, "init_weights")):
        if table.get(name):
            table[name] = str(_app_folder(path) / str(table[name]))
    check_settings(server, USUAL, f"{path}: [server]")
    check_names(run, str(path))
    return run, server


def _check(path: Path, config: RunConfig, server: ServerConfig) -> None:
    """Refuse what cannot work across machines, before silos wait for it."""
    server.terms(config.silos)  # which refuses terms that cannot be met
    if config.method == "centralized":
        raise FedtctError(f"{path}: centralized needs all data in one place: run it there, with fedtct run --data")
    if config.per_round:
        raise FedtctError(f"{path}: per_round is for simulations: across machines min_silos says how many must answer")
    if config.epsilon and not server.num_classes:
        raise FedtctError(f"{path}: with epsilon silos do not tell their labels; set num_classes in [server]")
    for own in filter(is_function_name, (config.model, *config.own_methods)):
        import_function(own, _app_folder(path))


def _app_folder(path: Path) -> Path:
    """The folder of the app whose run.toml is at a path."""
    return path.absolute().parents[1]
