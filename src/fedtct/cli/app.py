"""The commands put together, and how they end: messages of one or two lines and an exit code."""

import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fedtct.cli.compare import compare
from fedtct.cli.data import data
from fedtct.cli.demo import demo
from fedtct.cli.deploy import deploy
from fedtct.cli.help import Commands
from fedtct.cli.model import evaluate, export, predict
from fedtct.cli.paper import paper
from fedtct.cli.report import report
from fedtct.cli.run import run
from fedtct.cli.stopping import INTERRUPTED, reason_of
from fedtct.errors import FedtctError
from fedtct.remarks import each_once

BAD_INPUT = 2
# Options whose first value must not be lost; of others the last counts, so that a script's can be overridden.
WHAT_IS_READ = ("--data", "--input", "--ignore", "--texts", "--group", "--keep", "--methods", "--split", "--only")
GPU_FULL = (
    "the GPU is out of memory. Does another process use it? Otherwise use --device cpu, or fewer features (--p, or --d "
    "with ridge). A run that was started can be resumed."
)
SPINS = "10000"  # how often a thread that waits for others looks again before it sleeps
# Of the click that typer uses, which may be its own.
ClickException: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

app = Commands()
app.command()(run)
app.command()(compare)
app.command()(demo)
app.command()(report)
app.command()(predict)
app.command()(evaluate)
app.command()(export)
app.add_typer(data, name="data")
app.add_typer(paper, name="paper")
app.add_typer(deploy, name="deploy")


def _print_version(asked: bool) -> None:
    if asked:
        from fedtct import __version__

        print(f"fedtct {__version__}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Federated learning that works when silos' data differ: train, convexify, train.

    For example: fedtct demo
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # not every terminal has an ε: better a question mark than no answer
    if "OMP_WAIT_POLICY" not in os.environ:
        # By default thirty times as often: beside another busy process, threads then keep each other from working.
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # read when torch is loaded
    warnings.showwarning = each_once(lambda text: print(f"fedtct: {text}", file=sys.stderr))
    words = list(sys.argv[1:] if arguments is None else arguments)
    if twice := _given_twice(words):
        return _complain(f"{twice} is given twice, and only the last would count: give it once", BAD_INPUT)
    try:
        result = app(args=words or ["--help"], prog_name="fedtct", standalone_mode=False)
        sys.stdout.flush()  # so that a full disk is noticed here
    except FedtctError as error:
        return _complain(str(error), BAD_INPUT)
    except ClickException as error:
        message = error.message
        if "Did you mean" not in message:  # typer guesses in the message; click would guess the same again
            message = error.format_message()
        return _complain(f"{message} (--help shows what there is)", BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("stopped", INTERRUPTED)
    except BrokenPipeError:
        return 1
    except OSError as error:
        if not (reason := reason_of(error)):
            raise
        return _complain(reason, BAD_INPUT)
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's, which a help screen comes without
            raise
        return _complain(GPU_FULL, BAD_INPUT)
    return result if isinstance(result, int) else 0


def _given_twice(words: Sequence[str]) -> str:
    """An option that says what is read, if it comes twice: the parser would silently take the last alone."""
    names = [word.split("=")[0] for word in words]
    return next((name for name in WHAT_IS_READ if names.count(name) > 1), "")


def _complain(message: str, code: int) -> int:
    print(f"fedtct: {message}", file=sys.stderr)
    return code
