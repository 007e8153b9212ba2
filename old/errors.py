"""Old names, until every part uses `common`."""

from common.errors import Interrupted
from common.errors import UserError as _UserError

UserError = _UserError


class InterruptedAtOnce(Interrupted):
    """A second signal came: the step was not finished."""
