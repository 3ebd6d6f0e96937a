"""Random moves of one source over a Kinesis stream that is resharded at the same time. Each preview is compared with
the rows.

Every record contains its number, and every row contains its shard and its sequence number. Therefore, the rows show how
often each record has arrived.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.connectors.kinesis.shards import ENDED
from rw_sql.model.split_status import NEW
from tests.support.kinesis_server import REGION, now_ms

if TYPE_CHECKING:
    from tests.integration.attached import AttachedSession
    from tests.support.kinesis_server import KinesisServer

MOVES = ("values", "earliest", "latest", "timestamp", "forget", "reshard")
_ROW = re.compile(r"^\s+(shardId-\S+)\s+(\d+|-)\s+(\d+|-)\s+(\[\d+, \d+\)|not there|unknown)\s+(\S.*)$", re.MULTILINE)

Row = tuple[str, int]
"""A record as its row describes it: its shard and its sequence number."""


@dataclass(slots=True)
class Totals:
    """The totals of the moves of a run."""

    moves: int = 0
    rows: int = 0
    duplicates: int = 0
    gaps: int = 0
    reshardings: int = 0


@dataclass(slots=True)
class MovedStream:
    """A source with a view of all its rows. The source reads a stream whose shards this class fills, splits and
    merges."""

    session: AttachedSession
    server: KinesisServer
    name: str
    seed: int
    total: Totals = field(default_factory=Totals)
    rows: Counter[Row] = field(default_factory=Counter)
    sent: dict[Row, int] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.server.create(self.name, shards=2)
        self._fill()
        self.session.run(
            f"CREATE SOURCE s_{self.name} (n INT) INCLUDE partition AS shard INCLUDE offset AS seq "
            f"WITH (connector = 'kinesis', stream = '{self.name}', aws.region = '{REGION}', "
            f"endpoint = '{self.server.endpoint}', aws.credentials.access_key_id = 'tests', "
            "aws.credentials.secret_access_key = SECRET kinesis_key, kinesis.reader.eof_retry_interval_ms = '50') "
            "FORMAT PLAIN ENCODE JSON",
            f"CREATE MATERIALIZED VIEW v_{self.name} AS SELECT n, shard, seq FROM s_{self.name}",
        )
        self._read_on()

    def drop(self) -> None:
        """Removes the source, its view and the stream."""
        self.session.run(f"DROP SOURCE s_{self.name} CASCADE")
        self.server.delete(self.name)

    def run(self, moves: int) -> Totals:
        """Makes ``moves`` moves, with a check after each move."""
        for _ in range(moves):
            self.move(self.random.choice(MOVES))
        return self.total

    def move(self, move: str) -> None:
        """Makes one move. While the source is paused, records are sent and shards are split or merged. Afterwards, the
        preview is compared with the rows."""
        source = f"s_{self.name}"
        if move == "reshard":
            # Resharding while the source runs must not lose or repeat a record.
            self._reshard()
            before = self.rows
            self._read_on()
            came = self.rows - before
            assert not before - self.rows
            assert set(came) == set(self.sent) - set(before) - self._skipped
            assert set(came.values()) <= {1}
            self.total.reshardings += 1
            return
        self.session.sql(f"PAUSE SOURCE {source}")
        if self.random.random() < 0.4:
            self._reshard()
        self._fill()
        self.session.questions.clear()
        if move == "forget":
            self.session.sql(f"RESET SOURCE SPLITS {source} WITH (FORGET_OFFSETS = true)")
        else:
            self.session.sql(f"INJECT SOURCE OFFSETS {source} {self._target(move)} ALLOW CLAMP")
        preview = "\n".join(question.preview for question in self.session.questions)
        predicted = {split: (old, new, verdict) for split, old, new, _, verdict in _ROW.findall(preview)}
        self.session.sql(f"RESUME SOURCE {source}")
        before = self.rows
        self._read_on()
        self._check(preview, before, predicted)
        self.total.moves += 1

    @property
    def _skipped(self) -> set[Row]:
        """The records that a move has skipped and that were not read after a later move."""
        return {row for row in self.sent if row not in self.rows and row[1] < self.reached.get(row[0], 0)}

    @property
    def reached(self) -> dict[str, int]:
        """The position of each shard."""
        return {split: int(at or 0) for split, at in self.session.positions(f"s_{self.name}").items()}

    def _fill(self) -> None:
        count = self.random.randrange(5, 30)
        some = [(f"key{self.random.randrange(20)}", b'{"n": %d}' % (len(self.sent) + at)) for at in range(count)]
        for at, row in enumerate(self.server.put(self.name, *some), len(self.sent)):
            self.sent[row] = at
        self.times.append(now_ms())

    def _reshard(self) -> None:
        shards = self.server.open_shards(self.name)
        if len(shards) > 1 and (len(shards) > 4 or self.random.random() < 0.5):
            at = self.random.randrange(len(shards) - 1)
            self.server.merge(self.name, shards[at], shards[at + 1])
        else:
            self.server.split(self.name, self.random.choice(shards))
        self._fill()

    def _target(self, move: str) -> str:
        match move:
            case "values":
                # A NEW shard cannot be named, because the shard was created while the source was paused, and the source
                # does not have it yet.
                statuses = self.session.split_statuses(f"s_{self.name}")
                shards = sorted({shard for shard, _ in self.sent} & {of for of in statuses if statuses[of] != NEW})
                chosen = self.random.sample(shards, self.random.randrange(1, len(shards) + 1))
                places = {
                    shard: self.random.choice([number for of, number in self.sent if of == shard]) for shard in chosen
                }
                return "VALUES (" + ", ".join(f"'{shard}' = {at}" for shard, at in places.items()) + ")"
            case "earliest" | "latest":
                return f"TO {move.upper()}"
            case "timestamp":
                at = self.random.choice(self.times)
                stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at // 1000))
                return f"TO TIMESTAMP '{stamp}.{at % 1000:03d}+00:00'"
            case _:
                raise AssertionError(move)

    def _read_on(self) -> None:
        self.session.sql("FLUSH")
        self.rows = Counter(
            (row.shard, int(row.seq)) for row in self.session.sql(f"SELECT shard, seq FROM v_{self.name}")
        )

    def _check(self, preview: str, before: Counter[Row], predicted: dict[str, tuple[str, str, str]]) -> None:
        came = self.rows - before
        assert not before - self.rows, "rows went away"
        assert predicted, preview
        for shard, (old, new, verdict) in predicted.items():
            found = sorted(row for row in came.elements() if row[0] == shard)
            start = int(new) if new != "-" else 0
            due = sorted(row for row in self.sent if row[0] == shard and row[1] >= start)
            assert found == due, f"{shard}: {found} came, not {due}\n{preview}"
            self.total.rows += len(found)
            doubled = sum(row in before for row in found)
            left = [row for row in self.sent if row[0] == shard and row[1] < start and row not in self.rows]
            if old != "-":
                left = [row for row in left if row[1] >= min(int(old), ENDED)]
            # Sequence numbers do not count records. A preview therefore only says that there may be duplicates or gaps,
            # and must always say so if there are any.
            assert not doubled or "DUPLICATES" in verdict, f"{shard}: {doubled} doubled\n{preview}"
            assert not left or "GAP" in verdict, f"{shard}: {left} left out\n{preview}"
            self.total.duplicates += doubled
            self.total.gaps += len(left)
