"""Checks that every executor shares a warehouse's folder on a local path with the driver.

If Spark's master is not local, an executor writes to the disks of its own host. If the warehouse's path is a different
folder on that host, the rows and the state that the executor writes are lost. Therefore each executor reads a file that
the driver wrote, and writes a file that the driver reads (see :mod:`rw_sql.runtime.spark.executors`).
"""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import first_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rw_sql.runtime.support.warehouse import Warehouse

UNSHARED = "UNSHARED"
"""The first word of the stall reason of a job that does not start because an executor does not share the warehouse's
folder, or cannot use the driver's private files."""

CHECK_VARIABLE = "RW_SQL_SHARED_FOLDER_CHECK"
"""If this environment variable is ``off``, the check is disabled. Tests use this variable to find out how a cluster
behaves without the check."""

MOST_NAMED = 3


def is_on_one_machine(master: str | None) -> bool:
    """True if the Spark master ``master`` runs all tasks in the driver's process. The result is also True for None,
    which means Spark's default master."""
    return master is None or master == "local" or master.startswith("local[")


def must_share(warehouse: Warehouse) -> bool:
    """True if executors must see the folder of this warehouse, and the check is enabled."""
    return warehouse.is_local and os.environ.get(CHECK_VARIABLE) != "off"


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A folder in the warehouse. In this folder, the driver has written a file with ``token``. ``path`` is empty if
    executors need not see the warehouse."""

    warehouse: Warehouse
    path: str
    token: str

    @staticmethod
    @contextmanager
    def made(warehouse: Warehouse) -> Iterator[SharedFolder]:
        """A context manager that provides the folder. The folder exists inside the ``with`` block."""
        path, token = f"{warehouse.uri.removeprefix('file://')}/_rw_shared-{uuid.uuid4().hex}", uuid.uuid4().hex
        if not must_share(warehouse):
            yield SharedFolder(warehouse, "", token)
            return
        try:
            warehouse.write_text(f"{path}/driver", token)
            yield SharedFolder(warehouse, path, token)
        finally:
            warehouse.remove(path)

    def is_seen(self, name: str) -> bool:
        """True if the driver sees the file that an executor wrote."""
        if not self.path:
            return True
        try:
            return self.warehouse.read_text(f"{self.path}/{name}") == self.token
        except OSError:
            return False


def unshared(warehouse: Warehouse, executors: Sequence[str]) -> str:
    """The stall reason if executors do not share the warehouse's folder. ``executors`` contains a description of each
    executor that does not share the folder."""
    return (
        f"{UNSHARED} {warehouse.uri}: not every executor sees this folder as the driver on host "
        f"{socket.gethostname()} does: {first_names(executors, MOST_NAMED)}. "
        "Mount the same folder at this path on every host, or put the warehouse on a store that all hosts reach (s3://…)"
    )
