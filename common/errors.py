"""Ways to end that are not faults of the program."""

from common.text import one_line


class UserError(Exception):
    """A wrong flag, file or value: the user can put this right.

    Its message names what is wrong and says what would be right; the command
    line prints it without a traceback and exits with 1.

    Args:
      message: string, which is shown as one line of less than 1,000
        characters, whatever names of files and values are in it.
      *details: strings, each shown as a line of its own after it.
    """

    def __str__(self):
        return "\n".join(one_line(str(line)) for line in self.args)

    def of(self, what):
        """The same error, which says in its first line what it is of."""
        message, *details = self.args
        return UserError(f"{what}: {message}", *details)


class Interrupted(BaseException):
    """A training was asked to stop by a signal.

    Like KeyboardInterrupt it is no Exception, so that nothing on the way
    takes it for a failure of its own.

    Args:
      message: string, what was saved where.
      signal_number: int.
    """

    def __init__(self, message, signal_number):
        super().__init__(message)
        self.signal_number = signal_number


class InterruptedAtOnce(Interrupted):
    """A second signal came: the step was not finished."""
