"""Each value's way from a SELECT in the database to a SELECT here, by ``(*)`` and by every documented type: it arrives
as it is, or as an error that names its column."""

from __future__ import annotations

import base64
import json
import os
import struct
from datetime import UTC
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyspark.sql import Row

from rw_sql.runtime.support.secrets import KEY_VARIABLE
from tests.integration.attached import AttachedSession, wait_until
from tests.integration.captured_database import Database
from tests.integration.test_live_cdc_mysql import Database as MysqlDatabase
from tests.support.declared_types import STAMP, VARYING, Kind, columns_of, is_same
from tests.support.mysql_kinds import MYSQL_KINDS
from tests.support.postgres import PASSWORD
from tests.support.postgres_kinds import POSTGRES_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.support.mysql import MysqlInfo
    from tests.support.postgres import PostgresInfo

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.alone]

LATER = 100_000
"""The difference between the id of a row that the stream has and the id of the same row in the snapshot."""

MOST_COLUMNS = 40
"""The number of columns of a table."""

BY_STAR = "by_star"
_SETTINGS = "-c intervalstyle=iso_8601 -c timezone=UTC -c bytea_output=hex -c extra_float_digits=3"
_LAX = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
_ELEMENTS = {
    "INT": "int", "BIGINT": "bigint", "DOUBLE": "float8", "BOOLEAN": "boolean", "BYTEA": "bytea", "DATE": "date",
    "TIMESTAMP": "timestamp", STAMP: "timestamptz",
}  # fmt: skip

Column = tuple[str, Kind, str, tuple[str, ...]]
"""The name, the kind, the declared type, and the values that do not fit it."""


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(os.urandom(32)).decode())


class Case:
    """A table with one row per value of each column; the other columns of a row are NULL."""

    def __init__(self, name: str, columns: Sequence[Column]) -> None:
        self.name, self.columns = name, tuple(columns)
        self.values = dict(enumerate((column, value) for column in columns for value in column[1].values))

    @property
    def definition(self) -> str:
        """The columns in the database."""
        return ", ".join(["id INT PRIMARY KEY", *(f"{name} {kind.type}" for name, kind, _, _ in self.columns)])

    def rows(self, table: str, first: int) -> Iterator[str]:
        """An INSERT of each value, then an INSERT of a last row without values."""
        for number, ((name, *_), value) in self.values.items():
            yield f"INSERT INTO {table} (id, {name}) VALUES ({number + first}, {value})"
        yield f"INSERT INTO {table} (id) VALUES ({len(self.values) + first})"

    def wait(self, session: AttachedSession, first: int) -> None:
        """Waits until the last row of :meth:`rows` has arrived."""
        query = f"SELECT count(*) FROM {self.name} WHERE id = {len(self.values) + first}"
        wait_until(lambda: bool(session.sql(query)[0][0]), f"the rows of {self.name}")

    def differences(
        self,
        session: AttachedSession,
        there: Callable[[Column, list[int]], dict[int, Any]],
        alike: Callable[[Column, Any], Any],
    ) -> list[str]:
        """The values that differ, and those that are an error or not, other than expected. ``there`` returns the values
        of some rows in the database; ``alike`` converts a value of rw_sql to the form of these values."""
        selected = ", ".join(
            f"unix_micros({name}) AS {name}" if declared == STAMP else name for name, _, declared, _ in self.columns
        )
        here = {row.id: row for row in session.sql(f"SELECT id, {selected} FROM {self.name}")}
        errors = session.sql(f"SELECT bytes, reason FROM `{self.name}$errors`")
        reasons = {int(json.loads(bytes(row.bytes))["id"]): row.reason for row in errors}
        found: list[str] = []
        for column in self.columns:
            name, kind, declared, refused = column
            numbers = [number for number, (of, _) in self.values.items() if of is column]
            ids = [number + more for number in numbers for more in (0, LATER)]
            theirs = there(column, [number for number in ids if number in here])
            for number in ids:
                value = self.values[number % LATER][1]
                what = f"{kind.type} {value:.60} as {declared} ({'stream' if number >= LATER else 'snapshot'})"
                if value in refused:
                    reason = reasons.get(number, "no error")
                    if number in here or not reason.startswith(f'column "{name}": '):
                        found.append(f"{what}: {reason}")
                elif number not in here:
                    found.append(f"{what}: {reasons.get(number, 'missing')}")
                elif not is_same(ours := alike(column, plain(here[number][name])), theirs[number]):
                    found.append(f"{what}: here {ours!r:.80}, there {theirs[number]!r:.80}")
        return found


def plain(value: Any) -> Any:
    """A value of Spark in the types of Python: a struct as a dictionary, bytes."""
    if isinstance(value, Row):
        return value.asDict(recursive=True)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def cases(kinds: tuple[Kind, ...]) -> list[Case]:
    """Tables whose columns have the types by ``(*)``, and tables with a column for each other documented type."""
    star = [(f"k{at}", kind, kind.by_star, kind.refused) for at, kind in enumerate(kinds)]
    others = [column for column in columns_of(kinds) if column[2] != column[1].by_star]
    return [
        Case(f"{name}_{at}", columns[at : at + MOST_COLUMNS])
        for name, columns in ((BY_STAR, star), ("declared", others))
        for at in range(0, len(columns), MOST_COLUMNS)
    ]


def create(session: AttachedSession, case: Case, source: str, schema: str) -> None:
    """Creates a table, and waits until it has the existing rows."""
    listed = ", ".join(f"{name} {written}" for name, _, written, _ in case.columns)
    columns = "*" if case.name.startswith(BY_STAR) else f"id INT PRIMARY KEY, {listed}"
    session.run(f"CREATE TABLE {case.name} ({columns}) FROM {source} TABLE '{schema}.{case.name}'")
    case.wait(session, 0)


@pytest.mark.postgres
def test_every_value_of_postgresql_arrives_or_is_an_error(session: AttachedSession, postgres: PostgresInfo) -> None:
    database = Database(session, postgres)
    database.run(
        "CREATE TYPE {s}.mood AS ENUM ('ok', 'very \"well\"'); CREATE TYPE {s}.pair AS (a INT, b TEXT); "
        "CREATE DOMAIN {s}.years AS INT; CREATE DOMAIN {s}.age AS {s}.years CHECK (VALUE > 0); "
        "CREATE DOMAIN {s}.price AS NUMERIC(8, 3); CREATE DOMAIN {s}.tags AS TEXT[]"
    )
    made = cases(POSTGRES_KINDS)
    for case in made:
        database.run(
            f"CREATE TABLE {{s}}.{case.name} ({case.definition})", "; ".join(case.rows(f"{{s}}.{case.name}", 0))
        )
    database.create_source()
    try:
        for case in made:
            create(session, case, "pg", database.schema)
            database.run("; ".join(case.rows(f"{{s}}.{case.name}", LATER)))
        for case in made:
            case.wait(session, LATER)
            table = f"{database.schema}.{case.name}"
            assert case.differences(session, lambda *given, of=table: of_postgres(postgres, of, *given), alike) == []
    finally:
        session.detach()
        database.drop()


def of_postgres(postgres: PostgresInfo, table: str, column: Column, ids: list[int]) -> dict[int, Any]:
    """The values of a column in PostgreSQL by the row's id."""
    name, kind, declared, _ = column
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, dbname="postgres", user=postgres.user, password=PASSWORD,
        options=_SETTINGS,
    ) as connection:  # fmt: skip
        query = f"SELECT id, {selected_of_postgres(name, kind.type, declared)} FROM {table} WHERE id = ANY (%s)"
        return dict(connection.execute(query.encode(), [ids]).fetchall())


def selected_of_postgres(name: str, written: str, declared: str) -> str:
    """The expression that has the value of a column as rw_sql's type. FORMAT has the text that SELECT shows."""
    word = declared.replace("[]", "").partition("(")[0]
    if written.endswith(("[]", ".tags")):
        match word:
            case "CHARACTER VARYING" | "UUID" | "JSONB":
                return f"{name}::numeric[]::text[]" if written == "money[]" else f"{name}::text[]"
            case "NUMERIC":
                return f"{name}::numeric[]"
            case _:
                return f"to_jsonb({name})" if word.startswith("STRUCT") else f"{name}::{_ELEMENTS[word]}[]"
    if declared.endswith("[]"):
        return name
    if written == "oid" and word in ("NUMERIC", "DOUBLE"):
        name = f"{name}::bigint"  # PostgreSQL casts an oid to no other type of numbers.
    match word:
        case "CHARACTER VARYING" | "UUID" | "JSONB":
            return f"format('%%s', {name}{'::numeric' if written == 'money' else ''})"
        case "BOOLEAN":
            return f"{name} = B'1'" if written.startswith("bit") else name
        case "NUMERIC" | "RW_INT256":
            return f"{name}::numeric"
        case "REAL":
            return f"{name}::real::float8"
        case "DOUBLE":
            return f"{name}::text::float8"
        case "TIMESTAMP":
            return f"{name}::timestamp"
        case "TIMESTAMP WITH TIME ZONE":
            return f"(extract(epoch FROM {name}) * 1000000)::bigint"
        case _:
            return name


def alike(column: Column, value: Any) -> Any:
    """A value of rw_sql as psycopg returns it: the JSON of an array as an array of texts, times with their zone."""
    _, kind, declared, _ = column
    if declared == VARYING and kind.type.endswith(("[]", ".tags")):
        return texts(json.loads(value, parse_float=str, parse_int=str))
    if declared == f"{STAMP}[]":
        return [each.astimezone(UTC) for each in value]
    return value


def texts(value: Any) -> Any:
    """The elements of an array as texts."""
    if isinstance(value, list):
        return [texts(each) for each in value]
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value


@pytest.mark.mysql
def test_every_value_of_mariadb_arrives_or_is_an_error(session: AttachedSession, mariadb: MysqlInfo) -> None:
    database = MysqlDatabase(session, mariadb)
    made = cases(MYSQL_KINDS)
    for case in made:
        database.run(_LAX, f"CREATE TABLE {{d}}.{case.name} ({case.definition})")
        database.run(_LAX, *case.rows(f"{{d}}.{case.name}", 0))
    database.create_source()
    try:
        for case in made:
            create(session, case, "my", database.name)
            database.run(_LAX, *case.rows(f"{{d}}.{case.name}", LATER))
        for case in made:
            case.wait(session, LATER)
            table = f"{database.name}.{case.name}"
            found = case.differences(session, lambda *given, of=table: of_mysql(mariadb, of, *given), alike_of_mysql)
            assert found == []
    finally:
        session.detach()
        database.run("DROP DATABASE {d}")


def of_mysql(server: MysqlInfo, table: str, column: Column, ids: list[int]) -> dict[int, Any]:
    """The values of a column in MariaDB by the row's id."""
    name, kind, declared, _ = column
    listed = ", ".join(map(str, [*ids, -1]))
    query = f"SELECT id, {selected_of_mysql(name, kind.type, declared)} FROM {table} WHERE id IN ({listed})"
    rows = dict(server.run(_LAX, query))
    if declared == "BOOLEAN":
        return {number: bool(value) for number, value in rows.items()}
    if kind.type == "json":
        return {number: json.loads(value) for number, value in rows.items()}
    return rows


def selected_of_mysql(name: str, written: str, declared: str) -> str:
    """The expression that has the value of a column as rw_sql's type."""
    if written in ("float", "double") or declared == "DOUBLE":
        return f"{name} + 0e0"
    if written == "bit(1)" or "zerofill" in written:
        return f"{name} + 0"
    if declared == VARYING and written.startswith("timestamp"):
        return f"CONCAT({name}, '+00')"
    if declared == VARYING and written.startswith(
        ("date", "time", "year", "tiny", "small", "medium", "int", "big", "dec")
    ):
        return f"CAST({name} AS CHAR)"
    if declared == STAMP:
        return f"CAST(UNIX_TIMESTAMP({name}) * 1000000 AS SIGNED)"
    return f"CAST({name} AS DATETIME(6))" if declared == "TIMESTAMP" else name


def alike_of_mysql(column: Column, value: Any) -> Any:
    """A value of rw_sql as the expression of :func:`selected_of_mysql` returns it."""
    _, kind, declared, _ = column
    if kind.type == "float" and declared in (VARYING, "DOUBLE"):
        return struct.unpack("f", struct.pack("f", float(value)))[0]
    if kind.type == "json" and isinstance(value, str):
        return json.loads(value)
    if declared != VARYING:
        return value
    if kind.type == "double":
        return float(value)
    if kind.type == "bit(1)" or "zerofill" in kind.type:
        return int(value)
    return bytes.fromhex(value[2:]) if kind.by_star == "BYTEA" else value
