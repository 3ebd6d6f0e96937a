"""An owner without Spark, and sessions without a JVM that pass their statements to this owner."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import TAKEN
from rw_sql.runtime.control.executor import Executor
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.remote.remote_executor import RemoteExecutor
from rw_sql.runtime.remote.request_server import RequestServer
from rw_sql.runtime.spark.no_spark import NoSpark
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax import parse_statement
from rw_sql.syntax import statements as ast
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from rw_sql.plan.result.plan import Table
    from tests.support.warehouses import WrittenWarehouse

SOURCE = (
    "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '9', fields.id.kind = 'sequence') "
    "FORMAT PLAIN ENCODE JSON"
)


def context_of(uri: str, owner: str) -> Context:
    """The context, without Spark, of a session or owner with this name."""
    return Context(warehouse=Warehouse.at(uri), metastore=Metastore.open(uri), sessions=NoSpark(), owner=owner)


@dataclass
class Client:
    """One session."""

    uri: str

    def __post_init__(self) -> None:
        self.context = context_of(self.uri, "client")
        self.executor = RemoteExecutor(self.context)
        self.state = SessionState()

    def run(self, text: str) -> list[tuple[object, ...]]:
        return list(self.executor.run(text, parse_statement(text), self.state).rows)

    def error(self, text: str) -> SqlError:
        with pytest.raises(SqlError) as caught:
            self.run(text)
        return caught.value.located(text)


@dataclass
class Pair:
    """An owner that has applied every statement, and the warehouse."""

    written: WrittenWarehouse

    def __post_init__(self) -> None:
        lease = self.written.lease(applied=10**6)
        self.context = context_of(self.written.uri, lease.owner)
        self.context.owning.set()
        self.server = RequestServer(self.context, Executor(self.context, None).run)


def request_names(pair: Pair) -> list[str]:
    """The names of all stored requests."""
    rows = DeltaTable(f"{pair.written.uri}/rw_catalog/runtime_requests").to_pyarrow_table().to_pylist()
    return sorted({row["request"] for row in rows})


@dataclass
class SlowPair(Pair):
    """An owner that completes a SHOW SOURCES only after ``over`` is set."""

    over: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        super().__post_init__()
        run = Executor(self.context, None).run

        def slowly(statement: ast.Statement, state: SessionState) -> Table:
            if isinstance(statement, ast.ShowObjects) and statement.kind == "SOURCES":
                assert self.over.wait(LAST_RESORT_SECONDS)
            return run(statement, state)

        self.server = RequestServer(self.context, slowly)

    def taken(self) -> int:
        """The number of requests that the owner is running."""
        found = map(self.written.metastore.jobs.requests.find, request_names(self))
        return sum(request is not None and request.state == TAKEN for request in found)
