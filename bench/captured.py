"""The PostgreSQL database of the change data capture cases. The module creates and changes the database's tables, and
compares them with the rows that a side has read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv

from bench.harness import NotRunError
from tests.support.postgres import PASSWORD

if TYPE_CHECKING:
    import psycopg

    from tests.support.postgres import PostgresInfo

SERVER = {
    "wal_level": "logical",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "autovacuum": "off",
    # While one side is measured, the other sides are suspended. The server must not close their connections.
    "wal_sender_timeout": "0",
}
"""The server's settings."""

SECRET = "RW_SQL_BENCH_PASSWORD"
"""The environment variable with the password, for :func:`create_source`."""

TABLES = {
    "orders": "id BIGINT PRIMARY KEY, customer VARCHAR, amount NUMERIC(12, 2), quantity INT, ordered_at TIMESTAMPTZ, "
    "note VARCHAR",
    "fresh": "id BIGINT PRIMARY KEY, bucket INT",
}
"""The tables and their columns, as a statement of rw_sql lists them."""

COMPARED = "id, customer, CAST(amount AS {text}) AS amount, quantity, {micros} AS ordered_at, note"
"""The compared columns of the table as SQL. In each system, other expressions replace ``text`` and ``micros``."""

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.string()),
        ("quantity", pa.int32()),
        ("ordered_at", pa.int64()),
        ("note", pa.string()),
    ]
)
"""The compared columns: the time in microseconds since 1970, the amount as text."""

PER_TRANSACTION = 1_000
_UPDATED, _DELETED = 600, 200
_INSERTED = PER_TRANSACTION - _UPDATED - _DELETED
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EVERY = 0.05
_EACH = 10
_LONGEST = 60.0
_STEP = 0.005


@dataclass(slots=True)
class Orders:
    """A table ``orders`` with ``rows`` rows and ``changes`` changes, and an empty table ``fresh``, into which
    :meth:`ages` inserts rows to measure when they are visible."""

    postgres: PostgresInfo
    rows: int
    changes: int

    @property
    def transactions(self) -> int:
        """The number of transactions of all changes."""
        return self.changes // PER_TRANSACTION

    @property
    def last_id(self) -> int:
        """The id of the row that the last change inserts, which is the highest id."""
        return self.rows + self.transactions * _INSERTED

    def create(self) -> None:
        """Creates both tables again, without changes. Raises ValueError for too few rows."""
        if self.changes % PER_TRANSACTION or self.rows < self.transactions * (_UPDATED + _DELETED):
            raise ValueError(f"{self.changes} changes need thousands, and at least 0.8 rows per change")
        for statement in (
            "DROP TABLE IF EXISTS orders, fresh",
            "CREATE TABLE orders AS SELECT g::bigint AS id, 'customer ' || g % 9973 AS customer, "
            "(g % 1000000 / 100.0)::numeric(12, 2) AS amount, (g % 50)::int AS quantity, "
            "timestamptz '2024-01-01 00:00:00.5+00' + g * interval '13 second' AS ordered_at, md5(g::text) AS note "
            f"FROM generate_series(1, {self.rows}) g",
            "ALTER TABLE orders ADD PRIMARY KEY (id)",
            "CREATE TABLE fresh (id BIGINT PRIMARY KEY, bucket INT)",
            "ANALYZE orders",
            "CHECKPOINT",
        ):
            self.postgres.run(statement)

    def change(self) -> None:
        """Commits all changes. Each transaction has 600 updates, 200 deletes and 200 inserts."""
        step = self.rows // self.transactions
        with self.connection() as connection:
            for number in range(self.transactions):
                at, new = number * step, self.rows + number * _INSERTED
                with connection.transaction():
                    connection.execute(
                        "UPDATE orders SET amount = amount + 1, note = md5(note) WHERE id > %s AND id <= %s",
                        [at, at + _UPDATED],
                    )
                    connection.execute(
                        "DELETE FROM orders WHERE id > %s AND id <= %s", [at + _UPDATED, at + _UPDATED + _DELETED]
                    )
                    connection.execute(
                        "INSERT INTO orders SELECT g, 'new', 1.5, 1, '2025-01-01 00:00:00+00', 'n' || g "
                        "FROM generate_series(%s::bigint, %s::bigint) g",
                        [new + 1, new + _INSERTED],
                    )

    def ages(self, seconds: float, shown: Callable[[], int]) -> list[float]:
        """Commits ten rows of ``fresh`` every 50 ms for ``seconds`` seconds; returns the age of each commit, in
        seconds, at the moment when it becomes visible.

        ``shown`` returns the number of rows that are visible so far. Raises NotRunError if a row never becomes visible.
        """
        count = round(seconds / _EVERY)
        committed: list[float] = []
        found: list[float] = []
        first, started = shown(), time.perf_counter()
        with self.connection() as connection:
            while len(found) < count:
                now = time.perf_counter()
                if now - started > seconds + _LONGEST:
                    raise NotRunError(f"{len(found)} of {count} commits are visible")
                if len(committed) < count and now - started >= len(committed) * _EVERY:
                    at = first + len(committed) * _EACH
                    connection.execute(
                        "INSERT INTO fresh SELECT g, mod(g, 8) FROM generate_series(%s::bigint, %s::bigint) g",
                        [at + 1, at + _EACH],
                    )
                    committed.append(time.perf_counter())
                seen, now = (shown() - first) // _EACH, time.perf_counter()
                found.extend(now - committed[number] for number in range(len(found), seen))
                time.sleep(_STEP)
        return sorted(found)

    def compared(self) -> pa.Table:
        """The rows of ``orders`` in the order of their ids, with the columns of SCHEMA."""
        columns = COMPARED.format(text="text", micros="(extract(epoch FROM ordered_at) * 1000000)::bigint")
        query = f"COPY (SELECT {columns} FROM orders ORDER BY id) TO STDOUT (FORMAT csv)"
        with self.connection() as connection, connection.cursor().copy(query.encode()) as copy:
            text = b"".join(copy)
        return pa.csv.read_csv(
            BytesIO(text),
            read_options=pa.csv.ReadOptions(column_names=SCHEMA.names),
            convert_options=pa.csv.ConvertOptions(column_types=SCHEMA),
        ).combine_chunks()

    def connection(self) -> psycopg.Connection[Any]:
        """A connection that commits each statement."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1",
            port=self.postgres.port,
            dbname="postgres",
            user=self.postgres.user,
            password=PASSWORD,
            autocommit=True,
        )


def create_source(postgres: PostgresInfo, slot: str) -> str:
    """The statement that creates a source ``pg`` of the server, with the secret ``pw``."""
    return (
        f"CREATE SOURCE pg WITH (connector = 'postgres-cdc', hostname = '127.0.0.1', port = '{postgres.port}', "
        f"username = '{postgres.user}', password = SECRET pw, database.name = 'postgres', "
        f"slot.name = '{slot}', publication.name = '{slot}')"
    )


def require_equal(name: str, found: pa.Table, wanted: pa.Table) -> None:
    """Raises RuntimeError, with the first difference, if the rows of side ``name`` differ from the rows of the
    database."""
    found, wanted = found.cast(SCHEMA).combine_chunks(), wanted.combine_chunks()
    if found.equals(wanted):
        return
    count = min(found.num_rows, wanted.num_rows)
    pairs: Iterator[tuple[Any, Any]] = zip(
        found.slice(0, count).to_pylist(), wanted.slice(0, count).to_pylist(), strict=True
    )
    differ = next(((one, other) for one, other in pairs if one != other), ("no more", "no more"))
    raise RuntimeError(
        f"{name} has {found.num_rows:,} rows and PostgreSQL {wanted.num_rows:,}: {differ[0]} instead of {differ[1]}"
    )


def rows_of_events(file: Path) -> pa.Table:
    """The rows of the table after all events in a file that :class:`bench.debezium.Engine` wrote, with the columns of
    SCHEMA."""
    rows: dict[int, dict[str, Any]] = {}
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            after = event["after"]
            if after is None:
                del rows[event["before"]["id"]]
            else:
                rows[after["id"]] = after
    told: Sequence[dict[str, Any]] = [rows[key] for key in sorted(rows)]
    columns = {name: [row[name] for row in told] for name in SCHEMA.names}
    columns["ordered_at"] = [_micros(text) for text in columns["ordered_at"]]
    return pa.table(columns, schema=SCHEMA)


def _micros(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
