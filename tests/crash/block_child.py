"""A session without jobs that runs one block, and is killed inside the block.

Run as ``python -m tests.crash.block_child <warehouse>`` with the fault point in the environment. The process needs no
Spark, because the readers run in the owner's process, and no result is shown.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

from rw_sql.metastore import Metastore
from rw_sql.runtime.control.executor import Executor
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import new_owner_name
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax import parse_statement

if TYPE_CHECKING:
    from rw_sql.runtime.spark.sessions import SparkSessions

BLOCK = (
    "BEGIN UNSAFE",
    "PAUSE SOURCE s",
    "ALTER SOURCE s UNSAFE SET (group.id.prefix = 'moved')",
    "INJECT SOURCE OFFSETS s TO SHIFT -5",
    "RESUME SOURCE s",
    "COMMIT",
)


class NoSpark:
    """A process without Spark, so that no check of Spark fails."""

    def require_alive(self, done: str | None = None) -> None:
        """Does nothing: there is no Spark that could have ended."""


def main() -> None:
    """Runs the block. If a fault point is armed, the process is killed at this point."""
    warehouse = Warehouse.at(sys.argv[1])
    metastore = Metastore.open(warehouse.uri)
    metastore.faults = fault
    sessions = cast("SparkSessions", NoSpark())
    context = Context(warehouse=warehouse, metastore=metastore, sessions=sessions, owner=new_owner_name(warehouse))
    session = SessionState(ask=lambda _: True)
    for text in BLOCK:
        Executor(context, None).run(parse_statement(text), session)
    print("done", flush=True)


if __name__ == "__main__":
    main()
