"""Random histories of a PostgreSQL database with operations in between. A reader's tables equal the tables of the
database, and the predictions of previews are correct."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from proof.harness import Facts, Proof
from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.postgres_cdc import setup
from rw_sql.connectors.postgres_cdc.reader import PostgresReader
from rw_sql.connectors.postgres_cdc.source import PostgresCdcConnector
from tests.support.postgres import running_server
from tests.support.postgres_changes import TIMEOUT, Replica, Writers, cdc_options, create_tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.postgres import PostgresServer

_KIND = PostgresCdcConnector()
_STEPS, _OPERATIONS = 60, 6
_ACTS = 30
"""After ``_STEPS`` times this number of statements, the writers become slower."""

_SLOW_SECONDS = 0.02


class History:
    """One history: writers, a reader with copies of the tables, and operations on the reader's slot and position."""

    def __init__(self, server: PostgresServer, seed: int) -> None:
        self.server, self.chance = server, random.Random(seed)
        self.names = create_tables(server.info, f"h_{uuid.uuid4().hex[:8]}")
        self.writers = Writers(server.info, self.names, random.Random(seed + 1_000_000))
        self.replica = Replica(cdc_options(server.info), self.names, chunk_rows=self.chance.choice((2, 10, 40)))
        self.facts: Counter[str] = Counter()
        self.ended = threading.Event()

    def run(self) -> None:
        """Runs the reader's steps with random operations in between, and compares the tables at the end."""
        operations: list[Callable[[], None]] = [
            self.copy_slot, self.skip, self.drop_slot, self.advance_slot, self.add_column, self.read_again,
        ]  # fmt: skip
        due = set(self.chance.sample(range(_STEPS), _OPERATIONS))
        thread = threading.Thread(target=self.write, daemon=True)
        thread.start()
        try:
            for step in range(_STEPS):
                if step in due:
                    self.replica.close()
                    operation = self.chance.choice(operations)
                    operation()
                    self.facts[operation.__name__.replace("_", " ")] += 1
                self.mended(self.step)
            self.end(thread)
            self.mended(lambda: self.replica.catch_up(self.server.info))
            assert self.replica.differences() == {}, str(self.replica.differences())[:1000]
            assert self.replica.confirmed() <= self.replica.state.offset, "the slot is ahead of what is committed"
            self.facts["changes"] += len(self.replica.log)
        finally:
            self.end(thread)
            self.replica.drop()

    def mended(self, act: Callable[[], None]) -> None:
        """Runs ``act``. PostgreSQL may be unable to decode its own log, which is an internal error of the server and
        not of the reader. In this case, the method follows the error's hint: it creates the slot again and reads the
        tables again. It then runs ``act`` once more."""
        try:
            act()
        except CaptureError as error:
            # The hint of this error contains the statement that drops the slot.
            if "could not map filenode" not in error.message or "pg_drop_replication_slot" not in (error.hint or ""):
                raise
            self.facts["internal errors of the server"] += 1
            self.replica.close()
            self.drop_slot()
            act()

    def end(self, thread: threading.Thread) -> None:
        """Stops the writers."""
        self.ended.set()
        thread.join()
        self.writers.close()

    def write(self) -> None:
        """Runs statements until the writers are stopped. The writers must not stop earlier, because a new slot waits
        until they have ended their open transactions. After a while, the writers wait between statements, so that the
        reader gets enough CPU time on a slow machine."""
        done = 0
        while not self.ended.wait(0.0 if done < _ACTS * _STEPS else _SLOW_SECONDS):
            self.writers.act()
            done += 1

    def step(self) -> None:
        """Reads a batch, commits it, and sometimes acknowledges it. Sometimes, the reader ends after it has read the
        batch, without a commit."""
        what, replica = self.chance.random(), self.replica
        if what > 0.92 and replica.reader is not None:
            replica.reader.take(1000, 0.0)
            replica.close()
            return
        most, wait = self.chance.choice((1, 10, 1000)), self.chance.choice((0, 0.02))
        replica.step(most=most, wait=wait, acknowledges=what < 0.7)
        assert replica.confirmed() <= replica.state.offset, "the slot is ahead of what is committed"

    def copy_slot(self) -> None:
        """Moves the reader to a copy of its slot, as UNSAFE SET does. The copy has all changes after the reader's
        position, so no change may be lost or repeated."""
        before = self.replica.options["slot.name"]
        after = f"slot_{uuid.uuid4().hex[:8]}"
        self.server.run(f"SELECT pg_copy_logical_replication_slot('{before}', '{after}')")
        self.server.run(f"SELECT pg_drop_replication_slot('{before}')")
        self.replica.options["slot.name"] = after

    def skip(self) -> None:
        """Moves the position to the end, like INJECT, or after the next transaction, like SKIP. The predicted numbers
        of transactions and changes must equal the numbers that a second reader finds between the two positions."""
        replica, options = self.replica, self.replica.options
        (seen,) = _KIND.look(options).splits.values()
        only_first = self.chance.random() < 0.5
        start, end = replica.state.offset, seen.end
        predicted = _KIND.count_changes(options, start, end, replica.names, only_first=only_first, timeout=TIMEOUT)
        assert predicted is not None, "a slot that nobody reads can be counted"
        if only_first:
            if predicted.first_end is None:
                return
            end = predicted.first_end
        found = self.count(start, end)
        assert found == (predicted.transactions, predicted.changes), f"{found} were there, {predicted} predicted"
        self.facts["transactions skipped"] += predicted.transactions
        replica.state = replace(replica.state, offset=max(start, end))
        self.read_all_again()

    def count(self, start: int, end: int) -> tuple[int, int]:
        """The numbers of transactions and changes between two positions, which a reader of a copy of the slot finds."""
        options = {**self.replica.options, "slot.name": f"probe_{uuid.uuid4().hex[:8]}"}
        self.server.run(
            f"SELECT pg_copy_logical_replication_slot('{self.replica.options['slot.name']}', '{options['slot.name']}')"
        )
        reader = PostgresReader(options)
        offsets: list[int] = []
        try:
            done = {name: replace(each, is_done=True) for name, each in self.replica.progress.items()}
            reader.open(replace(self.replica.state, offset=start), done)
            position = start
            while position < end:
                taken = reader.take(1000, 0.1)
                position = taken.position
                offsets += taken.records["_rw_offset"].to_pylist()
        finally:
            reader.close()
            self.server.run(
                "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots "
                f"WHERE slot_name = '{options['slot.name']}' AND active_pid IS NOT NULL"
            )
            self.server.run(f"SELECT pg_drop_replication_slot('{options['slot.name']}')")
        within = [offset for offset in offsets if offset <= end]
        return len(set(within)), len(within)

    def drop_slot(self) -> None:
        """Drops the slot, as another user could. The reader must refuse to start. Afterwards, creates the slot again
        and reads all tables again."""
        self.server.run(f"SELECT pg_drop_replication_slot('{self.replica.options['slot.name']}')")
        self.refused("does not exist")
        self.replica.state = setup.prepare(self.replica.options, self.names, TIMEOUT).state
        self.read_all_again()

    def advance_slot(self) -> None:
        """Advances the slot, as another user could. The reader must refuse to start, because it would not get the
        changes between its own position and the slot's position. Afterwards, reads all tables again."""
        name = self.replica.options["slot.name"]
        self.server.run(f"SELECT pg_replication_slot_advance('{name}', pg_current_wal_lsn())")
        confirmed = self.replica.confirmed()
        if confirmed <= self.replica.state.offset:
            return
        self.refused("begins at")
        self.replica.state = replace(self.replica.state, offset=confirmed)
        self.read_all_again()

    def refused(self, why: str) -> None:
        """Raises AssertionError unless the reader refuses to start, with an error that contains ``why``."""
        found: CaptureError | None = None
        try:
            self.replica.open()
        except CaptureError as error:
            found = error
        self.replica.close()
        assert found is not None, f"a reader started although its slot {why}"
        assert why in found.message, found.message
        assert found.hint, "a refusal says what to type"

    def add_column(self) -> None:
        """Adds a column with a default, and reads the table again, as ALTER TABLE … ADD COLUMN does."""
        name = self.chance.choice([name for name in self.names if not name.endswith(".parted")])
        self.server.run(f"ALTER TABLE {name} ADD COLUMN c_{uuid.uuid4().hex[:6]} INT DEFAULT 7")
        self.replica.read_anew(name)

    def read_again(self) -> None:
        """Reads one table again, as FORGET_OFFSETS does with all tables."""
        self.replica.read_anew(self.chance.choice(self.names))

    def read_all_again(self) -> None:
        """Reads all tables again, as FORGET_OFFSETS does."""
        for name in self.names:
            self.replica.read_anew(name)


def _check(seed: int, folder: Path) -> Facts:
    del folder
    with running_server(wal_level="logical", max_wal_senders="20", max_replication_slots="20") as server:
        history = History(server, seed)
        history.run()
        return dict(history.facts)


PROOF = Proof(
    name="postgres-histories",
    claim=(
        "The tables of a source equal the PostgreSQL database after any history, and moves have the predicted effects."
    ),
    method=(
        "Each seed runs concurrent writers (inserts, updates, key changes, deletes, TOAST, truncates, aborts, "
        "savepoints) and a reader on four tables: one has a key of one column, one a composite key, one has REPLICA "
        "IDENTITY FULL, and one is partitioned. After a batch, the reader sometimes ends without a commit. In "
        f"between, {_OPERATIONS} random operations are run: the reader moves to a copy of its slot; it skips the next "
        "transaction or all unread ones (the predicted numbers of transactions and changes are compared with those "
        "that a second reader finds); another program drops or advances the slot (the reader must refuse to start); a "
        "column is added; tables are read again. In the end, every table equals the server's, and the slot was never "
        "ahead of the committed position."
    ),
    seeds=range(100),
    check=_check,
)
