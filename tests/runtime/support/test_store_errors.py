"""The hints for a warehouse that cannot be written, by the error of the operating system."""

from __future__ import annotations

import errno
import getpass
import os
from typing import TYPE_CHECKING

import pytest
from deltalake.exceptions import DeltaError

from rw_sql.runtime.support.store_errors import store_error

if TYPE_CHECKING:
    from pathlib import Path

RUST = "Failed to parse parquet: External: Generic LocalFileSystem error: Unable to open file /w/x#1: {} (os error {})"


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EROFS, "the file system of the warehouse is read-only"),
        (errno.ENOSPC, "the file system of the warehouse is full"),
        (errno.EACCES, f"user {getpass.getuser()} may not write in the warehouse's folder"),
        (errno.ECONNREFUSED, "try again once the store answers"),
    ],
)
def test_an_error_of_the_file_system_names_what_to_do(number: int, hint: str) -> None:
    for error in (
        OSError(number, os.strerror(number), "/w/x"),
        DeltaError(RUST.format(os.strerror(number), number)),
        OSError(RUST.format(os.strerror(number), number)),
    ):
        found = store_error(error)
        assert found.code == "RW418"
        assert (found.hint or "").startswith(hint)


def test_a_number_in_a_path_is_no_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as caught:
        (tmp_path / "30").read_text()
    assert (store_error(caught.value).hint or "").startswith("try again once the store answers")
