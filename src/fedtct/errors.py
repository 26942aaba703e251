"""The one error a user is meant to read."""


class FedtctError(ValueError):
    """Bad input: says what was wrong and what to do about it.

    The command line prints the message and exits with code 2; nothing has been written by then. ``stranger`` is an
    error of somebody else's that led to this one: whoever reads the message here reads its text too. ``told`` is what
    may be said elsewhere: of a stranger its kind alone, since its text might hold data.
    """

    def __init__(self, text: str, stranger: BaseException | None = None) -> None:
        super().__init__(text if stranger is None else f"{text}: {type(stranger).__name__}: {stranger}")
        self.told = text if stranger is None else f"{text}: {type(stranger).__name__}; the silo's log says more"
