"""A session goes from one warehouse to another; if that fails or is interrupted, it stays, and its jobs run on."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

import rw_sql
from rw_sql.metastore import Metastore
from rw_sql.runtime.spark.interrupts import StatementInterrupted
from rw_sql.runtime.sql.catalog_views import SparkViews
from rw_sql.session.attach import attached_to
from rw_sql.session.attached import WarehouseRuntime
from rw_sql.session.scripts import run_statements
from tests.integration.attached import AttachedSession
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SOURCE = (
    "CREATE SOURCE s (id BIGINT) WITH (connector = 'datagen', datagen.rows.total = '50', fields.id.kind = 'sequence')"
)


class Failure(BaseException):
    """A failure in a step of attaching; like Ctrl-C, it is no Exception."""


def failing(after: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A function that fails after it has called another one."""

    def fail(*arguments: Any, **named: Any) -> Any:
        if after is not None:
            after(*arguments, **named)
        raise Failure

    return fail


def break_opening(broken: pytest.MonkeyPatch) -> None:
    broken.setattr(Metastore, "open", failing())


def break_views(broken: pytest.MonkeyPatch) -> None:
    refresh = SparkViews.refresh

    def refresh_once(views: SparkViews) -> None:
        broken.setattr(SparkViews, "refresh", refresh)
        refresh(views)
        raise Failure

    broken.setattr(SparkViews, "refresh", refresh_once)


def break_jobs(broken: pytest.MonkeyPatch) -> None:
    broken.setattr(WarehouseRuntime, "run_jobs", failing(WarehouseRuntime.run_jobs))


def break_metrics(broken: pytest.MonkeyPatch) -> None:
    broken.setenv("RW_SQL_METRICS", "no port")


@pytest.fixture
def other(tmp_path: Path) -> WrittenWarehouse:
    """A warehouse with a view that has the name of a view in the session's own warehouse."""
    written = WrittenWarehouse(tmp_path / "other")
    written.commit(written.view(4, "v"))
    written.batch(written.fence("mv-4", 1), "mv-4", 1, 0, 5)
    return written


@pytest.mark.usefixtures("made_code")
@pytest.mark.parametrize("break_step", [break_opening, break_views, break_jobs, break_metrics])
def test_a_session_stays_if_it_cannot_attach_to_another_warehouse(
    session: AttachedSession,
    other: WrittenWarehouse,
    monkeypatch: pytest.MonkeyPatch,
    break_step: Callable[[pytest.MonkeyPatch], None],
) -> None:
    session.let_no_job_rest()
    session.run(
        SOURCE,
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
        "CREATE SCHEMA mart",
        "CREATE MATERIALIZED VIEW mart.sums AS SELECT count(*) AS n FROM s",
        "FLUSH",
        "USE mart",
    )
    before = {name: (job.state, job.run, job.restarts) for name, job in session.jobs().items()}
    with monkeypatch.context() as broken:
        break_step(broken)
        with pytest.raises((Failure, rw_sql.SqlError)):
            rw_sql.attach(session.spark, other.uri)
    assert attached_to(session.spark) is session.attached
    assert session.attached.is_owner
    assert {name: (job.state, job.run, job.restarts) for name, job in session.jobs().items()} == before
    assert session.rows_of("sums") == [(50,)]
    assert session.spark.catalog.currentDatabase() == "mart"
    assert len(session.rows_of("default.v")) == 50
    shown = {table.name: table.isTemporary for table in session.spark.catalog.listTables("default")}
    assert shown["v"] is False
    lease = other.metastore.jobs.lease()
    assert lease is None or lease.is_released


@pytest.mark.usefixtures("made_code")
def test_a_session_goes_to_another_warehouse_with_the_same_names(
    session: AttachedSession, other: WrittenWarehouse
) -> None:
    session.run(SOURCE, "CREATE MATERIALIZED VIEW v AS SELECT id FROM s", "FLUSH")
    own = Metastore.open(session.warehouse)
    session.attached = rw_sql.attach(session.spark, other.uri, run_jobs=False)
    assert session.attached.warehouse == other.uri
    lease = own.jobs.lease()
    assert lease is not None
    assert lease.is_released
    assert len(session.rows_of("v")) == 5
    shown = {table.name: table.isTemporary for table in session.spark.catalog.listTables("default")}
    assert shown["v"] is False
    session.attached = rw_sql.attach(session.spark, session.warehouse)
    assert len(session.flushed_rows_of("v")) == 50


def test_ctrl_c_after_the_change_says_where_the_session_is(
    session: AttachedSession, other: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = WarehouseRuntime.stop

    def stop_interrupted(runtime: WarehouseRuntime) -> None:
        signal.raise_signal(signal.SIGINT)
        stop(runtime)

    # A shell script's background jobs, such as a run of these tests, ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(WarehouseRuntime, "stop", stop_interrupted)
            with pytest.raises(StatementInterrupted, match=f"attached to {other.uri}"):
                rw_sql.attach(session.spark, other.uri, run_jobs=False)
    finally:
        signal.signal(signal.SIGINT, before)
    attached = attached_to(session.spark)
    assert attached is not None
    assert attached.warehouse == other.uri
    lease = Metastore.open(session.warehouse).jobs.lease()
    assert lease is not None
    assert lease.is_released


def test_the_port_of_the_metrics_goes_with_the_session(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("RW_SQL_METRICS", str(port))

    def epoch() -> bytes:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines: list[bytes] = answer.read().splitlines()
        return next(line for line in lines if line.startswith(b"rw_sql_catalog_epoch "))

    try:
        rw_sql.attach(spark, str(tmp_path / "one"), run_jobs=False)
        spark.sql("CREATE SCHEMA mart")
        first = epoch()
        with monkeypatch.context() as broken:
            break_views(broken)
            with pytest.raises(Failure):
                rw_sql.attach(spark, str(tmp_path / "two"), run_jobs=False)
        assert epoch() == first
        rw_sql.attach(spark, str(tmp_path / "two"), run_jobs=False)
        assert epoch() != first
    finally:
        rw_sql.detach(spark)


def test_a_script_runs_in_no_warehouse_that_nobody_has_named(spark: SparkSession) -> None:
    with pytest.raises(rw_sql.SqlError, match="not attached to a warehouse"):
        run_statements(spark, "SHOW SOURCES", answer=None, on_result=lambda *_: None)
    assert attached_to(spark) is None
