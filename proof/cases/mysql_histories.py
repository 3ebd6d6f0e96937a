"""Random histories of MariaDB with operations in between. A reader's tables equal the tables of the database, and no
change is lost without an error."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from typing import TYPE_CHECKING

from proof.harness import Facts, Proof
from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.mysql_cdc.server import read_facts
from tests.support.mysql import MARIADB, server_of
from tests.support.mysql_changes import TIMEOUT, Replica, Writers, cdc_options, create_tables
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.mysql import MysqlServer

_STEPS, _OPERATIONS = 60, 6
_ACTS = 30
"""After ``_STEPS`` times this number of statements, the writers become slower."""

_SLOW_SECONDS = 0.02


class History:
    """One history: writers, a reader with copies of the tables, and operations on the binary log and the tables."""

    def __init__(self, server: MysqlServer, seed: int) -> None:
        self.server, self.chance = server, random.Random(seed)
        self.names = create_tables(server.info, f"h_{uuid.uuid4().hex[:8]}")
        self.seed = seed
        self.writers = Writers(server.info, self.names, random.Random(seed + 1_000_000))
        options = cdc_options(server.info, self.names[0].partition(".")[0])
        self.replica = Replica(options, self.names, chunk_rows=self.chance.choice((2, 10, 40)))
        self.facts: Counter[str] = Counter()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.write, daemon=True)

    def run(self) -> None:
        """Runs the reader's steps with random operations in between, and compares the tables at the end."""
        operations: list[Callable[[], None]] = [
            self.purge, self.reset, self.kill, self.swap, self.add_column, self.read_again, self.flush,
        ]  # fmt: skip
        due = set(self.chance.sample(range(_STEPS), _OPERATIONS))
        self.thread.start()
        try:
            for step in range(_STEPS):
                if step in due:
                    self.replica.close()
                    operation = self.chance.choice(operations)
                    operation()
                    self.facts[operation.__name__.replace("_", " ")] += 1
                self.step()
            self.end()
            self.replica.catch_up()
            assert self.replica.differences() == {}, str(self.replica.differences())[:1000]
            read = [(record["_rw_offset"], record["_rw_index"]) for record in self.replica.log]
            assert len(read) == len(set(read)), "a change is in the log twice"
            self.facts["changes"] += len(self.replica.log)
        finally:
            self.end()
            self.replica.close()

    def end(self) -> None:
        """Stops the writers."""
        self.ended.set()
        if self.thread.is_alive():
            self.thread.join()
        self.writers.close()

    def again(self) -> None:
        """Starts the writers again."""
        self.ended.clear()
        self.writers = Writers(self.server.info, self.names, random.Random(self.seed + self.facts.total()))
        self.thread = threading.Thread(target=self.write, daemon=True)
        self.thread.start()

    def write(self) -> None:
        """Runs statements until the writers are stopped. After a while, the writers wait between statements, so that
        the reader gets enough CPU time on a slow machine."""
        done = 0
        while not self.ended.wait(0.0 if done < _ACTS * _STEPS else _SLOW_SECONDS):
            self.writers.act()
            done += 1

    def step(self) -> None:
        """Reads a batch and commits it. Sometimes, the reader ends after it has read the batch, without a commit."""
        replica = self.replica
        if self.chance.random() > 0.92 and replica.reader is not None:
            replica.reader.take(1000, 0.0)
            replica.close()
            return
        replica.step(most=self.chance.choice((1, 10, 1000)), wait=self.chance.choice((0, 0.02)))

    def flush(self) -> None:
        """Makes the binary log continue in another file."""
        self.server.info.run("FLUSH LOGS")

    def purge(self) -> None:
        """Removes files of the binary log that the reader has not read. Afterwards, the reader must refuse to start."""
        self.end()
        self.server.info.run(
            f"DELETE FROM {self.names[0]} WHERE id = 1", f"INSERT INTO {self.names[0]} (id) VALUES (1)"
        )
        self.server.info.run("FLUSH LOGS")
        last = read_facts(self.replica.options, TIMEOUT).logs[-1].name

        def is_purged() -> bool:
            self.server.info.run(f"PURGE BINARY LOGS TO '{last}'")
            return read_facts(self.replica.options, TIMEOUT).logs[0].name == last

        wait_until(is_purged, "the log is purged")
        self.refused("purged")
        self.again()

    def reset(self) -> None:
        """Runs RESET MASTER, after which the log's positions begin again. The reader must refuse to continue."""
        self.end()
        wait_until(self.is_reset, "the log is reset")
        self.server.info.run(
            f"DELETE FROM {self.names[0]} WHERE id = 2", f"INSERT INTO {self.names[0]} (id) VALUES (2)"
        )
        self.refused("reset")
        self.again()

    def is_reset(self) -> bool:
        """Waits for more than a second, and runs RESET MASTER. The wait is needed because only the second of its
        creation distinguishes a new log file from an old log file. Returns True once the server has reset its log,
        which may take a while if a reader has just disconnected."""
        before = read_facts(self.replica.options, TIMEOUT)
        threading.Event().wait(1.1)
        self.server.info.run("RESET MASTER")
        return before.logs != read_facts(self.replica.options, TIMEOUT).logs

    def kill(self) -> None:
        """Kills the server, and starts it again."""
        self.end()
        self.server.kill()
        self.server.start()
        self.again()

    def swap(self) -> None:
        """Swaps two tables, as tools for online schema changes do. The reader must read all changes before the swap,
        and then report the swap."""
        self.end()
        name = self.names[0]
        self.server.info.run(
            f"CREATE TABLE {name}_new LIKE {name}",
            f"INSERT INTO {name}_new SELECT * FROM {name} WHERE id % 2 = 0",
            f"RENAME TABLE {name} TO {name}_old, {name}_new TO {name}",
            f"DROP TABLE {name}_old",
        )
        self.refused("renamed|dropped|not the table|has no columns|another one", is_started=True)
        self.again()

    def add_column(self) -> None:
        """Adds a column with a default, and reads the table again, as ALTER TABLE … ADD COLUMN does."""
        self.end()
        name = self.chance.choice(self.names)
        self.server.info.run(f"ALTER TABLE {name} ADD COLUMN c_{uuid.uuid4().hex[:6]} INT DEFAULT 7")
        self.replica.forget(name)
        self.again()

    def read_again(self) -> None:
        """Reads one table again, as if the table had been dropped in rw_sql and created again."""
        self.replica.forget(self.chance.choice(self.names))

    def refused(self, why: str, *, is_started: bool = False) -> None:
        """Raises AssertionError unless the reader refuses to start, with an error that contains ``why``. If
        ``is_started`` is true, the reader must stop with this error instead. Then reads all tables again, as
        FORGET_OFFSETS does."""
        found: CaptureError | None = None
        try:
            self.replica.open()
            if is_started:
                for _ in range(10_000):
                    self.replica.step(wait=0.1)
        except CaptureError as error:
            found = error
        self.replica.close()
        assert found is not None, f"a reader continued although its log was {why}"
        assert any(word in found.message for word in (*why.split("|"), "ends at")), found.message
        assert found.hint, "a refusal says what to type"
        self.replica.read_anew(*self.names)


def _check(seed: int, folder: Path) -> Facts:
    del folder
    # With other settings, a killed server loses transactions that are in its log.
    with server_of(MARIADB, innodb_flush_log_at_trx_commit="1", sync_binlog="1") as server:
        history = History(server, seed)
        history.run()
        return dict(history.facts)


PROOF = Proof(
    name="mysql-histories",
    claim=(
        "The tables of a source equal the MariaDB database after any history, and no change is lost without an error."
    ),
    method=(
        "Each seed runs concurrent writers (inserts, updates, key changes, deletes, truncates, aborts, savepoints) and "
        "a reader on three tables: one has a key of one column, one a composite key, and one is partitioned. After a "
        f"batch, the reader sometimes ends without a commit. In between, {_OPERATIONS} random operations are run: the "
        "server's log is purged before it was read, or reset (the reader must refuse to start); the server is "
        "killed; two tables are swapped (the reader must report this); a column is added; a table is read again; the "
        "server begins a new file of its log. In the end every table equals the server's, and no change is in the "
        "source's log twice."
    ),
    seeds=range(30),
    check=_check,
)
