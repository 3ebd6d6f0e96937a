"""Moves of a source that captures a database, while programs write to the database. The module compares the effects of
the moves with their previews."""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from tests.integration.attached import wait_until
from tests.integration.captured_database import Database
from tests.support.postgres import PASSWORD

if TYPE_CHECKING:
    from tests.support.postgres import PostgresInfo

SPLIT = "postgres"
_COUNTED = re.compile(r"(skips|repeats) (\d+) transactions? with (\d+) changes?")
_END_OF_STATEMENT = r"(?= reads | creates | skips | sets | restores |;|\n|$)"
CUSTOMERS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One transaction of the writer, with its number of changes to captured tables, and with positions in the server's
    log.

    ``inside`` is a position between two changes of the transaction, and ``after`` is a position between this
    transaction and the next transaction. ``at`` is a time between this transaction and the next transaction.
    """

    changes: int
    inside: int
    after: int
    at: str


class Writer:
    """Commits numbered transactions, one after another, in a thread. The numbers begin at 1."""

    def __init__(self, postgres: PostgresInfo, schema: str) -> None:
        self.written: dict[int, Written] = {}
        self._postgres, self._schema = postgres, schema
        self._done = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread. If an error has ended the thread already, raises this error."""
        self._done.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def wait_for(self, count: int) -> int:
        """Waits for ``count`` further transactions. Returns the number of the last transaction."""
        last = len(self.written) + count
        wait_until(lambda: len(self.written) >= last or self._error is not None, f"{count} transactions")
        return last

    def _run(self) -> None:
        try:
            with psycopg.connect(
                host="127.0.0.1",
                port=self._postgres.port,
                dbname="postgres",
                user=self._postgres.user,
                password=PASSWORD,
                autocommit=True,
                options=f"-c search_path={self._schema}",
            ) as connection:
                while not self._done.wait(0.02):
                    number = len(self.written) + 1
                    self.written[number] = self._commit(connection, number)
        except Exception as error:  # noqa: BLE001 - raised again by ``close``
            self._error = error

    def _commit(self, connection: psycopg.Connection[Any], number: int) -> Written:
        def run(text: str) -> int:
            return connection.execute(text.encode()).rowcount

        def number_of(text: str) -> Any:
            row = connection.execute(text.encode()).fetchone()
            return row[0] if row else None

        here = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
        if number % 5 == 0:
            run("INSERT INTO noise SELECT coalesce(max(id), 0) + 1 FROM noise")
            with connection.transaction(force_rollback=True):
                run(f"INSERT INTO steps VALUES (-{number}, 'rolled back')")
        with connection.transaction():
            changes = run(f"INSERT INTO steps VALUES ({number}, 'step {number}')")
            inside = number_of(here)
            changes += run(
                f"INSERT INTO orders VALUES ({number % CUSTOMERS}, 'c{number % 3}', {number}) "
                "ON CONFLICT (id) DO UPDATE SET amount = EXCLUDED.amount"
            )
            if number % 4 == 0:
                changes += run(f"DELETE FROM orders WHERE id = {number * 7 % CUSTOMERS}")
            if number % 6 == 0:
                changes += run("UPDATE orders SET amount = amount + 1 WHERE id < 5")
        after = number_of(here)
        # Times in statements have a precision of milliseconds.
        at = number_of("SELECT to_char((clock_timestamp() + interval '1 ms') AT TIME ZONE 'UTC', "
                       "'YYYY-MM-DD HH24:MI:SS.MS') || 'Z'")  # fmt: skip
        run("SELECT pg_sleep(0.003)")
        return Written(changes=changes, inside=int(inside), after=int(after), at=str(at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The numbers in the preview of a move. ``verb`` is ``skips`` or ``repeats``; empty if the preview has no counts.

    ``gap`` and ``repeated`` are numbers of bytes.
    """

    verb: str
    transactions: int
    changes: int
    gap: int
    repeated: int
    text: str


class CapturedShop:
    """A source ``pg`` with the tables ``orders`` and ``steps``, a view ``totals`` over ``orders``, and a view
    ``changes`` of the source itself, which has one row per change. A writer changes both tables all the time."""

    def __init__(self, database: Database) -> None:
        self.database, self.session = database, database.session
        self.skipped: set[int] = set()
        database.run(
            "CREATE TABLE {s}.orders (id INT PRIMARY KEY, customer TEXT, amount INT)",
            "CREATE TABLE {s}.steps (number BIGINT PRIMARY KEY, word TEXT)",
            "CREATE TABLE {s}.noise (id INT PRIMARY KEY)",
            f"INSERT INTO {{s}}.orders SELECT g, 'c' || g % 3, 0 FROM generate_series(0, {CUSTOMERS - 1}) g",
        )
        self.session.allow_unsafe()
        database.create_source()
        self.session.run(
            f"CREATE TABLE orders (*) FROM pg TABLE '{database.schema}.orders'",
            f"CREATE TABLE steps (*) FROM pg TABLE '{database.schema}.steps'",
            "CREATE MATERIALIZED VIEW totals AS SELECT customer, count(*) AS n, sum(amount) AS amount FROM orders "
            "GROUP BY customer",
            "CREATE MATERIALIZED VIEW changes AS SELECT table_name, op, `row` FROM pg",
        )
        database.wait_equal("orders")
        self.definition = self.create_sql()
        self.writer = Writer(database.postgres, database.schema)

    def close(self) -> None:
        self.writer.close()

    def create_sql(self) -> str:
        return str(self.session.sql("SHOW CREATE SOURCE pg")[0].create_sql)

    def position(self) -> int:
        at = self.session.positions("pg")[SPLIT]
        assert at is not None
        return at

    def newest_operation(self) -> int:
        return int(self.session.sql("SHOW UNSAFE OPERATIONS")[0].operation)

    def arrived(self) -> Counter[int]:
        """The number of times that each transaction is in the source's log. Rows of snapshots are not counted."""
        rows = self.session.sql(
            "SELECT get_json_object(`row`, '$.number') AS number FROM changes "
            f"WHERE op = 'c' AND table_name = '{self.database.schema}.steps'"
        )
        return Counter(int(row.number) for row in rows)

    def pause(self, transactions: int = 6) -> None:
        """Pauses the source, and waits until there are ``transactions`` unread transactions."""
        self.session.run("PAUSE SOURCE pg")
        self.writer.wait_for(transactions)

    def resume(self) -> None:
        """Resumes the source, and waits until it has read all present changes of the server."""
        self.session.run("RESUME SOURCE pg")
        self.writer.wait_for(3)
        self.require_acknowledged_at_most_committed()
        self.session.run("FLUSH")

    def move(self, statement: str) -> Predicted:
        """Runs an unsafe statement, and returns the numbers in its preview. EXPLAIN must show counts before the
        statement runs if and only if the preview shows counts."""
        (explained,) = {"\n".join(str(value) for row in self.session.sql(f"EXPLAIN {statement}") for value in row)}
        self.session.questions.clear()
        self.session.run(statement)
        found = predicted(self.session.questions[-1].preview)
        assert bool(found.verb) == bool(_COUNTED.search(explained)), explained
        return found

    def require_arrived(self, before: Counter[int], said: Predicted | None = None) -> None:
        """Checks that all transactions have arrived exactly once, except transactions that previews of moves have
        predicted as skipped. No row in ``before`` may have disappeared."""
        now = self.arrived()
        last = max(now)
        missing = [number for number in range(1, last + 1) if number not in now and number not in self.skipped]
        if said is None or not said.verb:
            assert not missing
        else:
            assert said.verb == "skips"
            assert len(missing) == said.transactions, (missing, said.text)
            assert missing == list(range(missing[0], missing[0] + len(missing))), missing
            assert sum(self.writer.written[number].changes for number in missing) == said.changes, said.text
        self.skipped.update(missing)
        assert set(now.values()) == {1}, now.most_common(3)
        assert not before - now

    def acknowledged(self) -> dict[str, int]:
        """The position up to which each slot has acknowledged the changes."""
        return dict(
            self.database.run(
                "SELECT s.slot_name, (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots s "
                f"WHERE slot_name LIKE '%{self.database.schema}'"
            )
        )

    def wait_for_acknowledgement(self) -> None:
        """Waits until the slot of the source has acknowledged the present position. The reader acknowledges a commit of
        the source's log after the commit, so a FLUSH does not wait for it."""
        reached = self.position()
        wait_until(lambda: max(self.acknowledged().values()) >= reached, "the acknowledgement")

    def require_acknowledged_at_most_committed(self) -> None:
        """Checks that no slot is ahead of the position of the source's log."""
        slots = self.acknowledged()
        reached = self.position()
        assert all(at <= reached for at in slots.values()), (slots, reached)

    def continuity(self, operation: int) -> Any:
        """The row of SHOW SOURCE CONTINUITY for an operation."""
        (row,) = [row for row in self.session.sql("SHOW SOURCE CONTINUITY pg") if row.operation == operation]
        return row

    def require_continuity(self) -> None:
        """Checks that each operation had the predicted effect, and that no record is missing or repeated between
        operations."""
        rows = self.session.sql("SHOW SOURCE CONTINUITY pg")
        assert not [row for row in rows if row.status in ("DIFFERS", "BROKEN", "NOT PREDICTED")], rows

    def require_as_predicted(self, said: Predicted) -> None:
        """Checks that the log shows the effect that the preview of the newest operation predicted."""
        row = self.continuity(self.newest_operation())
        assert (row.status, row.gaps, row.duplicates) == ("AS PREDICTED", said.gap, said.repeated), (row, said.text)

    def require_equal(self) -> None:
        """Stops the writer, and waits until the tables equal the server's tables and the view equals the result of its
        query."""
        self.writer.close()
        self.session.run("FLUSH")
        for table in ("orders", "steps"):
            self.database.wait_equal(table)
        wait_until(
            lambda: (
                self.session.rows_of("totals")
                == self.session.rows_of("(SELECT customer, count(*), sum(amount) FROM orders GROUP BY customer)")
            ),
            "the view to equal its query",
        )

    def read_tables_again(self, statement: str) -> None:
        """Runs a statement that a message has suggested, and that makes the source read its tables again."""
        assert statement.startswith("RESET SOURCE SPLITS pg"), statement
        if self.session.sql("SHOW SOURCES")[0].state != "PAUSED":
            self.session.run("PAUSE SOURCE pg")
        self.session.run(statement, "RESUME SOURCE pg")


def predicted(preview: str) -> Predicted:
    """The numbers of a preview."""
    found = _COUNTED.search(preview)
    total = next(line for line in preview.splitlines() if line.strip().startswith("in all:"))
    repeated, gap = (int(number) for number in re.findall(r"(?:DUPLICATES|GAP) (?:at most )?(\d+)", total))
    return Predicted(
        verb=found[1] if found else "",
        transactions=int(found[2]) if found else 0,
        changes=int(found[3]) if found else 0,
        gap=gap,
        repeated=repeated,
        text=preview,
    )


def named_in(text: str | None, first: str) -> str:
    """Finds a statement in a message by the statement's first words, and returns the whole statement."""
    found = re.search(re.escape(first) + r".*?" + _END_OF_STATEMENT, text or "")
    assert found is not None, text
    return found[0]
