"""A warehouse without Spark.

Without Spark, statements can read the catalog, the tables of the jobs and the upstreams, and can change the catalog.
The process that runs the jobs applies a catalog change later.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rw_sql.metastore import Metastore
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import new_owner_name
from rw_sql.runtime.spark.no_spark import NoSpark
from rw_sql.runtime.support.store_errors import store_errors
from rw_sql.session.location import require_exists, warehouse_at
from rw_sql.session.results import local_time, local_zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rw_sql.plan.result.confirmation import Question
    from rw_sql.plan.result.plan import Table
    from rw_sql.syntax.statements import Statement


@contextmanager
def sparkless(location: str | None, *, only_reads: bool = False) -> Iterator[Context]:
    """A context manager that opens an existing warehouse. If ``only_reads`` is true, nothing is written to the
    warehouse.

    Raises SqlError UNDEFINED_OBJECT if the warehouse does not exist, and STORE_UNREACHABLE if the warehouse's store
    fails, either at once or later inside the ``with`` block.
    """
    warehouse = warehouse_at(location)
    sessions = NoSpark()
    with store_errors(sessions.require_alive, done=""):
        require_exists(warehouse, "name one with --warehouse PATH or RW_SQL_WAREHOUSE; rw-sql shell creates one")
        metastore = Metastore.open(warehouse.uri, only_reads=only_reads)
        try:
            yield Context(warehouse=warehouse, metastore=metastore, sessions=sessions, owner=new_owner_name(warehouse))
        finally:
            if not only_reads:
                metastore.flush(with_upkeep=True)


def answer(context: Context, statement: Statement, *, ask: Callable[[Question], bool] | None = None) -> Table:
    """Runs a statement and returns its rows.

    ``ask`` is a function that confirms unsafe statements. Raises SqlError NO_SESSION if the statement needs Spark.
    """
    from rw_sql.runtime.control.executor import Executor
    from rw_sql.runtime.control.session_state import SessionState

    return Executor(context, None).run(statement, SessionState(ask=ask))


def records_of(table: Table) -> list[dict[str, object]]:
    """The rows as dictionaries by column name. Times are in the time zone that a Spark session started by this process
    would have."""
    names, zone = [name for name, _ in table.columns], local_zone()
    return [dict(zip(names, (local_time(value, zone) for value in row), strict=True)) for row in table.rows]
