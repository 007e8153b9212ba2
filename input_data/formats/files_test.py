import os

import pytest

from common.errors import UserError
from input_data.formats.files import require_folder


@pytest.mark.parametrize("call", ["scandir", "stat"])
def test_folder_that_may_not_be_read_is_named(call, tmp_path, monkeypatch):
    # Where names may be listed but files not opened, the second fails.
    refused = {"scandir": str(tmp_path), "stat": f"{tmp_path}/."}[call]
    allowed = getattr(os, call)

    def refuse(path, *arguments, **keywords):
        if str(path) == refused:
            raise PermissionError(13, "Permission denied")
        return allowed(path, *arguments, **keywords)

    monkeypatch.setattr(os, call, refuse)
    message = f"{tmp_path} cannot be read: Permission denied"
    with pytest.raises(UserError, match=message):
        require_folder(tmp_path)
