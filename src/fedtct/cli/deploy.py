"""fedtct deploy: a federation across machines, on Flower: keys, the app folder, starting and checking."""

import subprocess
import time
from pathlib import Path
from typing import Annotated

import typer

from fedtct.cli.flower import need_flower
from fedtct.cli.help import Commands
from fedtct.cli.output import next_free, print_messages, print_summary
from fedtct.cli.screen import Screen
from fedtct.cli.stopping import INTERRUPTED
from fedtct.errors import FedtctError

deploy = Commands(help="Across machines, on Flower. For example: fedtct deploy up")

NewFolder = Annotated[Path, typer.Argument(help="the folder to make", metavar="DIR")]
Server = Annotated[Path, typer.Option(help="the server's folder, from deploy keys", metavar="DIR")]
SiloFile = Annotated[Path, typer.Argument(help="the silo's silo.toml", metavar="FILE")]
AGAIN_SECONDS = 10.0


deploy.callback()(need_flower)


@deploy.command()
def keys(
    folder: NewFolder,
    silos: Annotated[str, typer.Option(help="the silos' names", metavar="A,B,C")],
    server: Annotated[str, typer.Option(help="where silos find the server", metavar="HOST:PORT")] = "127.0.0.1:8000",
) -> None:
    """Make the server's certificate and a key pair a silo. Later, it adds silos to those there are.

    \b
    fedtct deploy keys keys --silos a,b,c --server fl.example.org:8000
    """
    from fedtct.deploy.keys import make_keys

    names = [name.strip() for name in silos.split(",") if name.strip()]
    for path in make_keys(folder, names, server):
        print(path)
    print(
        f"{folder}/server is for the server, {folder}/NAME for the silo of that name; keep {folder}/ca.key to yourself"
    )


@deploy.command()
def init(
    folder: NewFolder, silos: Annotated[int, typer.Option(help="how many silos take part", metavar="N")] = 3
) -> None:
    """Make the app folder of a run: edit its run.toml, then start it with deploy run.

    \b
    fedtct deploy init app --silos 2
    """
    from fedtct.deploy.app_folder import RUN, make_app

    print(f"{make_app(folder, silos)}: what is run is in {folder / RUN}, what to do in {folder / 'README.md'}")


@deploy.command()
def server(
    folder: Annotated[Path, typer.Argument(help="the server's folder, from deploy keys", metavar="DIR")],
) -> None:
    """Start the server, and let in the silos whose public keys are in DIR/silos.

    \b
    fedtct deploy server keys/server
    """
    from fedtct.deploy import processes
    from fedtct.deploy.keys import split_address

    link = subprocess.Popen(processes.superlink(folder), env=processes.environment(folder / "flwr"))
    try:
        processes.wait_for_port(split_address(processes.address_of(folder))[1], 60, link)
        for name in processes.register(folder):
            print(f"fedtct: silo {name} may connect", flush=True)
        print(f"fedtct: the server is up at {processes.address_of(folder)}", flush=True)
        code = processes.attend(link)
    finally:
        processes.stop([link])
    raise typer.Exit(code)


@deploy.command()
def silo(file: SiloFile) -> None:
    """Start a silo, and start it again if its connection breaks.

    \b
    fedtct deploy silo silo.toml
    """
    from fedtct.deploy import processes
    from fedtct.deploy.silo_config import SiloConfig

    config = SiloConfig.read(file)
    config.load()  # better an error here than at the server
    while True:
        command = processes.supernode(config, file, processes.free_port())
        node = subprocess.Popen(command, env=processes.environment(config.folder / "flwr"), cwd=config.folder)
        if processes.attend(node) == 0:
            return
        print(f"fedtct: the connection to {config.server} ended; again in {AGAIN_SECONDS:g} s", flush=True)
        time.sleep(AGAIN_SECONDS)


@deploy.command()
def check(file: SiloFile) -> None:
    """Tell whether a silo can take part: its data, its keys and the way to the server.

    \b
    fedtct deploy check silo.toml
    """
    from fedtct.deploy.check import check_silo

    wrong = 0
    for finding in check_silo(file):
        print(("ok     " if finding.right else "WRONG  ") + finding.text, flush=True)
        wrong += not finding.right
    if wrong:
        raise FedtctError(f"{wrong} of these must be put right before this silo can take part")


@deploy.command()
def run(
    app: Annotated[Path, typer.Argument(help="the app folder, from deploy init", metavar="APP")],
    server: Server = Path("keys/server"),
    out: Annotated[Path | None, typer.Option(help="the run's new folder [as run.toml says]", metavar="DIR")] = None,
    resume: Annotated[Path | None, typer.Option(help="go on with the run in this folder", metavar="DIR")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only print what would leave a silo")] = False,
    shape: Annotated[str, typer.Option(help="for --dry-run: the shape of a sample", metavar="C,H,W")] = "1,28,28",
    classes: Annotated[int, typer.Option(help="for --dry-run: how many classes", metavar="N")] = 10,
) -> None:
    """Start a run on the server, or print what it would send.

    \b
    fedtct deploy run app --server keys/server
    fedtct deploy run app --server keys/server --resume runs/deployed
    fedtct deploy run app --dry-run --shape 3,32,32
    """
    from fedtct.deploy import processes
    from fedtct.deploy.app_folder import RUN
    from fedtct.deploy.server_app import read_run

    config, settings = read_run(app / RUN)
    if dry_run:
        from fedtct.deploy.messages import messages

        try:
            sizes = tuple(map(int, shape.split(",")))
        except ValueError as error:
            raise FedtctError(f"shape must be whole numbers such as 3,32,32, not '{shape}'") from error
        print_messages(messages(config, sizes, classes, settings.wire == "fp16"), config.promise())
        return
    places = {"out": out, "resume": resume}
    command = processes.submit(server, app, {k: str(v.absolute()) for k, v in places.items() if v is not None})
    go_on = f"fedtct deploy run {app} --server {server} --resume {resume or out or settings.out}"
    try:
        finished = processes.follow(command, server / "flwr", lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        screen = Screen()
        screen.say(f"fedtct: no longer looking on: the run goes on at the server. If it stops there: {go_on}")
        raise typer.Exit(INTERRUPTED) from None
    if not finished:
        raise typer.Exit(1)


@deploy.command()
def up(
    local: Annotated[int, typer.Option(help="how many silos to start here", metavar="N")] = 3,
    rounds: Annotated[int, typer.Option(help="rounds of stage 1", metavar="N")] = 3,
    out: Annotated[Path | None, typer.Option(help="the new folder [under runs/]", metavar="DIR")] = None,
) -> None:
    """See it work on this machine: a server, silos, TLS, keys, and TCT across them.

    \b
    fedtct deploy up --local 3
    """
    from fedtct.deploy.demo import run_demo
    from fedtct.report.page.write import REPORT
    from fedtct.runs.folder import RunFolder, free_folder
    from fedtct.runs.summary import Summary

    if local < 1 or rounds < 1:
        raise FedtctError("up needs at least one silo and one round")
    screen = Screen()
    folder = free_folder(out or next_free(Path("runs/deploy-demo")))
    try:
        run = run_demo(folder, local, rounds, screen.say)
    except KeyboardInterrupt:
        screen.say(f"fedtct: stopped, server and silos too; `fedtct deploy up` begins anew, {folder} may be deleted")
        raise typer.Exit(INTERRUPTED) from None
    print_summary(Summary.of(RunFolder.resume(run)), False, run / REPORT)
