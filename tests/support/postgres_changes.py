"""A replica of PostgreSQL's tables that a reader of changes feeds, and writers that change the tables at random."""

from __future__ import annotations

import contextlib
import json
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import psycopg

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.changes import TableProgress
from rw_sql.connectors.postgres_cdc import setup
from rw_sql.connectors.postgres_cdc.connection import connect, lsn_number
from rw_sql.connectors.postgres_cdc.reader import PostgresReader
from rw_sql.connectors.postgres_cdc.server import read_facts
from tests.support.postgres import PASSWORD
from tests.support.waits import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from rw_sql.connectors.changes import Taken
    from tests.support.postgres import PostgresInfo

MISSING = "<missing>"
"""The value of a column that a change left out while the replica had no row. A snapshot must replace this value."""

TIMEOUT = 30.0


def cdc_options(postgres: PostgresInfo, **changed: str) -> dict[str, str]:
    """The options of a source with a slot and a publication that no other source uses."""
    word = uuid.uuid4().hex[:8]
    return {
        "hostname": "127.0.0.1",
        "port": str(postgres.port),
        "username": postgres.user,
        "password": PASSWORD,
        "database.name": "postgres",
        "slot.name": f"slot_{word}",
        "publication.name": f"publication_{word}",
    } | changed


@dataclass
class Replica:
    """The state that a source has committed: the position, the progress of each table, and the rows by the text of
    their keys."""

    options: dict[str, str]
    names: Sequence[str]
    state: SplitState = field(init=False)
    progress: dict[str, TableProgress] = field(init=False)
    rows: dict[str, dict[str, dict[str, Any]]] = field(init=False)
    log: list[dict[str, Any]] = field(default_factory=list)
    reader: PostgresReader | None = None
    chunk_rows: int | None = None
    _watch: psycopg.Connection[Any] | None = None

    def __post_init__(self) -> None:
        prepared = setup.prepare(self.options, self.names, TIMEOUT)
        is_older = prepared.made_publication and not prepared.made_slot
        self.state = replace(prepared.state, offset=prepared.end) if is_older else prepared.state
        self.progress = {name: TableProgress(table=name, chunk_rows=self.chunk_rows) for name in self.names}
        self.rows = {name: {} for name in self.names}

    def open(self) -> PostgresReader:
        """Opens a new reader at the committed position. Progress and position are converted to their stored form and
        back."""
        made = PostgresReader(self.options)
        stored = {name: TableProgress.from_json(each.to_json()) for name, each in self.progress.items()}
        made.open(self.state, stored)
        self.reader = made
        return made

    def close(self) -> None:
        """Ends the reader. Changes that the reader has taken but the replica has not committed are lost."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def add(self, name: str) -> None:
        """Adds a table to the replica; the next reader begins a snapshot of it."""
        self.names = (*self.names, name)
        self.read_anew(name)

    def read_anew(self, name: str) -> None:
        """Removes a table from the replica; the next reader begins a new snapshot of it."""
        self.close()
        self.rows[name] = {}
        self.progress[name] = TableProgress(table=name, chunk_rows=self.chunk_rows)

    def drop(self) -> None:
        """Ends everything, and drops the slot and the publication."""
        self.close()
        if self._watch is not None:
            self._watch.close()
        assert setup.release(self.options, slot=True, publication=True, timeout=TIMEOUT) == ()

    def commit(self, taken: Taken) -> None:
        """Applies a batch."""
        before = self.state.offset
        assert taken.position >= before
        for record in taken.records.to_pylist():
            assert before < record["_rw_offset"] <= taken.position, "a record outside of its batch"
            self._apply(record)
            self.log.append(record)
        self.progress = dict(taken.progress)
        self.state = SplitState(
            split=self.state.split,
            offset=taken.position,
            cluster=self.state.cluster,
            incarnation=self.state.incarnation,
        )

    def step(self, *, most: int = 1000, wait: float = 0.0, acknowledges: bool = True) -> Taken:
        """Takes and commits one batch."""
        reader = self.reader or self.open()
        taken = reader.take(most, wait)
        self.commit(taken)
        if acknowledges:
            reader.acknowledge(self.state.offset)
        return taken

    def confirmed(self) -> int:
        """The slot's ``confirmed_flush_lsn``."""
        if self._watch is None or self._watch.closed:
            self._watch = connect(self.options, TIMEOUT)
        row = self._watch.execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
            [self.options["slot.name"]],
        ).fetchone()
        assert row is not None
        return lsn_number(row[0])

    def catch_up(self, postgres: PostgresInfo) -> None:
        """Reads until all snapshots are done and everything that was committed before the call has been read."""
        end = read_facts(self.options, TIMEOUT).end

        def is_there() -> bool:
            self.step(wait=0.2)
            return self.state.offset >= end and all(each.is_done for each in self.progress.values())

        postgres.run("SELECT txid_current()")
        wait_until(is_there, "the replica has everything")

    def differences(self) -> dict[str, Any]:
        """The tables whose rows differ from the server's, with some of the rows."""
        made: dict[str, Any] = {}
        for name in self.names:
            there = upstream_rows(self.options, name, self.progress[name].key_columns)
            here = self.rows[name]
            wrong = {key: (here.get(key), there.get(key)) for key in {*here, *there} if here.get(key) != there.get(key)}
            if wrong:
                made[name] = (len(wrong), sorted(wrong.items())[:3])
        return made

    def _apply(self, record: dict[str, Any]) -> None:
        name, rows = record["table"], self.rows[record["table"]]
        match record["op"]:
            case "t":
                rows.clear()
            case "d":
                rows.pop(_key_text(json.loads(record["key"]), self._key(name)), None)
            case "c" | "r":
                row = json.loads(record["row"])
                assert record["unchanged"] is None
                rows[_key_text(row, self._key(name))] = row
            case "u":
                row = json.loads(record["row"])
                now = _key_text(row, self._key(name))
                before = _key_text(json.loads(record["key"]), self._key(name)) if record["key"] else now
                old = rows.pop(before, None) or {}
                kept = {column: old.get(column, MISSING) for column in record["unchanged"] or ()}
                rows[now] = row | kept

    def _key(self, name: str) -> tuple[str, ...]:
        assert self.reader is not None
        return self.reader.key_columns(name)


def _key_text(row: dict[str, Any], key: tuple[str, ...]) -> str:
    return json.dumps([row[column] for column in key])


def upstream_rows(options: dict[str, str], table: str, key: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The rows of a table as its server writes them."""
    with connect(options, TIMEOUT) as connection:
        result = connection.pgconn.exec_(f"SELECT * FROM {table}".encode())
        assert result.status == psycopg.pq.ExecStatus.TUPLES_OK, result.get_error_message()
        names = [(result.fname(at) or b"").decode() for at in range(result.nfields)]
        made = {}
        for at in range(result.ntuples):
            values = [result.get_value(at, column) for column in range(result.nfields)]
            row = {name: None if value is None else value.decode() for name, value in zip(names, values, strict=True)}
            made[_key_text(row, key)] = row
        return made


PLAIN_TABLE, TEXT_TABLE, FULL_TABLE, PARTED_TABLE = "plain", "texts", "whole", "parted"


def create_tables(postgres: PostgresInfo, schema: str) -> tuple[str, ...]:
    """Tables with different keys and replica identities; ``big`` is stored apart from the row (TOAST)."""
    postgres.run(
        f"""
        CREATE SCHEMA {schema};
        CREATE TABLE {schema}.plain (id INT PRIMARY KEY, word TEXT, big TEXT, amount NUMERIC);
        CREATE TABLE {schema}.texts (a TEXT, b SMALLINT, word TEXT, big TEXT, amount NUMERIC, PRIMARY KEY (b, a));
        CREATE TABLE {schema}.whole (id BIGINT PRIMARY KEY, word TEXT, big TEXT, amount NUMERIC);
        ALTER TABLE {schema}.whole REPLICA IDENTITY FULL;
        CREATE TABLE {schema}.parted (id INT PRIMARY KEY, word TEXT, big TEXT, amount NUMERIC) PARTITION BY RANGE (id);
        CREATE TABLE {schema}.parted_low PARTITION OF {schema}.parted FOR VALUES FROM (MINVALUE) TO (50);
        CREATE TABLE {schema}.parted_high PARTITION OF {schema}.parted FOR VALUES FROM (50) TO (MAXVALUE);
        """
    )
    for name in ("plain", "texts", "whole", "parted_low", "parted_high"):
        postgres.run(f"ALTER TABLE {schema}.{name} ALTER big SET STORAGE EXTERNAL")
    return tuple(f"{schema}.{name}" for name in ("plain", "texts", "whole", "parted"))


_WORDS = ("", "plain", 'say "x"', "back\\slash", "two\nlines", "tab\there", "\x01\x0b\x7f", "ü 漢 🦀", "\\N", "{},'")


class Writers:
    """Several connections whose transactions run at the same time. Each call of :meth:`act` runs one statement in one
    of them."""

    def __init__(self, postgres: PostgresInfo, tables: Sequence[str], random: random.Random, count: int = 3) -> None:
        self.tables = tables
        self.random = random
        self.connections = [
            psycopg.connect(
                host="127.0.0.1", port=postgres.port, dbname="postgres", user=postgres.user, password=PASSWORD
            )
            for _ in range(count)
        ]
        for connection in self.connections:
            connection.execute("SET lock_timeout = '30ms'")
            connection.commit()
        self.keys = 300

    def act(self) -> None:
        """Runs one statement, commit, rollback or savepoint. A statement that would wait for another writer is
        undone."""
        connection = self.random.choice(self.connections)
        what = self.random.random()
        try:
            if what < 0.16:
                connection.commit()
            elif what < 0.20:
                connection.rollback()
            elif what < 0.26:
                self._savepoint(connection)
            else:
                connection.execute(self._statement().encode())
        except psycopg.Error:
            connection.rollback()

    def close(self) -> None:
        """Commits or rolls back the open transactions."""
        for connection in self.connections:
            with contextlib.suppress(psycopg.Error):
                connection.commit() if self.random.random() < 0.7 else connection.rollback()
            connection.close()

    def _savepoint(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("SAVEPOINT here")
        connection.execute(self._statement().encode())
        if self.random.random() < 0.5:
            connection.execute("ROLLBACK TO SAVEPOINT here")

    def _text(self) -> str:
        word = self.random.choice(_WORDS) * self.random.randint(1, 2)
        return "E'" + word.replace("\\", "\\\\").replace("'", "''") + "'"

    def _big(self) -> str:
        what = self.random.random()
        if what < 0.1:
            return "NULL"
        return f"repeat('{self.random.randint(0, 999)}é', {self.random.choice((3, 900, 900, 900))})"

    def _statement(self) -> str:
        table, random = self.random.choice(self.tables), self.random
        is_text = table.endswith(".texts")
        key, other = random.randint(1, self.keys), random.randint(1, self.keys)
        columns = "a, b" if is_text else "id"
        values = f"'k{key % 10} ü\"', {key}" if is_text else str(key)
        where = f"(a, b) = ('k{key % 10} ü\"', {key})" if is_text else f"id = {key}"
        moved = f"a = 'k{other % 10} ü\"', b = {other}" if is_text else f"id = {other}"
        amount = random.choice(("NULL", "1.50", "'NaN'", "-0.00001", "12345678901234567890.5"))
        row = f"{values}, {self._text()}, {self._big()}, {amount}"
        what = random.random()
        if what < 0.25:
            return f"INSERT INTO {table} ({columns}, word, big, amount) VALUES ({row}) ON CONFLICT DO NOTHING"
        if what < 0.35:
            first = random.randint(1, self.keys)
            keys = "'k' || i % 10 || ' ü\"', i" if is_text else "i"
            return (
                f"INSERT INTO {table} ({columns}, word, big, amount) SELECT {keys}, {self._text()}, {self._big()}, i "
                f"FROM generate_series({first}, {first + random.randint(5, 60)}) i ON CONFLICT DO NOTHING"
            )
        if what < 0.60:
            return f"UPDATE {table} SET word = {self._text()} WHERE {where}"
        if what < 0.68:
            return f"UPDATE {table} SET big = {self._big()}, amount = {amount} WHERE {where}"
        if what < 0.80:
            return f"UPDATE {table} SET {moved} WHERE {where}"
        if what < 0.84:
            return (
                f"UPDATE {table} SET word = word || 'x' WHERE {'b' if is_text else 'id'} % 7 = {random.randint(0, 6)}"
            )
        if what < 0.985:
            return f"DELETE FROM {table} WHERE {where}"
        if what < 0.995:
            return f"DELETE FROM {table} WHERE {'b' if is_text else 'id'} % 25 = {random.randint(0, 24)}"
        return f"TRUNCATE {table}"
