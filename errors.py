"""The error that means: the user can put this right."""


class UserError(Exception):
    """A wrong flag, file or value.

    Its message names what is wrong and says what would be right; the command
    line prints it without a traceback and exits with 1.
    """
