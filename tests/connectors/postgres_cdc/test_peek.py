"""What the slot of a paused source holds: the place of a time, the next transaction, and how many there are."""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.postgres_cdc.source import PostgresCdcConnector
from rw_sql.errors import OFFSET_OUT_OF_RANGE
from tests.support.postgres_changes import Replica, cdc_options
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresInfo

pytestmark = pytest.mark.postgres
KIND = PostgresCdcConnector()


@pytest.fixture
def replica(postgres: PostgresInfo) -> Iterator[Replica]:
    schema = f"peek_{uuid.uuid4().hex[:8]}"
    for statement in (
        f"CREATE SCHEMA {schema}",
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, word TEXT)",
        f"CREATE TABLE {schema}.other (id INT PRIMARY KEY)",
    ):
        postgres.run(statement)
    made = Replica(cdc_options(postgres), [f"{schema}.t"])
    made.open()
    while not made.progress[f"{schema}.t"].is_done:
        made.step(wait=0.2)
    made.close()
    yield made
    made.drop()
    postgres.run(f"DROP SCHEMA {schema} CASCADE")


def now(postgres: PostgresInfo) -> tuple[int, int]:
    """The server's clock in milliseconds, and the end of its log."""
    ((at,),) = postgres.run("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 1")
    time.sleep(0.003)  # The clock that is tested is the server's: times of one millisecond cannot be told apart.
    return at, KIND.look(cdc_options(postgres)).splits["postgres"].end


def test_transactions_are_counted_and_found_by_time(replica: Replica, postgres: PostgresInfo) -> None:
    (table,) = replica.names
    options, start = replica.options, replica.state.offset
    other = table.replace(".t", ".other")
    postgres.run(f"INSERT INTO {table} SELECT g FROM generate_series(1, 10) g")
    between, middle = now(postgres)
    postgres.run(f"UPDATE {table} SET word = 'x' WHERE id < 4")
    postgres.run(f"INSERT INTO {other} VALUES (1)")
    postgres.run(f"DELETE FROM {table} WHERE id = 1")
    after, end = now(postgres)

    whole = KIND.count_changes(options, start, end, replica.names)
    assert whole is not None
    assert (whole.transactions, whole.changes) == (3, 14)
    rest = KIND.count_changes(options, middle, end, replica.names)
    assert rest is not None
    assert (rest.transactions, rest.changes) == (2, 4)
    first = KIND.count_changes(options, start, end, replica.names, only_first=True)
    assert first is not None
    assert (first.transactions, first.changes) == (1, 10)
    assert first.first_end is not None
    assert start < first.first_end <= middle
    none = KIND.count_changes(options, end, end, replica.names)
    assert none is not None
    assert (none.transactions, none.changes, none.first_end) == (0, 0, None)

    # The position before the first transaction at that time; the server's present is its end.
    assert KIND.offsets_at(options, between, ["postgres"]) == {"postgres": first.first_end}
    assert KIND.offsets_at(options, after + 3_600_000, ["postgres"])["postgres"] >= end
    with pytest.raises(CaptureError, match="no longer has the changes since") as refused:
        KIND.offsets_at(options, between - 3_600_000, ["postgres"])
    assert refused.value.kind is OFFSET_OUT_OF_RANGE
    assert "FORGET_OFFSETS" in (refused.value.hint or "")

    # The next transaction's time is how far the source is behind.
    behind = KIND.record_times(options, {"postgres": middle})["postgres"]
    assert between <= behind <= after
    assert KIND.record_times(options, {"postgres": end}) == {}


def test_nothing_is_taken_and_a_slot_that_is_read_is_left_alone(replica: Replica, postgres: PostgresInfo) -> None:
    (table,) = replica.names
    start = replica.state.offset
    postgres.run(f"INSERT INTO {table} VALUES (1)")
    end = KIND.look(replica.options).splits["postgres"].end
    assert KIND.count_changes(replica.options, start, end, replica.names) is not None
    assert replica.confirmed() <= start
    replica.open()
    assert KIND.count_changes(replica.options, start, end, replica.names) is None
    while replica.state.offset < end:
        replica.step(wait=0.2)
    assert replica.rows[table].keys() == {'["1"]'}


def test_changes_before_the_beginning_of_the_slot_are_not_counted_as_none(
    replica: Replica, postgres: PostgresInfo
) -> None:
    (table,) = replica.names
    start = replica.state.offset
    postgres.run(f"INSERT INTO {table} VALUES (1)")
    end = KIND.look(replica.options).splits["postgres"].end
    while replica.state.offset < end:
        replica.step(wait=0.2)
    wait_until(lambda: replica.confirmed() >= end, "the slot to advance")
    replica.close()
    assert KIND.count_changes(replica.options, start, end, replica.names) is None
    rest = KIND.count_changes(replica.options, replica.state.offset, replica.state.offset + 1, replica.names)
    assert rest is not None
    assert rest.transactions == 0


def test_a_reader_that_is_about_to_leave_the_slot_is_waited_for(replica: Replica, postgres: PostgresInfo) -> None:
    (table,) = replica.names
    start = replica.state.offset
    postgres.run(f"INSERT INTO {table} VALUES (1)")
    end = KIND.look(replica.options).splits["postgres"].end
    replica.open()
    leaving = threading.Timer(0.3, replica.close)
    leaving.start()
    counted = KIND.count_changes(replica.options, start, end, replica.names)
    leaving.join()
    assert counted is not None
    assert counted.transactions == 1
