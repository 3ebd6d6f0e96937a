"""A session of Spark Connect: results without rows, a server that has forgotten the session, and wrong warehouses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkValueError
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from rw_sql.errors import NOT_SUPPORTED, SPARK_ENDED, UNDEFINED_OBJECT, SqlError
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.session.connect_session import ConnectAttached, ConnectRuntime
from tests.runtime.remote.remote_sessions import SOURCE, Pair
from tests.support.stored_warehouse import FOLDER, SUFFIX, unpack
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLOSED = "[INVALID_HANDLE.SESSION_CLOSED] The handle 4711 is invalid. Session was closed."


class Session:
    """A session of a server without tables. ``requests`` is the number of further requests that the server answers."""

    def __init__(self) -> None:
        self.requests = 1000
        self.conf = SimpleNamespace(get=lambda _: self.request())
        self.catalog = SimpleNamespace(
            currentDatabase=lambda: "default", databaseExists=lambda _: self.request(), tableExists=lambda _: False
        )

    def request(self) -> None:
        self.requests -= 1
        if self.requests < 0:
            raise SparkConnectGrpcException(CLOSED)

    def sql(self, text: str) -> Any:
        """No views: no other statement of Spark is run."""
        assert text.startswith("SHOW VIEWS IN")
        return SimpleNamespace(collect=list)

    def createDataFrame(self, data: Any, schema: Any = None) -> tuple[list[str], int]:  # noqa: N802
        """The columns and the number of rows. Like PySpark, reads no schema from an Arrow table without rows."""
        if len(data) == 0:
            if schema is None:
                raise PySparkValueError(errorClass="CANNOT_INFER_EMPTY_SCHEMA", messageParameters={})
            return getattr(schema, "names", schema), 0
        assert isinstance(data, pa.Table)
        self.request()
        return data.column_names, data.num_rows


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    made.server.start()
    yield made
    made.server.stop()


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def attached(pair: Pair, session: Session) -> ConnectAttached:
    return ConnectAttached(session, ConnectRuntime(Warehouse.at(pair.written.uri)))  # type: ignore[arg-type]


def run(attached: ConnectAttached, text: str) -> Any:
    statement = attached.route(text)
    assert statement is not None
    return attached.run(text, statement)


def error(attached: ConnectAttached, text: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        run(attached, text)
    assert caught.value.kind is SPARK_ENDED
    assert CLOSED.removeprefix("[INVALID_HANDLE.SESSION_CLOSED] ") in caught.value.message
    assert f"rw_sql.attach(spark, '{attached.warehouse}')" in (caught.value.hint or "")
    return caught.value


@pytest.mark.parametrize("text", ["SHOW SOURCES", "SHOW JOBS", "SHOW SECRETS", "SHOW UNSAFE OPERATIONS"])
def test_a_result_without_rows_has_its_columns(attached: ConnectAttached, text: str) -> None:
    columns, rows = run(attached, text)
    assert rows == 0
    assert columns


def test_a_result_with_rows_and_one_without_columns(attached: ConnectAttached) -> None:
    columns, rows = run(attached, SOURCE)
    assert (columns[0], rows) == ("object", 1)
    columns, rows = run(attached, "SHOW SOURCES LIKE 'x%'")
    assert (columns[0], rows) == ("name", 0)


def test_a_statement_in_a_forgotten_session_changes_nothing(
    attached: ConnectAttached, session: Session, pair: Pair
) -> None:
    session.requests = 0
    assert error(attached, SOURCE).message.endswith("; nothing was changed")
    assert pair.context.metastore.snapshot().epoch == 0


def test_a_forgotten_session_is_noticed_before_the_statement_is_routed(
    attached: ConnectAttached, session: Session
) -> None:
    """The server decides whether the schema is a database of the user."""
    session.requests = 0
    assert error(attached, "DROP SCHEMA raw").message.endswith("; nothing was changed")


def test_a_statement_of_spark_in_a_forgotten_session_fails_with_the_same_error(
    attached: ConnectAttached, session: Session
) -> None:
    session.requests = 0
    with pytest.raises(SqlError) as caught:
        attached.read("SELECT 1", session.request)  # type: ignore[arg-type]
    assert caught.value.kind is SPARK_ENDED


def test_a_name_that_the_server_would_have_to_look_up_fails_with_the_same_error(
    attached: ConnectAttached, session: Session
) -> None:
    session.requests = 0
    with pytest.raises(SqlError) as caught:
        attached.for_spark("SELECT * FROM public.orders")
    assert caught.value.kind is SPARK_ENDED


def test_a_statement_that_could_not_run_aborts_the_block(attached: ConnectAttached, session: Session) -> None:
    run(attached, "ALTER SYSTEM SET enable_unsafe_ops = true")
    run(attached, "BEGIN UNSAFE")
    session.requests = 0
    error(attached, "SHOW SOURCES")
    assert attached.block_state == "aborted"


def test_a_session_that_ends_during_a_statement_says_that_the_statement_took_effect(
    attached: ConnectAttached, session: Session, pair: Pair
) -> None:
    session.requests = 1
    assert error(attached, SOURCE).message.endswith("; the statement took effect")
    assert pair.context.metastore.snapshot().find("source", "s") is not None


def test_a_path_without_a_warehouse_is_refused_and_stays_empty(tmp_path: Path) -> None:
    with pytest.raises(SqlError, match=f"there is no warehouse at {tmp_path}/none") as caught:
        ConnectRuntime(Warehouse.at(str(tmp_path / "none")))
    assert caught.value.kind is UNDEFINED_OBJECT
    assert "the path or URI at which the process that runs the jobs has the warehouse" in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_a_warehouse_of_an_older_format_is_not_migrated_by_a_client(tmp_path: Path) -> None:
    warehouse = tmp_path / "older"
    unpack(FOLDER / f"0007{SUFFIX}", warehouse)
    before = {path for path in warehouse.rglob("*") if path.is_file()}
    with pytest.raises(SqlError, match="reading does not migrate it") as caught:
        ConnectRuntime(Warehouse.at(str(warehouse)))
    assert caught.value.kind is NOT_SUPPORTED
    assert {path for path in warehouse.rglob("*") if path.is_file()} == before
