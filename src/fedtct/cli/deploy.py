"""fedtct deploy: a federation across machines, on Flower: keys, the app folder, starting and checking."""

import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtct.cli.artifacts import to_look_at
from fedtct.cli.flower import need_flower
from fedtct.cli.help import Commands
from fedtct.cli.output import print_messages, print_summary
from fedtct.cli.screen import Screen
from fedtct.cli.stopping import stoppable
from fedtct.errors import FedtctError
from fedtct.runs.places import free_folder, next_free, resuming

if TYPE_CHECKING:
    from fedtct.runs.config import RunConfig

deploy = Commands(help="Across machines, on Flower. For example: fedtct deploy up")

NewFolder = Annotated[Path, typer.Argument(help="the folder to make", metavar="DIR")]
Server = Annotated[Path, typer.Option(help="the server's folder, from deploy keys", metavar="DIR")]
SiloFile = Annotated[Path, typer.Argument(help="the silo's silo.toml", metavar="FILE")]
AGAIN_SECONDS = 10.0
ENDS_SECONDS = 10.0  # for a silo that was just told to end


deploy.callback()(need_flower)


@deploy.command()
def keys(
    folder: NewFolder,
    silos: Annotated[str, typer.Option(help="the silos' names", metavar="A,B,C")] = "",
    server: Annotated[
        str, typer.Option(help="the server's address for silos [as before, or 127.0.0.1:8000]", metavar="HOST:PORT")
    ] = "",
    renew: Annotated[bool, typer.Option("--renew", help="only make a new certificate for the server")] = False,
) -> None:
    """Make the server's certificate, and a key pair for each silo.

    Run it again to add silos.

    \b
    fedtct deploy keys keys --silos a,b,c --server fl.example.org:8000
    fedtct deploy keys keys --renew
    """
    from fedtct.deploy.keys import make_keys, renew_server

    names = [name.strip() for name in silos.split(",") if name.strip()]
    if renew and names:
        raise FedtctError("--renew makes only the server's certificate: add silos with another command")
    for path in renew_server(folder, server) if renew else make_keys(folder, names, server):
        print(path)
    if renew:
        print(f"copy these to the server and start it again; silos still trust it, by {folder}/ca.crt")
        return
    print(
        f"{folder}/server is for the server, {folder}/NAME for the silo of that name; keep {folder}/ca.key to yourself"
    )


@deploy.command()
def init(
    folder: NewFolder, silos: Annotated[int, typer.Option(help="how many silos take part", metavar="N")] = 3
) -> None:
    """Make the app folder of a run.

    Edit its run.toml, then start the run with deploy run.

    \b
    fedtct deploy init app --silos 2
    """
    from fedtct.deploy.app_folder import RUN, make_app

    print(f"{make_app(folder, silos)}: the settings are in {folder / RUN}, the next steps in {folder / 'README.md'}")


@deploy.command()
def server(
    folder: Annotated[Path, typer.Argument(help="the server's folder, from deploy keys", metavar="DIR")],
) -> None:
    """Start the server.

    It lets in the silos whose public keys are in DIR/silos.

    \b
    fedtct deploy server keys/server
    """
    from fedtct.deploy import processes, registration
    from fedtct.deploy.keys import split_address

    command, port = processes.superlink(folder), split_address(processes.address_of(folder))[1]
    if processes.listens(port):
        raise FedtctError(f"port {port} is in use already: by this server, or by another program?")
    registration.forget_if_lost(folder)
    link = processes.start(command, folder / "flwr")
    try:
        processes.wait_for_port(port, 60, link)
        for name in registration.unregister(folder):
            print(f"fedtct: silo {name} may not connect any more", flush=True)
        for name in registration.register(folder):
            print(f"fedtct: silo {name} may connect", flush=True)
        print(f"fedtct: the server is up at {processes.address_of(folder)}", flush=True)
        code = processes.attend(link)
    finally:
        processes.stop([link])
    raise typer.Exit(code)


@deploy.command()
def silo(file: SiloFile) -> None:
    """Start a silo; it reconnects if its connection breaks.

    \b
    fedtct deploy silo silo.toml
    """
    from fedtct.deploy import processes
    from fedtct.deploy.cache import drop_old_runs
    from fedtct.deploy.running import process_of
    from fedtct.deploy.silo_config import SiloConfig

    config = SiloConfig.read(file)
    if process := process_of(config.folder / "flwr", ENDS_SECONDS):  # Flower lets nobody in twice
        raise FedtctError(
            f"{config.name} is running already (process {process}): stop that process first, or leave it running"
        )
    config.load()  # better an error here than at the server
    drop_old_runs(config.runs())
    while True:
        command = processes.supernode(config, file, processes.free_port())
        node = processes.start(command, config.folder / "flwr", config.folder)
        if processes.attend(node) == 0:
            return
        why = f"if it never worked, `fedtct deploy check {file}` says why"
        print(
            f"fedtct: the connection to {config.server} ended; trying again in {AGAIN_SECONDS:g} s ({why})", flush=True
        )
        time.sleep(AGAIN_SECONDS)


@deploy.command()
def check(file: SiloFile) -> None:
    """Check a silo's data, its keys and its connection to the server.

    \b
    fedtct deploy check silo.toml
    """
    from fedtct.deploy.check import check_silo

    wrong = 0
    for verdict in check_silo(file):
        print(("ok     " if verdict.right else "WRONG  ") + verdict.text, flush=True)
        wrong += not verdict.right
    if wrong:
        raise FedtctError(f"{wrong} of these must be fixed before this silo can take part")


@deploy.command()
def run(
    app: Annotated[Path, typer.Argument(help="the app folder, from deploy init", metavar="APP")],
    server: Server = Path("keys/server"),
    out: Annotated[
        Path | None, typer.Option(help="the folder to make for the run [as run.toml says]", metavar="DIR")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="resume the run in this folder", metavar="DIR")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print what would leave a silo, and start nothing")
    ] = False,
    like: Annotated[
        Path | None, typer.Option(help="for --dry-run: a data file like the silos', or a silo.toml", metavar="FILE")
    ] = None,
    shape: Annotated[str, typer.Option(help="for --dry-run: the shape of a sample", metavar="C,H,W")] = "1,28,28",
    classes: Annotated[int, typer.Option(help="for --dry-run: how many classes", metavar="N", min=2)] = 10,
) -> None:
    """Start a run on the server, or print what it would send.

    \b
    fedtct deploy run app --server keys/server
    fedtct deploy run app --server keys/server --resume runs/deployed
    fedtct deploy run app --dry-run --shape 3,32,32
    fedtct deploy run app --dry-run --like patients.csv
    """
    from fedtct.deploy import processes
    from fedtct.deploy.app_folder import RUN
    from fedtct.deploy.server_config import read_run
    from fedtct.runs.folder import CONFIG, RunFolder

    if dry_run:
        _dry_run(app, like, shape, classes)
        return
    config, settings = read_run(app / RUN, resume=resume or "")
    folder = _folder_of_the_run(config, Path(settings.out), out, resume)
    # Flower takes the app elsewhere: files of the server's in its folder are not found there.
    files = {name: f for name, f in {"test": settings.test, "init_weights": config.init_weights}.items() if f}
    for name, file in files.items():
        if not Path(file).exists():
            raise FedtctError(f"{app / RUN} says {name}, but there is no {file}")
    beside = {name: file for name, file in files.items() if Path(file).is_relative_to(app.absolute())}
    command = processes.submit(server, app, {"resume" if resume else "out": str(folder.absolute())} | beside)
    screen = Screen()
    again = resuming(shlex.join(["fedtct", "deploy", "run", str(app), "--server", str(server)]), folder)
    with stoppable(screen, folder, again), processes.as_ctrl_c(), screen:
        screen.wait("waiting for the server and its silos")
        watcher = screen.watch(config.full_method)
        code = processes.follow(command, server / "flwr", screen.say, watcher)
    if code:
        if (folder / CONFIG).is_file() and not RunFolder.read(folder).failure:  # it would only fail again
            screen.say(f"fedtct: resume with `{again}`")
        raise typer.Exit(code)
    _print_result(folder)


def _dry_run(app: Path, like: Path | None, shape: str, classes: int) -> None:
    """Print what a run would send, for data such as a file's, or made up."""
    from fedtct.deploy.app_folder import RUN
    from fedtct.deploy.messages import made_up, messages, some_of
    from fedtct.deploy.server_config import read_run
    from fedtct.importing import importable

    config, settings = read_run(app / RUN)
    try:
        sizes = tuple(map(int, shape.split(",")))
    except ValueError:
        sizes = ()
    if min(sizes, default=0) < 1:
        raise FedtctError(f"shape must be whole numbers from 1 on, such as 3,32,32, not '{shape}'")
    x, y = some_of(like, config) if like else made_up(sizes, classes)
    num_classes = settings.num_classes or None if like else classes
    with importable(app):  # a model of one's own is there
        print_messages(messages(config, x, y, num_classes, fp16=settings.wire == "fp16"), config.promise())


def _folder_of_the_run(config: "RunConfig", default: Path, out: Path | None, resume: Path | None) -> Path:
    """The folder a run goes to or goes on in, refused here if the server would refuse it."""
    from fedtct.runs.folder import RunFolder, check_same

    if resume is None:
        return free_folder(out or default)
    if out is not None:
        raise FedtctError(f"--resume continues {resume}: leave out --out")
    check_same(resume, RunFolder.read(resume).config, asdict(config))
    return resume


def _print_result(folder: Path) -> None:
    from fedtct.runs.folder import RunFolder
    from fedtct.runs.metrics import METRICS
    from fedtct.runs.summary import Summary

    print_summary(Summary.of(RunFolder.read(folder)), False, to_look_at(folder, METRICS))


@deploy.command()
def up(
    local: Annotated[int | None, typer.Option(help="how many silos to start here [3]", metavar="N")] = None,
    rounds: Annotated[int | None, typer.Option(help="rounds of stage 1 [3]", metavar="N")] = None,
    out: Annotated[Path | None, typer.Option(help="the folder to make [under runs/]", metavar="DIR")] = None,
    resume: Annotated[Path | None, typer.Option(help="resume what was stopped in this folder", metavar="DIR")] = None,
) -> None:
    """Try a deployment on this machine.

    This starts a server and silos, with TLS and keys, and runs TCT across them.

    \b
    fedtct deploy up --local 3
    """
    if resume is not None and (local, rounds, out) != (None, None, None):
        raise FedtctError(f"--resume continues {resume} as it was started: leave out other options")
    local, rounds = 3 if local is None else local, 3 if rounds is None else rounds
    if local < 1 or rounds < 1:
        raise FedtctError("up needs at least one silo and one round")
    screen = Screen()
    screen.wait("getting ready")
    with screen:
        from fedtct.deploy.demo import RUN_FOLDER, is_over, prepare_demo, run_demo
        from fedtct.deploy.processes import as_ctrl_c

        folder = resume or free_folder(out or next_free(Path("runs/deploy-demo")))
        if resume is None:
            prepare_demo(folder, local, rounds)
        elif is_over(folder):
            screen.say(f"{folder} is finished already")
            _print_result(folder / RUN_FOLDER)
            return
        watcher = screen.watch("tct")
        with stoppable(screen, folder, resuming("fedtct deploy up", folder)), as_ctrl_c():
            run = run_demo(folder, screen.say, watcher)
    _print_result(run)
