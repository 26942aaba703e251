"""Flower's SuperLink, which other machines may ask only for what silos need: python -m fedtct.deploy.superlink

One port serves silos and those who start runs. Silos show a key; but without Flower's accounts anybody could start a
run, which sends code to all silos, or register a key. So only this machine may do that.
"""

from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fedtct.deploy.flower_log import tidy_log

HERE = ("127.0.0.1", "::1")
FOR_SILOS = "/v1/fleet/"
REFUSAL = "Runs are started and silos let in on the server's own machine only.\n"


class SilosOnlyFromElsewhere:
    """Lets through all requests of this machine, and of others only silos' requests."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, or the server's start and end."""
        if scope["type"] == "lifespan" or _is_from_here(scope) or scope["path"].startswith(FOR_SILOS):
            await self.app(scope, receive, send)
        else:
            await PlainTextResponse(REFUSAL, status_code=403)(scope, receive, send)


def _is_from_here(scope: Scope) -> bool:
    return scope.get("client") is not None and scope["client"][0] in HERE


def main() -> None:
    """Flower's own command, with that filter before everything else."""
    from flwr.superlink import extensions
    from flwr.superlink.cli import flower_superlink

    others = extensions.get_middleware  # if Flower ever has no such place, this must fail rather than let everybody in
    tidy_log()
    extensions.get_middleware = lambda: (Middleware(SilosOnlyFromElsewhere), *others())
    flower_superlink()


if __name__ == "__main__":
    main()
