"""The one error a user is meant to read."""


class FedtctError(ValueError):
    """Bad input: says what was wrong and what to do about it.

    The command line prints the message and exits with code 2; nothing has been written by then.
    """
