"""A replica of MySQL's tables that a reader of changes feeds, and writers that change the tables at random."""

from __future__ import annotations

import contextlib
import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pymysql

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.changes import TableProgress
from rw_sql.connectors.mysql_cdc.connection import connect, quoted
from rw_sql.connectors.mysql_cdc.reader import MysqlReader
from rw_sql.connectors.mysql_cdc.server import read_facts
from rw_sql.connectors.mysql_cdc.source import MysqlCdcConnector
from rw_sql.connectors.mysql_cdc.tables import find_table
from rw_sql.connectors.mysql_cdc.templates import Template
from rw_sql.connectors.mysql_cdc.values import cell_of, select_of
from tests.support.waits import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from rw_sql.connectors.changes import Taken
    from tests.support.mysql import MysqlInfo

TIMEOUT = 30.0


def cdc_options(server: MysqlInfo, database: str, **changed: str) -> dict[str, str]:
    """The options of a source."""
    made = {
        "hostname": "127.0.0.1",
        "port": str(server.port),
        "username": server.user,
        "password": server.password,
        "database.name": database,
    }
    return MysqlCdcConnector().filled_in(made | changed, uuid.uuid4().hex)


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
    reader: MysqlReader | None = None
    chunk_rows: int | None = None

    def __post_init__(self) -> None:
        self.state = MysqlCdcConnector().prepare(self.options, self.names, timeout=TIMEOUT).state
        self.progress = {name: TableProgress(table=name, chunk_rows=self.chunk_rows) for name in self.names}
        self.rows = {name: {} for name in self.names}

    def open(self, reached: int | None = None) -> MysqlReader:
        """Opens a new reader at the committed position. Progress and position are converted to their stored form and
        back. ``reached`` is the position before a move."""
        made = MysqlReader(self.options)
        stored = {name: TableProgress.from_json(each.to_json()) for name, each in self.progress.items()}
        made.open(self.state, stored, reached=reached)
        self.reader = made
        return made

    def close(self) -> None:
        """Ends the reader. Changes that the reader has taken but the replica has not committed are lost."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def read_anew(self, *names: str) -> None:
        """Removes tables from the replica and sets its position to the end of the log; the next reader begins new
        snapshots of these tables."""
        self.close()
        self.state = MysqlCdcConnector().prepare(self.options, self.names, timeout=TIMEOUT).state
        for name in names:
            self.rows[name] = {}
            self.progress[name] = TableProgress(table=name, chunk_rows=self.chunk_rows)

    def forget(self, name: str) -> None:
        """Removes one table from the replica; the next reader begins a snapshot of it, and continues with the other
        tables."""
        self.close()
        self.rows[name] = {}
        self.progress[name] = TableProgress(table=name, chunk_rows=self.chunk_rows)

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

    def step(self, *, most: int = 1000, wait: float = 0.0) -> Taken:
        """Takes and commits one batch."""
        reader = self.reader or self.open()
        taken = reader.take(most, wait)
        self.commit(taken)
        reader.acknowledge(self.state.offset)
        return taken

    def catch_up(self) -> None:
        """Reads until all snapshots are done and everything that was committed before the call has been read."""
        end = read_facts(self.options, TIMEOUT).end

        def is_there() -> bool:
            self.step(wait=0.2)
            return self.state.offset >= end and all(each.is_done for each in self.progress.values())

        wait_until(is_there, "the replica has everything")

    def differences(self) -> dict[str, Any]:
        """The tables whose rows differ from the server's, with some of the rows."""
        made: dict[str, Any] = {}
        for name in self.names:
            there = upstream_rows(self.options, name)
            here = self.rows[name]
            wrong = {key: (here.get(key), there.get(key)) for key in {*here, *there} if here.get(key) != there.get(key)}
            if wrong:
                made[name] = (len(wrong), sorted(wrong.items())[:3])
        return made

    def _apply(self, record: dict[str, Any]) -> None:
        name, rows = record["table"], self.rows[record["table"]]
        key = self.progress[name].key_columns if self.reader is None else self.reader.key_columns(name)
        match record["op"]:
            case "t":
                rows.clear()
            case "d":
                rows.pop(_key_text(json.loads(record["key"]), key), None)
            case "c" | "r" | "u":
                row = json.loads(record["row"])
                if record["key"]:
                    assert record["op"] == "u"
                    rows.pop(_key_text(json.loads(record["key"]), key), None)
                rows[_key_text(row, key)] = row


def _key_text(row: dict[str, Any], key: tuple[str, ...]) -> str:
    return json.dumps([row[column] for column in key])


def upstream_rows(options: dict[str, str], table: str) -> dict[str, dict[str, Any]]:
    """The rows of a table as its server writes them."""
    with connect(options, TIMEOUT) as connection:
        found = find_table(connection, table)
        assert found is not None
        columns = [column for column in found.columns if not column.is_generated]
        selected = ", ".join(select_of(quoted(each.name), each.type_name, each.type.family) for each in columns)
        template = Template([column.name for column in columns], found.key)
        cells = [cell_of(column.type_name, column.type.family) for column in columns]
        made = {}
        with connection.cursor() as cursor:
            connection.decoders = {}
            cursor.execute(f"SELECT {selected} FROM {found.quoted}")
            for values in cursor.fetchall():
                texts = [
                    "null" if value is None else cell(_bytes(value)) for cell, value in zip(cells, values, strict=True)
                ]
                row = json.loads(template.row(texts))
                made[_key_text(row, found.key)] = row
        return made


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


_WORDS = ("", "plain", 'say "x"', "back\\slash", "two\nlines", "tab\there", "\x01\x0b\x7f", "ü 漢 🦀", "\\N", "{},'%s")


def create_tables(server: MysqlInfo, database: str) -> tuple[str, ...]:
    """Tables with different keys."""
    server.run(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    server.run(
        f"CREATE TABLE {database}.plain (id INT PRIMARY KEY, word VARCHAR(100), big LONGTEXT, amount DECIMAL(20,4))"
    )
    server.run(
        f"CREATE TABLE {database}.texts (a VARCHAR(40) COLLATE utf8mb4_bin, b SMALLINT, word TEXT, big LONGTEXT, "
        "amount DECIMAL(20,4), PRIMARY KEY (b, a))"
    )
    server.run(
        f"CREATE TABLE {database}.labels (kind ENUM('z','y','x'), id BIGINT UNSIGNED, word VARCHAR(100), "
        "big MEDIUMTEXT, amount DECIMAL(20,4), PRIMARY KEY (kind, id)) PARTITION BY KEY (id) PARTITIONS 3"
    )
    return tuple(f"{database}.{name}" for name in ("plain", "texts", "labels"))


class Writers:
    """Several connections whose transactions run at the same time. Each call of :meth:`act` runs one statement in one
    of them."""

    def __init__(self, server: MysqlInfo, tables: Sequence[str], random: random.Random, count: int = 3) -> None:
        self.tables = tables
        self.random = random
        self.connections = [server.connect() for _ in range(count)]
        for connection in self.connections:
            with connection.cursor() as cursor:
                cursor.execute("SET autocommit = 0")
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                # In MariaDB, 0 means not to wait; MySQL uses 1 s instead of 0.
                cursor.execute("SET innodb_lock_wait_timeout = 0, lock_wait_timeout = 1")
        self.keys = 300
        self.at = 0

    def act(self) -> None:
        """Runs one statement, commit, rollback or savepoint. A transaction that would wait is rolled back."""
        self.at = self.random.randrange(len(self.connections))
        connection = self.connections[self.at]
        what = self.random.random()
        with connection.cursor() as cursor:
            try:
                if what < 0.2:
                    connection.commit()
                elif what < 0.25:
                    connection.rollback()
                elif what < 0.3:
                    cursor.execute("SAVEPOINT one")
                    self._write(cursor)
                    cursor.execute("ROLLBACK TO one")
                elif what < 0.303:
                    self._end_others(connection)
                    cursor.execute(f"TRUNCATE TABLE {self.random.choice(self.tables)}")
                else:
                    self._write(cursor)
            except (pymysql.OperationalError, pymysql.IntegrityError, pymysql.InternalError):
                connection.rollback()

    def _end_others(self, connection: Any) -> None:
        for other in self.connections:
            if other is not connection:
                other.commit()

    def _write(self, cursor: Any) -> None:
        table = self.random.choice(self.tables)
        kind = table.rpartition(".")[2]
        what = self.random.random()
        key = self._key(kind)
        word, amount = self.random.choice(_WORDS), self.random.randint(-(10**9), 10**9) / 100
        big = None if self.random.random() < 0.3 else self.random.choice(_WORDS) * self.random.choice((1, 5, 200))
        where = " AND ".join(f"{name} = %s" for name in key)
        if what < 0.5:
            names = ", ".join(key)
            places = ", ".join(["%s"] * (len(key) + 3))
            cursor.execute(
                f"REPLACE INTO {table} ({names}, word, big, amount) VALUES ({places})",
                [*key.values(), word, big, amount],
            )
        elif what < 0.65:
            cursor.execute(f"UPDATE {table} SET word = %s WHERE {where}", [word, *key.values()])
        elif what < 0.75:
            other = self._key(kind)
            changed = ", ".join(f"{name} = %s" for name in other)
            cursor.execute(f"UPDATE {table} SET {changed} WHERE {where}", [*other.values(), *key.values()])
        elif what < 0.9:
            cursor.execute(f"DELETE FROM {table} WHERE {where}", [*key.values()])
        else:
            number = list(key)[-1] if kind != "texts" else "b"
            cursor.execute(
                f"UPDATE {table} SET amount = amount + 1 WHERE {number} % {len(self.connections)} = {self.at}"
            )

    def _key(self, kind: str) -> dict[str, Any]:
        number = self.random.randint(1, self.keys)
        if (
            self.random.random() < 0.98
        ):  # Mostly the keys of this writer, because a wait for another writer takes a second on MySQL.
            number += (self.at - number) % len(self.connections)
        match kind:
            case "texts":
                return {
                    "a": self.random.choice(("", "a'b", "B\\", "b", "ü", "z%")) + str(number % 48),
                    "b": number % 9 - 3,
                }
            case "labels":
                return {"kind": self.random.choice("xyz"), "id": number % 60 + (3 << 62 if number % 5 == 0 else 0)}
        return {"id": number}

    def close(self) -> None:
        """Commits and closes."""
        for connection in self.connections:
            with contextlib.suppress(pymysql.Error):
                connection.commit()
            with contextlib.suppress(pymysql.Error):
                connection.close()
