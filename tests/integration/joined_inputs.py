"""A view that joins a Kafka-Avro table, a NATS stream and an Iceberg table, which change while their sources move.

The expected rows are computed in Python, from the records that were written and from the positions at which each
statement makes its source continue. These positions are never read from rw_sql. A seed draws the statements.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.integration.joined_upstreams import JoinedUpstreams, fields_of

if TYPE_CHECKING:
    from tests.integration.attached import AttachedSession
    from tests.integration.joined_upstreams import Reading

USERS, CLICKS, PRICES = "users", "clicks", "prices"
JOINED = (
    "SELECT u.id, u.name, u.score, u.tier, c.n, c.item, p.price FROM users AS u "
    "JOIN clicks_rows AS c ON u.id = c.id JOIN prices AS p ON p.item = c.item"
)
NAMED = "SELECT c.n, c.id, u.name, u.tier FROM clicks_rows AS c LEFT JOIN users AS u ON u.id = c.id"
QUERIES = {"joined": JOINED, "named": NAMED}

MOVES = (
    "inject users",
    "inject clicks",
    "inject prices",
    "reset users",
    "reset clicks",
    "topic",
    "stream",
    "undo",
    "refresh",
)
_MOST_STAGES = 5


class JoinedInputs:
    """Three upstreams, a source or table over each upstream, and the views that join the sources and tables.

    ``name`` begins the names of topics and streams.
    """

    def __init__(self, session: AttachedSession, *, seed: int, **upstreams: Any) -> None:
        """``upstreams`` are the arguments of :class:`JoinedUpstreams`."""
        self.session = session
        self.random = random.Random(seed)
        self.upstreams = JoinedUpstreams(dice=self.random, **upstreams)
        self.stage = 0
        self.done: list[str] = []
        self.facts: Counter[str] = Counter()
        self._create()

    def _create(self) -> None:
        up = self.upstreams
        for _ in range(3):
            up.write()
        topic, stream = up.topics[0], up.streams[0]
        self.session.run(
            f"CREATE TABLE users (*) WITH (connector = 'kafka', topic = '{topic}', properties.bootstrap.server = "
            f"'{up.bootstrap}') FORMAT UPSERT ENCODE AVRO (schema.registry = '{up.registry}') KEY ENCODE AVRO",
            f"CREATE SOURCE clicks (id BIGINT, item BIGINT, n BIGINT) WITH (connector = 'nats', server_url = "
            f"'{up.nats.url}', stream = '{stream}', subject = '{stream}.>') FORMAT PLAIN ENCODE JSON",
            "CREATE MATERIALIZED VIEW clicks_rows AS SELECT * FROM clicks",
            f"CREATE TABLE prices (item BIGINT, price BIGINT) WITH (connector = 'iceberg', {up.lake.clause})",
            *(f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in QUERIES.items()),
        )

    @property
    def readings(self) -> dict[str, Reading[Any]]:
        """The expected reads of each source."""
        up = self.upstreams
        return {USERS: up.users, CLICKS: up.clicks, PRICES: up.prices}

    def run(self, *, moves: int, steps: int, seconds: float = 0.0) -> Counter[str]:
        """Writes records in ``steps`` steps, with ``moves`` moves in between, in at least ``seconds`` seconds. Returns
        the counts.

        A kind of move is repeated only after all other kinds have been drawn.
        """
        began, never = time.monotonic(), threading.Event()
        deck: list[str] = []
        at = {steps * (number + 1) // (moves + 1) for number in range(moves)}
        for step in range(steps):
            never.wait(max(0.0, began + seconds * step / steps - time.monotonic()))
            self.upstreams.write()
            if step in at:
                deck = deck or self.random.sample(MOVES, len(MOVES))
                self.move(deck.pop())
        self.check()
        self._check_continuity()
        for source, reading in self.readings.items():
            self.facts[f"written to the upstreams of {source}"] = sum(map(len, reading.splits.values()))
        return self.facts

    def drop(self) -> None:
        """Removes the objects and the streams."""
        self.session.run("DROP TABLE users CASCADE", "DROP SOURCE clicks CASCADE", "DROP TABLE prices CASCADE")
        for stream in self.upstreams.streams:
            self.upstreams.nats.delete(stream)

    # The moves.

    def move(self, kind: str) -> None:
        """Makes one move, and compares every row afterwards."""
        if kind == "refresh" and self.upstreams.stage == _MOST_STAGES:
            kind = "topic"
        self._settle()
        self.done.append(kind)
        match kind.split():
            case ["inject", source]:
                self._inject(source)
            case ["reset", source]:
                self._reset(source)
            case ["topic"]:
                self._redirect(USERS)
            case ["stream"]:
                self._redirect(CLICKS)
            case ["undo"]:
                self._undo()
            case _:
                self._refresh()
        self.check()
        self.facts["moves"] += 1

    def _sql(self, *statements: str) -> None:
        self.done += statements
        self.session.run(*statements)

    def _settle(self) -> None:
        """Waits until the sources have read everything that was written, so that all positions are known."""
        self.session.sql("FLUSH")
        for reading in self.readings.values():
            reading.read_on(self.stage)

    def _inject(self, source: str) -> None:
        """Injects positions into a source. Records are written while the source is paused, so that the injected
        positions may skip records that were never read."""
        self._sql(f"PAUSE SOURCE {source}")
        self.upstreams.write()
        self._sql(f"INJECT SOURCE OFFSETS {source} {self._target(self.readings[source])} ALLOW CLAMP")
        self.upstreams.write()
        self._sql(f"RESUME SOURCE {source}")

    def _target(self, reading: Reading[Any]) -> str:
        """Draws a target of INJECT, and sets the target's positions in ``reading``."""
        bounds = {split: (reading.first, reading.end(split)) for split in reading.positions}
        kind = self.random.choice(["values", "values", "earliest", "latest", "shift", "shift"])
        if kind == "values":
            chosen = self.random.sample(sorted(bounds), self.random.randrange(1, len(bounds) + 1))
            # The positions are near the end, because each move to the beginning doubles the number of rows.
            places = {
                split: self.random.randrange(max(bounds[split][0], bounds[split][1] - 20), bounds[split][1] + 1)
                for split in chosen
            }
            reading.positions |= places
            listed = ", ".join(f"'{split}' = {at}" for split, at in places.items())
            return f"VALUES ({listed})"
        if kind == "shift":
            by = self.random.randrange(-15, 6)
            reading.positions = {
                split: min(max(at + by, bounds[split][0]), bounds[split][1]) for split, at in reading.positions.items()
            }
            return f"TO SHIFT {by}"
        reading.positions = {split: start if kind == "earliest" else end for split, (start, end) in bounds.items()}
        return f"TO {kind.upper()}"

    def _reset(self, source: str) -> None:
        reading = self.readings[source]
        lot = self.random.random()
        if lot < 0.3:
            # Every split still exists, so the source continues at its positions.
            self.upstreams.write()
            self._sql(f"RESET SOURCE SPLITS {source}")
        elif lot < 0.7 and source == USERS and self.upstreams.add_partition():
            self.upstreams.write()
            self._sql(f"RESET SOURCE SPLITS {source}")
        else:
            self._sql(f"RESET SOURCE SPLITS {source} WITH (FORGET_OFFSETS = true)")
            reading.begin(*reading.positions)

    def _redirect(self, source: str, *, as_block: bool = False) -> None:
        """Moves a source to the other topic or stream, where the source begins at the first record or at an injected
        position."""
        is_block = as_block or self.random.random() < 0.5
        if is_block:
            self._sql("BEGIN UNSAFE")
        self._sql(f"PAUSE SOURCE {source}")
        if not is_block:
            self.upstreams.write()
        self._sql(self._other(source), f"RESET SOURCE SPLITS {source}")
        if self.random.random() < 0.5:
            self._sql(f"INJECT SOURCE OFFSETS {source} {self._target(self.readings[source])} ALLOW CLAMP")
        self._sql(f"RESUME SOURCE {source}")
        if is_block:
            self._sql("COMMIT")

    def _other(self, source: str) -> str:
        """Makes the other topic or stream the first of the two, and returns the statement that moves the source to
        it."""
        up = self.upstreams
        if source == USERS:
            up.topics.reverse()
            up.read_topic()
            return f"ALTER TABLE users UNSAFE SET (topic = '{up.topics[0]}')"
        up.streams.reverse()
        up.read_stream()
        return f"ALTER SOURCE clicks UNSAFE SET (stream = '{up.streams[0]}', subject = '{up.streams[0]}.>')"

    def _undo(self) -> None:
        """Makes a move and undoes it, before or after the source has read further records. Sometimes, the undo is
        undone too."""
        source = self.random.choice([USERS, CLICKS])
        reading = self.readings[source]
        named = self.upstreams.topics if source == USERS else self.upstreams.streams
        before, reads_on = (list(named), dict(reading.positions)), True
        match self.random.choice(["redirect", "redirect", "forget", "inject", "inject"]):
            case "redirect":
                self._redirect(source, as_block=True)
                operation = self._newest_operation()
            case "forget":
                self._sql(f"RESET SOURCE SPLITS {source} WITH (FORGET_OFFSETS = true)")
                reading.begin(*reading.positions)
                operation = self._newest_operation()
            case _:
                reads_on = self.random.random() < 0.5
                self._sql(f"PAUSE SOURCE {source}")
                self.upstreams.write()
                self._sql(f"INJECT SOURCE OFFSETS {source} {self._target(reading)} ALLOW CLAMP")
                operation = self._newest_operation()
                if reads_on:
                    self._sql(f"RESUME SOURCE {source}")
        if reads_on:
            self.check()
        after = (list(named), dict(reading.positions))
        self._sql(f"UNDO OPERATION {operation}")
        named[:], reading.positions = before
        if not reads_on:
            self._sql(f"RESUME SOURCE {source}")
        elif self.random.random() < 0.4:
            self.check()
            self._sql(f"UNDO OPERATION {self._newest_operation()}")
            named[:], reading.positions = after

    def _newest_operation(self) -> int:
        return int(self.session.sql("SHOW UNSAFE OPERATIONS")[0].operation)

    def _refresh(self) -> None:
        """Makes writers use a new version of the schema, and then runs REFRESH SCHEMA, with or without unread records
        of the new version."""
        self.upstreams.add_field()
        self.upstreams.write()
        if self.random.random() < 0.5:
            self._settle()
            self._sql("ALTER TABLE users REFRESH SCHEMA")
        else:
            self._settle()
            self._sql("PAUSE SOURCE users")
            self.upstreams.write()
            self._sql("ALTER TABLE users REFRESH SCHEMA", "RESUME SOURCE users")
        self.stage = self.upstreams.stage

    # The comparison.

    def user_rows(self) -> dict[int, dict[str, Any]]:
        """The expected rows of the table of users, computed from its records in the order in which they were read."""
        rows: dict[int, dict[str, Any]] = {}
        for record, stage in self.upstreams.users.log:
            if record is None:
                continue
            row = record.row(stage)
            if row is None:
                rows.pop(record.id, None)
            else:
                rows[record.id] = row
        return rows

    def expected(self) -> dict[str, Counter[tuple[Any, ...]]]:
        """The expected rows of each table and view."""
        users, clicks = self.user_rows(), self.upstreams.clicks.rows
        prices = [row for rows in self.upstreams.prices.rows for row in rows]
        of_item: dict[int, list[int]] = {}
        for item, price in prices:
            of_item.setdefault(item, []).append(price)
        names = list(fields_of(self.stage))
        nobody = {"name": None, "tier": None}
        return {
            "users": Counter(tuple(row.get(name) for name in names) for row in users.values()),
            "clicks_rows": Counter(clicks),
            "prices": Counter(prices),
            "joined": Counter(
                (id_, user["name"], user["score"], user["tier"], n, item, price)
                for id_, item, n in clicks
                if (user := users.get(id_)) is not None
                for price in of_item.get(item, ())
            ),
            "named": Counter(
                (n, id_, user["name"], user["tier"]) for id_, _, n in clicks for user in [users.get(id_, nobody)]
            ),
        }

    def check(self) -> None:
        """Waits until all records are read, and checks that every table and view has the expected rows.

        Raises AssertionError with the differences and the statements so far.
        """
        self._settle()
        expected = self.expected()
        columns = {"users": ", ".join(fields_of(self.stage)), "clicks_rows": "id, item, n", "prices": "item, price"}
        for name, rows in expected.items():
            self._compare(name, f"SELECT {columns.get(name, '*')} FROM {name}", rows)
        for name, query in QUERIES.items():
            self._compare(f"the batch query of {name}", query, expected[name])
        for source in (USERS, CLICKS):
            errors = self.session.sql(f"SELECT count(*) FROM `{source}$errors`")[0][0]
            wanted = self.readings[source].errors
            assert errors == wanted, self._told(f"{source} has {errors} errors, not {wanted}")
        self.facts["comparisons"] += 1
        self.facts["rows compared"] += sum(rows.total() for rows in expected.values())

    def _compare(self, what: str, query: str, wanted: Counter[tuple[Any, ...]]) -> None:
        found = Counter(tuple(row) for row in self.session.sql(query))
        if found != wanted:
            missing, more = list((wanted - found).items()), list((found - wanted).items())
            raise AssertionError(
                self._told(
                    f"{what}: {len(missing)} rows are missing, such as {missing[:4]}; {len(more)} are too many, such "
                    f"as {more[:4]}"
                )
            )

    def _told(self, wrong: str) -> str:
        jobs = {name: (job.state, job.reason) for name, job in self.session.jobs().items() if job.state != "RUNNING"}
        return f"{wrong}; jobs: {jobs}; statements: {'; '.join(self.done[-40:])}"

    def _check_continuity(self) -> None:
        """Checks that no prediction was wrong, and that no source has repeated or skipped records between two
        operations."""
        for source in self.readings:
            rows = [row.asDict() for row in self.session.sql(f"SHOW SOURCE CONTINUITY {source}")]
            wrong = [row for row in rows if row["status"] in ("DIFFERS", "BROKEN")]
            assert not wrong, self._told(f"SHOW SOURCE CONTINUITY {source}: {wrong}")
            self.facts["predictions that came true"] += sum(row["status"] == "AS PREDICTED" for row in rows)
