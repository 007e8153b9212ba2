"""Ways to end that are not faults of the program."""


class UserError(Exception):
    """A wrong flag, file or value: the user can put this right.

    Its message names what is wrong and says what would be right; the command
    line prints it without a traceback and exits with 1.
    """


class Interrupted(Exception):  # noqa: N818 - not an error
    """A training was asked to stop by a signal, and has saved its state.

    Args:
      message: string, what was saved where.
      signal_number: int.
    """

    def __init__(self, message, signal_number):
        super().__init__(message)
        self.signal_number = signal_number
