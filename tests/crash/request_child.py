"""An owner without Spark that answers the statements of other sessions, or a process that takes over from an owner that
hangs.

``python -m tests.crash.request_child WAREHOUSE serve|take-over`` prints a line when it is ready. ``RW_SQL_FAULT`` names
the fault point at which the process is killed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rw_sql.metastore import Metastore
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.runtime.control.executor import Executor
from rw_sql.runtime.control.takeover import take_over
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.remote.request_server import RequestServer
from rw_sql.runtime.spark.no_spark import NoSpark
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.waits import LAST_RESORT_SECONDS
from tests.support.warehouses import WrittenWarehouse


def context_of(uri: str, owner: str) -> Context:
    """A process without Spark that is attached to a warehouse."""
    return Context(warehouse=Warehouse.at(uri), metastore=Metastore.open(uri), sessions=NoSpark(), owner=owner)


def serving(written: WrittenWarehouse) -> RequestServer:
    """Makes this process the owner, and returns the server that answers requests in this process."""
    context = context_of(written.uri, written.lease(applied=10**6).owner)
    context.owning.set()
    return RequestServer(context, Executor(context, None).run)


def _main(folder: str, what: str) -> None:
    if what == "serve":
        serving(WrittenWarehouse(Path(folder))).start()
        print("ready", flush=True)
        time.sleep(LAST_RESORT_SECONDS)  # until it dies
        sys.exit("the fault point was not reached")
    print("ready", flush=True)
    print(take_over(context_of(folder, "another"), DEFAULT_GROUP, is_forced=True).said)


if __name__ == "__main__":
    _main(*sys.argv[1:])
