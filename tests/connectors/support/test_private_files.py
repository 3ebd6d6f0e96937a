"""Files of secret values: one per value, readable by this user only, also after /tmp was cleaned."""

from __future__ import annotations

import shutil

from rw_sql.connectors.support.private_files import private_file


def test_a_deleted_folder_is_made_again() -> None:
    file = private_file("hunter2")
    assert private_file("hunter2") == file
    shutil.rmtree(file.parent)
    again = private_file("hunter2")
    assert again == file
    assert again.read_text(encoding="utf-8") == "hunter2"
    assert (again.stat().st_mode & 0o777, again.parent.stat().st_mode & 0o777) == (0o600, 0o700)
