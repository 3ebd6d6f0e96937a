"""Tables of a captured database whose small batches are written by a thread, and large ones by a streaming query."""

from __future__ import annotations

import base64
import os
import threading
from collections import Counter
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql.runtime.delta.young_table import YoungTable
from rw_sql.runtime.jobs import inputs
from rw_sql.runtime.positions import planned_rows
from rw_sql.runtime.positions.checkpoint_batches import CheckpointBatches
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.secrets import KEY_VARIABLE
from rw_sql.runtime.views import row_batches
from rw_sql.runtime.views.job import View
from tests.integration.attached import AttachedSession, has_thread, restarted, wait_until
from tests.integration.captured_database import Database
from tests.support.ageing import PAUSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.runtime.jobs.context import Context
    from tests.support.postgres import PostgresInfo

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

COLUMNS = "id, word, amount, CAST(at AS DATE) AS day, words, big"


@pytest.fixture
def database(session: AttachedSession, postgres: PostgresInfo, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(os.urandom(32)).decode())
    made = Database(session, postgres)
    made.run(
        "CREATE TABLE {s}.a (id INT PRIMARY KEY, word TEXT, amount NUMERIC(10, 2), at TIMESTAMPTZ, words TEXT[], "
        "big TEXT)",
        "CREATE TABLE {s}.b (id INT PRIMARY KEY, word TEXT)",
    )
    yield made
    made.session.detach()
    made.drop()


class Writer:
    """Makes random changes to the table ``a``."""

    def __init__(self, database: Database, seed: int) -> None:
        self.database, self.random = database, Random(seed)
        self.made = 0

    def change(self, count: int) -> None:
        """Makes some changes in one transaction."""
        statements = [self._statement() for _ in range(count)]
        self.database.run(";".join(["BEGIN", *statements, "COMMIT"]))

    def _statement(self) -> str:
        random, some = self.random, self.random.randrange(max(1, self.made))
        match random.choice("iiiuuumds"):
            case "i":
                self.made += 1
                word = random.choice(["NULL", "'ü \"x\"'", f"'w{self.made}'"])
                return (
                    f"INSERT INTO {{s}}.a VALUES ({self.made}, {word}, {self.made}.25, "
                    f"'2026-01-01 00:00:00+00'::timestamptz + interval '{self.made} hours', "
                    f"ARRAY['x', NULL, 'y{some}'], NULL)"
                )
            case "u":
                return (
                    f"UPDATE {{s}}.a SET word = 'u{random.randrange(100)}', amount = -amount WHERE id % 7 = {some % 7}"
                )
            case "m":
                self.made += 1
                return f"UPDATE {{s}}.a SET id = {self.made} WHERE id = {some}"
            case "d":
                return f"DELETE FROM {{s}}.a WHERE id = {some}"
            case _:
                return (
                    f"SAVEPOINT x; DELETE FROM {{s}}.a; ROLLBACK TO x; UPDATE {{s}}.a SET word = NULL WHERE id = {some}"
                )


def test_a_thread_writes_random_changes_of_every_kind(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    session, writer = database.session, Writer(database, seed=37)
    writer.change(30)
    database.create_source()
    session.run(f"CREATE TABLE a (*) FROM pg TABLE '{database.schema}.a'")
    database.wait_equal("a", COLUMNS)

    def has_begun() -> bool:
        """A thread takes a query's place after a batch."""
        writer.change(5)
        database.wait_equal("a", COLUMNS)
        return has_thread(session, "a")

    wait_until(has_begun, "a thread writes")
    monkeypatch.setattr(View, "_start_query", None)
    for size in (1, 2, 40, 1, 7, 150, 3):
        writer.change(size)
        database.wait_equal("a", COLUMNS)
    assert has_thread(session, "a")
    assert session.job("a").restarts == 0


def test_changes_of_other_tables_need_no_batch_each(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    session, planned, plan = database.session, Counter[str](), CheckpointBatches.plan

    def counting(batches: CheckpointBatches, end: int) -> int:
        planned[batches.checkpoint] += 1
        return plan(batches, end)

    monkeypatch.setattr(CheckpointBatches, "plan", counting)
    database.create_source()
    for name in ("a", "b"):
        session.run(f"CREATE TABLE {name} (*) FROM pg TABLE '{database.schema}.{name}'")
    ids = count(100)

    def have_threads() -> bool:
        """A thread takes a query's place after a batch."""
        id_ = next(ids)
        database.run(f"INSERT INTO {{s}}.b VALUES ({id_}, 'x')", f"INSERT INTO {{s}}.a VALUES ({id_}, 'y')")
        database.wait_equal("b")
        database.wait_equal("a", COLUMNS)
        return has_thread(session, "a") and has_thread(session, "b")

    wait_until(have_threads, "threads write both")
    planned.clear()
    monkeypatch.setattr(row_batches, "MOST_SECONDS", 600.0)
    for id_ in range(10, 20):
        database.run(f"INSERT INTO {{s}}.b VALUES ({id_}, 'x')")
        database.wait_equal("b")
    assert len(planned) == 1
    # By the counts in the commits, FLUSH knows that the table has nothing left to read.
    session.sql("FLUSH")
    assert len(planned) == 1
    monkeypatch.setattr(row_batches, "MOST_SECONDS", 0.0)
    wait_until(lambda: len(planned) == 2, "the table's checkpoint shows which commits were read")
    assert database.is_equal("a", COLUMNS)


@pytest.mark.long
def test_a_truncation_and_unchanged_values_are_left_to_a_query(database: Database) -> None:
    session, writer = database.session, Writer(database, seed=3)
    database.create_source()
    session.run(f"CREATE TABLE a (*) FROM pg TABLE '{database.schema}.a'")
    big = "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 500) g)"
    for number, statement in enumerate(
        (
            f"INSERT INTO {{s}}.a VALUES (90000, 'toast', 1, NULL, NULL, {big})",
            "UPDATE {s}.a SET word = 'changed' WHERE id = 90000",
            "UPDATE {s}.a SET id = 90001 WHERE id = 90000",
            "TRUNCATE {s}.a; INSERT INTO {s}.a VALUES (90000, 'again')",
        )
    ):
        for _ in range(number + 2):
            writer.change(4)
            database.wait_equal("a", COLUMNS)
        database.run(statement)
        database.wait_equal("a", COLUMNS)
    assert session.job("a").restarts == 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_histories_with_restarts_and_large_transactions(
    database: Database, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(planned_rows, "SMALL_ROWS", 60)
    session, writer, random = database.session, Writer(database, seed), Random(seed)
    writer.change(50)
    database.create_source()
    session.run(f"CREATE TABLE a (*) FROM pg TABLE '{database.schema}.a'")
    for _ in range(12):
        writer.change(random.choice([1, 3, 10, 30, 100]))
        if random.random() < 0.5:
            database.wait_equal("a", COLUMNS)
        if random.random() < 0.25:
            database.session = session = restarted(session, random.choice(list(PAUSES.values())))
    database.wait_equal("a", COLUMNS)
    session.sql("FLUSH")
    assert database.is_equal("a", COLUMNS)


@pytest.mark.long
@pytest.mark.parametrize("is_reset", [False, True], ids=["changes", "snapshots"])
def test_a_table_whose_job_starts_late_reads_a_compacted_log_in_order(
    database: Database, monkeypatch: pytest.MonkeyPatch, is_reset: bool
) -> None:
    monkeypatch.setattr(inputs, "_BATCH_BYTES_PER_CORE", 1)
    monkeypatch.setattr(YoungTable, "of", staticmethod(lambda *_: None))
    session, writer, start, is_late = database.session, Writer(database, seed=5), View.start, threading.Event()
    session.allow_unsafe()

    def start_late(context: Context, spec: ViewSpec) -> View:
        if not is_late.is_set():
            raise StalledError("WAITING for changes")
        return start(context, spec)

    def log() -> Path:
        return next(Path(session.warehouse).glob("data/*/1/_rw_bucket=*")).parent

    def change(number: int) -> None:
        before = DeltaTable(log()).version()
        writer.change(number)
        wait_until(lambda: DeltaTable(log()).version() > before, "the source to read the changes")

    writer.change(50)
    database.create_source()
    monkeypatch.setattr(View, "start", staticmethod(start_late))
    session.run(f"CREATE TABLE a (*) FROM pg TABLE '{database.schema}.a'")
    wait_until(lambda: any(Path(session.warehouse).glob("data/*/1/_rw_bucket=*")), "the source to read the table")
    for number in (20, 20, 20, 600):
        change(number)
    # The rows of the first files get a later time than the rows of the last file.
    session.run("PAUSE SOURCE pg")
    size = max(file.stat().st_size for file in log().rglob("*.parquet"))
    assert DeltaTable(log()).optimize.compact(target_size=size)["numFilesRemoved"] >= 3
    if is_reset:
        session.run("RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)")
    session.run("RESUME SOURCE pg")
    change(20)
    is_late.set()
    wait_until(lambda: session.job("a").state == "RUNNING", "the table's job to start")
    database.wait_equal("a", COLUMNS)
    change(20)
    database.wait_equal("a", COLUMNS)
    assert session.job("a").state == "RUNNING"
