"""Twelve tables of PostgreSQL under load, and a process of rw_sql that captures their changes. Both the process and the
server are killed repeatedly."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from proof.harness import Facts, Proof
from rw_sql.connectors.postgres_cdc.connection import lsn_number
from rw_sql.metastore import Metastore
from rw_sql.metastore.records import SourceRecord
from rw_sql.runtime.ingest.capture import stored_progress
from rw_sql.runtime.positions.shared import read_positions
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.postgres import PASSWORD, PostgresServer, client_program, running_server
from tests.support.postgres_changes import Writers, create_tables, upstream_rows
from tests.support.postgres_log import decoded_changes, logged_changes
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rw_sql.connectors.changes import TableProgress

SECONDS, KILLS, SERVER_KILLS = 600, 20, 5
_LONGEST_SECONDS = 3 * LAST_RESORT_SECONDS
_ROOT = Path(__file__).parents[2]
_SETTINGS = {"wal_level": "logical", "max_wal_senders": "20", "max_replication_slots": "20"}
_PGBENCH = {
    "pgbench_accounts": "aid INT PRIMARY KEY, bid INT, abalance INT, filler VARCHAR",
    "pgbench_tellers": "tid INT PRIMARY KEY, bid INT, tbalance INT, filler VARCHAR",
    "pgbench_branches": "bid INT PRIMARY KEY, bbalance INT, filler VARCHAR",
    "pgbench_history": "hid BIGINT PRIMARY KEY, tid INT, bid INT, aid INT, delta INT, mtime VARCHAR, filler VARCHAR",
}
_RANDOM = "id BIGINT PRIMARY KEY, word VARCHAR, big VARCHAR, amount VARCHAR"
_TEXTS = "a VARCHAR, b INT, word VARCHAR, big VARCHAR, amount VARCHAR, PRIMARY KEY (b, a)"
_SNAPSHOT, _BETWEEN, _STREAM = "within a snapshot", "before a snapshot", "between changes"
"""The state of the tables' snapshots at a kill: one snapshot has been read in part, one snapshot has not begun, or all
snapshots are complete."""

_STARTS = "while it starts"

_BATCHES_TO_SNAPSHOT = 30
"""The number of batches after which :meth:`Soak._snapshot` adds another column. If the method has not seen the snapshot
of the last new column within this number of batches, this snapshot has already ended."""

_MOST_ROWS_LOG = 5.0
"""The decimal logarithm of the number of rows in the largest transactions."""


@dataclass
class Soak:
    """One run: a server, its writers, and the process that captures its changes."""

    folder: Path
    server: PostgresServer
    chance: random.Random
    ended: threading.Event = field(default_factory=threading.Event)
    is_streaming: threading.Event = field(default_factory=threading.Event)
    metastore: Metastore | None = None
    numbers: Iterator[int] = field(default_factory=count)
    facts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.schemas = ("one", "two")
        self.tables: dict[str, dict[str, str]] = {
            name: {"columns": columns, "upstream": f"public.{name}"} for name, columns in _PGBENCH.items()
        }
        for schema in self.schemas:
            for name in ("plain", "texts", "whole", "parted"):
                columns = _TEXTS if name == "texts" else _RANDOM
                self.tables[f"{schema}_{name}"] = {"columns": columns, "upstream": f"{schema}.{name}"}
        password = self.folder / "password"
        password.write_text(PASSWORD)
        self.options = {
            "hostname": "127.0.0.1",
            "port": str(self.server.info.port),
            "username": "postgres",
            "database.name": "postgres",
            "slot.name": "soak",
            "publication.name": "soak",
        }
        self.task: dict[str, Any] = {
            "warehouse": str(self.folder / "warehouse"),
            "options": self.options,
            "password": str(password),
            "tables": self.tables,
            **{name: str(self.folder / name) for name in ("dump", "ready", "end")},
        }

    def prepare(self) -> None:
        """Creates the tables, the publication, and two slots that begin at the same place: the slot of the source, and
        a slot from which PostgreSQL's own ``test_decoding`` returns the changes after the run."""
        self._pgbench("-i", "-q", "-s", "1")
        self.server.run("ALTER TABLE pgbench_history ADD COLUMN hid BIGSERIAL PRIMARY KEY")
        for schema in self.schemas:
            create_tables(self.server.info, schema)
            self.server.run(f"INSERT INTO {schema}.plain (id, word) SELECT g, 'w' FROM generate_series(1, 20000) g")
        listed = ", ".join(table["upstream"] for table in self.tables.values())
        self.server.run(f"CREATE PUBLICATION soak FOR TABLE {listed} WITH (publish_via_partition_root = true)")
        self.server.run("SELECT pg_create_logical_replication_slot('soak', 'pgoutput')")
        self.server.run("SELECT pg_create_logical_replication_slot('oracle', 'test_decoding')")

    def _pgbench(self, *words: str) -> None:
        program = client_program(self.server.folder, "pgbench")
        subprocess.run(
            [str(program), "-h", "127.0.0.1", "-p", str(self.server.info.port), "-U", "postgres", *words, "postgres"],
            env={**os.environ, "PGPASSWORD": PASSWORD},
            capture_output=True,
            check=False,  # pgbench fails when the server is killed.
            cwd=self.folder,
        )

    def write_pgbench(self) -> None:
        """Runs pgbench's own transactions, at a limited rate."""
        while not self.ended.is_set():
            self._pgbench("-n", "-c", "2", "-T", "5", "-R", "40")

    def write_random(self) -> None:
        """Runs inserts, updates, changes of keys and of TOAST values, deletes, truncates, aborts and savepoints. From
        time to time, also runs a large transaction, or a statement that adds or drops columns."""
        chance = random.Random(self.chance.random())
        names = [table["upstream"] for table in self.tables.values() if "pgbench" not in table["upstream"]]
        while not self.ended.is_set():
            with contextlib.suppress(psycopg.Error):
                writers = Writers(self.server.info, names, chance)
                for _ in range(400):
                    if self.ended.wait(0.01):
                        break
                    writers.act()
                    self.facts["statements"] += 1
                writers.close()
                self._write_more(chance)

    def _write_more(self, chance: random.Random) -> None:
        schema, what = chance.choice(self.schemas), chance.random()
        if what >= 0.7 and not self.is_streaming.is_set():
            return  # After each change, the reader reads a table again. More changes would overload a slow machine.
        if what < 0.5:
            rows = int(10 ** chance.uniform(0, _MOST_ROWS_LOG))
            first = 1_000_000 + chance.randrange(100_000)
            self.server.run(
                f"INSERT INTO {schema}.whole (id, word) SELECT g, 'many' "
                f"FROM generate_series({first}, {first + rows}) g "
                "ON CONFLICT (id) DO UPDATE SET word = 'again'"
            )
            self.facts["rows of large transactions"] += rows
        elif what < 0.7:
            self.server.run(f"DELETE FROM {schema}.whole WHERE id > 1000000")
        else:
            for _ in range(chance.randint(1, 3)):
                self._alter(schema, chance)

    def _alter(self, schema: str, chance: random.Random) -> None:
        if chance.random() < 0.5:
            self._add_column(f"{schema}.plain")
        else:
            found = self.server.run(
                f"SELECT attname FROM pg_attribute WHERE attrelid = '{schema}.plain'::regclass "
                "AND attname LIKE 'extra%' AND NOT attisdropped LIMIT 1"
            )
            if found:
                self.server.run(f"ALTER TABLE {schema}.plain DROP COLUMN {found[0][0]}")
                self.facts["columns dropped"] += 1

    def watch_slot(self) -> None:
        """Checks repeatedly that the slot is not ahead of the position that rw_sql has committed. Sets ``is_streaming``
        while all snapshots are complete."""
        warehouse = Warehouse.at(self.task["warehouse"])
        metastore: Metastore | None = None
        while not self.ended.wait(0.3):
            with contextlib.suppress(psycopg.Error, OSError, FileNotFoundError):
                found = self.server.run(
                    "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'soak'"
                )
                if not Path(self.task["ready"]).exists():
                    continue
                metastore = metastore or Metastore.open(self.task["warehouse"], only_reads=True)
                snapshot = metastore.snapshot()
                source = snapshot.find("source", "pg")
                if not isinstance(source, SourceRecord):
                    continue
                state = read_positions(warehouse, metastore, snapshot, source).states["postgres"]
                stored = stored_progress(warehouse, source).values()
                is_done = bool(stored) and all(progress.is_done for _, progress in stored)
                self.is_streaming.set() if is_done else self.is_streaming.clear()
                confirmed = lsn_number(found[0][0])
                if confirmed > state.offset:
                    self.failures.append(f"the slot is at {confirmed}, the log at {state.offset}")
                self.facts["checks of the slot"] += 1

    @contextlib.contextmanager
    def process(self, *, is_last: bool) -> Any:
        """A context manager that runs the process that captures the changes, in a separate process group together with
        its JVM."""
        with (self.folder / "said.txt").open("ab") as said:
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.soak_child"],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                cwd=_ROOT,
                start_new_session=True,
            )
            assert child.stdin is not None
            child.stdin.write(json.dumps({**self.task, "is_last": is_last}).encode())
            child.stdin.close()
            try:
                yield child
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()

    def said(self) -> str:
        """The end of the processes' output."""
        return (self.folder / "said.txt").read_text(errors="replace")[-3000:]

    def kill_again_and_again(self) -> None:
        """Kills the process that captures the changes, and sometimes the server, for at least SECONDS.

        One third of the kills comes while the process starts, one third while it reads a table's snapshot, and one
        third while it reads changes.
        """
        began = time.monotonic()
        of_server = set(self.chance.sample(range(KILLS), SERVER_KILLS))
        for number in range(KILLS):
            reaches = (self._start, self._snapshot, self._stream)[number % 3]
            with self.process(is_last=False) as child:
                reaches(child)
                if number in of_server:
                    self._kill_server()
                    reaches(child)
                assert child.poll() is None, self.said()
            # The commits that the process left show its state at the kill.
            phase = _STARTS if reaches == self._start else self._phase()
            self.facts[f"kills of the process {phase}"] += 1
        if time.monotonic() < began + SECONDS:
            with self.process(is_last=False) as child:
                _wait(lambda: time.monotonic() >= began + SECONDS, f"{SECONDS} s have passed")
                assert child.poll() is None, self.said()

    def _kill_server(self) -> None:
        self.facts[f"kills of the server {self._phase()}"] += 1
        self.server.kill()
        self.server.start()

    def _start(self, child: subprocess.Popen[bytes]) -> None:
        """Waits for a random time within the start of the process, so that the kill comes before or after the start of
        its JVM, and before or after its first statements."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(self.chance.uniform(1, 20))

    def _snapshot(self, child: subprocess.Popen[bytes]) -> None:
        """Waits until a batch with a part of a table's snapshot is committed. If all snapshots are complete, adds a
        column, which causes a new snapshot."""
        next_column = 0

        def is_within() -> bool:
            nonlocal next_column
            if self._phase() == _STREAM and self._version() >= next_column:
                self._add_column("public.pgbench_accounts")
                next_column = self._version() + _BATCHES_TO_SNAPSHOT
            return self._phase() == _SNAPSHOT

        self._until(child, is_within, batches=1)

    def _stream(self, child: subprocess.Popen[bytes]) -> None:
        """Waits until the snapshots are complete and some batches are committed."""
        self._until(child, lambda: self._phase() == _STREAM, batches=self.chance.randint(1, 10))

    def _until(self, child: subprocess.Popen[bytes], is_met: Callable[[], bool], *, batches: int) -> None:
        first = self._version()

        def is_reached() -> bool:
            assert child.poll() is None, self.said()
            return self._version() >= first + batches and is_met()

        _wait(is_reached, f"{batches} batches of the log, behind version {first}", seconds=0.1)

    def _add_column(self, table: str) -> None:
        number = next(self.numbers)
        self.server.run(f"ALTER TABLE {table} ADD COLUMN extra_{number} INT DEFAULT {number}")
        self.facts["columns added"] += 1

    def _log(self) -> tuple[Warehouse, SourceRecord]:
        self.metastore = self.metastore or Metastore.open(self.task["warehouse"], only_reads=True)
        source = self.metastore.snapshot().find("source", "pg")
        assert isinstance(source, SourceRecord)
        return Warehouse.at(self.task["warehouse"]), source

    def _version(self) -> int:
        """The newest version of the log; -1 without one."""
        warehouse, source = self._log()
        folder = Path(warehouse.data(source.id, source.generation)) / "_delta_log"
        return max((int(file.stem) for file in folder.glob("*.json")), default=-1)

    def _progress(self) -> list[TableProgress]:
        """The progress of the tables' snapshots, from the newest commit."""
        warehouse, source = self._log()
        return [progress for _, progress in stored_progress(warehouse, source).values()]

    def _phase(self) -> str:
        progress = self._progress()
        unfinished = [each for each in progress if not each.is_done]
        if any(each.next_key is not None for each in unfinished):
            return _SNAPSHOT
        return _BETWEEN if unfinished or not progress else _STREAM

    def differences(self) -> dict[str, Any]:
        """The tables whose rows in the process's newest dump differ from the server's, with the number of differing
        keys and examples."""
        made = json.loads(Path(self.task["dump"]).read_text())
        wrong: dict[str, Any] = {}
        for name, table in self.tables.items():
            key = _key_of(table["columns"])
            there = upstream_rows({**self.options, "password": PASSWORD}, table["upstream"], key)
            here = {json.dumps([row[column] for column in key]): row for row in made[name]}
            if here != there:
                keys = [each for each in {*here, *there} if here.get(each) != there.get(each)]
                wrong[name] = (len(keys), [(here.get(each), there.get(each)) for each in keys[:2]])
        return wrong

    def finish(self) -> None:
        """Runs a last process until all tables equal the server's. The server sends a table's new columns only with the
        table's next change, so each table gets one more change first."""
        for table in self.tables.values():
            name, column = table["upstream"], _key_of(table["columns"])[0]
            self.server.run(
                f"UPDATE {name} SET {column} = {column} WHERE {column} = (SELECT {column} FROM {name} LIMIT 1)"
            )
        dump = Path(self.task["dump"])
        with self.process(is_last=True) as child:
            wrong: dict[str, Any] = {"": "no dump was written"}

            def is_equal() -> bool:
                nonlocal wrong
                assert child.poll() is None, self.said()
                if not dump.exists():
                    return False
                try:
                    wrong = self.differences()
                except json.JSONDecodeError:  # The process is still writing the dump.
                    return False
                if wrong:
                    dump.unlink()
                return not wrong

            try:
                _wait(is_equal, "the tables to equal the server's")
            except AssertionError as error:
                raise AssertionError(f"{error}: {str(wrong)[:1500]}") from error
            Path(self.task["end"]).touch()
            child.wait(LAST_RESORT_SECONDS)
        self.facts["rows compared"] += sum(len(rows) for rows in json.loads(dump.read_text()).values())

    def compare_log(self) -> None:
        """Compares the source's log with the output of ``test_decoding``. The log must contain each change of each
        transaction exactly once, with its values, in the order of the commits. Raises AssertionError otherwise."""
        warehouse, source = self._log()
        names = {table["upstream"]: table["upstream"] for table in self.tables.values()}
        for schema in self.schemas:
            names |= {f"{schema}.{leaf}": f"{schema}.parted" for leaf in ("parted_low", "parted_high")}
        keys = {table["upstream"]: _key_of(table["columns"]) for table in self.tables.values()}
        here = logged_changes(warehouse.data(source.id, source.generation))
        there = list(decoded_changes({**self.options, "password": PASSWORD}, "oracle", names, keys))
        self.facts["transactions in the log"] += len(here)
        self.facts["changes in the log"] += sum(map(len, here))
        for at, (mine, theirs) in enumerate(zip(here, there, strict=False)):
            if mine == theirs:
                continue
            change = next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), len(mine))
            raise AssertionError(
                f"transaction {at} of {len(here)} has {len(mine)} changes here, {len(theirs)} there; "
                f"from change {change}: {mine[change : change + 2]} for {theirs[change : change + 2]}"
            )
        assert len(here) == len(there), f"{len(here)} transactions here, {len(there)} there"


def _wait(is_met: Callable[[], bool], what: str, *, seconds: float = 1.0) -> None:
    """Does the same as ``wait_until``, with a longer time limit, because twelve tables take long on a machine that also
    does other work."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    while not is_met():
        assert time.monotonic() < deadline, f"after {_LONGEST_SECONDS:g} s still not: {what}"
        time.sleep(seconds)


def _key_of(columns: str) -> tuple[str, ...]:
    listed = re.search(r"PRIMARY KEY \((.*)\)", columns)
    if listed is not None:
        return tuple(name.strip() for name in listed[1].split(","))
    return (columns.split()[0],)


def _check(seed: int, folder: Path) -> Facts:
    with running_server(**_SETTINGS) as server:
        soak = Soak(folder, server, random.Random(seed))
        soak.prepare()
        writers = [
            threading.Thread(target=work, daemon=True)
            for work in (soak.write_pgbench, soak.write_random, soak.watch_slot)
        ]
        with soak.process(is_last=False):
            _wait(Path(soak.task["ready"]).exists, "the source and its tables")
        for writer in writers:
            writer.start()
        try:
            soak.kill_again_and_again()
        finally:
            soak.ended.set()
            for writer in writers:
                writer.join()
        soak.finish()
        soak.compare_log()
        assert not soak.failures, soak.failures[0]
        assert soak.facts["checks of the slot"] > 0
        return dict(soak.facts)


PROOF = Proof(
    name="postgres-soak",
    claim="Tables follow a PostgreSQL database exactly while rw_sql and the server are killed: each change once, in "
    "commit order.",
    method=(
        f"For at least {SECONDS // 60} minutes, pgbench and a random writer change twelve tables: pgbench's four, and "
        "two each that have a key of one column, have a composite key, have REPLICA IDENTITY FULL, or are partitioned. "
        "The random writer runs inserts, updates, key changes, deletes, large values (TOAST), truncates, aborts and "
        "savepoints, adds and drops columns, and writes transactions of 1 to 100,000 rows. The process that reads the "
        f"changes is killed with its JVM {KILLS} times, the server {SERVER_KILLS} times: in turn while the process "
        "starts, while it reads a table's snapshot (if all snapshots are complete, a new column causes another one), "
        "and while it reads changes. Throughout the run, the slot's `confirmed_flush_lsn` is compared with the "
        "committed position. In the end every table equals the server's, and the log has the changes of every "
        "transaction with their values, once and in the order in which a second slot shows them with PostgreSQL's "
        "`test_decoding`."
    ),
    seeds=range(1),
    check=_check,
)
