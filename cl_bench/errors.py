"""The two kinds of failure a user sees, each one line and an exit code."""


class InputError(Exception):
    """The input cannot be used: what was expected, what came, what to do. Exit code 2."""


class RunFailed(Exception):
    """A run stopped before its end; its record and log are kept. Exit code 1."""
