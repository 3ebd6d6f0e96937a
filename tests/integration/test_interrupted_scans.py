"""Ctrl-C while ``SELECT … FROM source`` is planned leaves nothing behind in the session, and right after a statement,
the message says that the statement is complete."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.classic.dataframe import DataFrame

from rw_sql.runtime.spark.interrupts import StatementInterrupted
from rw_sql.runtime.spark.jvm import java_class, java_session
from rw_sql.runtime.sql import source_scan
from rw_sql.runtime.sql.source_scan import SourceScan

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.usefixtures("interrupted_as_by_default")]

COUNT = "SELECT count(*) AS n FROM s"


def interrupt_within(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Sends Ctrl-C in place of a call, outside of any call to the JVM."""

    def interrupt(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(owner, name, interrupt)


def interrupt_after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Raises KeyboardInterrupt after a call has succeeded, as for a Ctrl-C during that call to the JVM."""
    call: Callable[..., Any] = getattr(owner, name)

    def interrupted(*given: Any, **named: Any) -> None:
        call(*given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, interrupted)


@pytest.mark.parametrize(
    ("interrupt", "owner", "name"),
    [
        (interrupt_within, source_scan, "_needed"),
        (interrupt_within, SourceScan, "_rows"),
        (interrupt_after, DataFrame, "createOrReplaceTempView"),
    ],
)
def test_the_next_query_reads_the_whole_source(
    session: AttachedSession,
    monkeypatch: pytest.MonkeyPatch,
    interrupt: Callable[[pytest.MonkeyPatch, Any, str], None],
    owner: Any,
    name: str,
) -> None:
    session.sql("CREATE SOURCE s (id BIGINT) WITH (connector = 'datagen', datagen.rows.total = '50')")
    everything = session.sql(COUNT)[0].n
    with monkeypatch.context() as patched:
        interrupt(patched, owner, name)
        with pytest.raises(KeyboardInterrupt):
            session.sql(f"{COUNT} WHERE id < 3")
    assert not session.spark.catalog.tableExists("s")
    active = java_class(session.spark, "org.apache.spark.sql.classic.SparkSession").getActiveSession().get()
    assert active.equals(java_session(session.spark))
    assert session.sql(COUNT)[0].n >= everything


def test_a_statement_whose_result_is_lost_is_said_to_be_complete(
    session: AttachedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql("CREATE SOURCE s (id BIGINT) WITH (connector = 'datagen', datagen.rows.total = '50')")
    before = session.epoch()
    with monkeypatch.context() as patched:
        interrupt_within(patched, session.attached, "_frame")
        with pytest.raises(KeyboardInterrupt) as caught:
            session.sql("PAUSE SOURCE s")
    assert isinstance(caught.value, StatementInterrupted)
    assert str(caught.value) == "the statement itself is complete, but its result is not shown"
    assert session.epoch() == before + 1
