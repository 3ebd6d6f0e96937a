"""Random moves of one source over two streams of a real server. Each preview is compared with the rows.

The server is a NATS server. ``rabbit_moves`` does the same with a RabbitMQ server.

Every message contains the incarnation of its stream, and every row contains its stream and its sequence number.
Therefore, the rows show how often each message has arrived.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.nats.source import NatsConnector, NatsPartReader

if TYPE_CHECKING:
    from tests.integration.attached import AttachedSession

MOVES = ("values", "earliest", "latest", "offset", "timestamp", "shift", "group", "forget", "recreate")
_ROW = re.compile(r"^\s+(\S+)\s+(\d+|-)\s+(\d+|-)\s+(\[\d+, \d+\)|not there|unknown)\s+(\S.*)$", re.MULTILINE)
_COUNT = r"{} (?:at most )?(\d+)"

Row = tuple[str, str, int]
"""A message as its row describes it: the incarnation of the stream, the stream and the sequence number."""


@dataclass(slots=True)
class Totals:
    """The totals of the moves of a run."""

    moves: int = 0
    rows: int = 0
    duplicates: int = 0
    gaps: int = 0
    targets: Counter[str] = field(default_factory=Counter)


class MovedStreams:
    """A source with a view of all its rows, over two streams that this class fills, purges and creates again.

    The second stream also has deleted messages, and messages of a subject that the source does not read.
    """

    connector = "nats"

    def __init__(self, session: AttachedSession, server: Any, name: str, seed: int) -> None:
        self.session, self.server, self.name = session, server, name
        self.random = random.Random(seed)
        self.streams = (f"{name}a", f"{name}b")
        self.lives = dict.fromkeys(self.streams, 0)
        self.total = Totals()
        self.rows: Counter[Row] = Counter()
        self.ends: dict[str, int] = {}
        self.reached: dict[str, int] = {}
        """Maps each stream, in its present incarnation, to the end of the newest batch that was read."""
        self.options = self._made_options()
        self.times = [int(time.time() * 1000)]
        for stream in self.streams:
            self._create(stream)
        self._fill()
        given = ", ".join(f"{key} = '{value}'" for key, value in self.options.items())
        session.run(
            f"CREATE SOURCE s_{name} (life VARCHAR) INCLUDE partition AS stream INCLUDE offset AS seq "
            f"WITH (connector = '{self.connector}', {given}) FORMAT PLAIN ENCODE JSON",
            f"CREATE MATERIALIZED VIEW v_{name} AS SELECT life, stream, seq FROM s_{name}",
        )
        self._read_on()

    def drop(self) -> None:
        """Removes the source, its view and the streams."""
        self.session.run(f"DROP SOURCE s_{self.name} CASCADE")
        for stream in self.streams:
            self.server.delete(stream)

    def run(self, moves: int) -> Totals:
        """Makes ``moves`` moves, with a check after each move."""
        for _ in range(moves):
            self.move(self.random.choice(MOVES))
        return self.total

    def move(self, move: str) -> None:
        """Makes one move. While the source is paused, messages are added and removed. Afterwards, the preview is
        compared with the rows."""
        source = f"s_{self.name}"
        self.session.sql(f"PAUSE SOURCE {source}")
        self._fill()
        self._remove(with_unread=move not in ("recreate", "forget"))
        self.session.questions.clear()
        if move == "recreate":
            self._recreate(self.random.choice(self.streams))
            self.session.sql(f"RESET SOURCE SPLITS {source}")
        elif move == "forget":
            self.session.sql(f"RESET SOURCE SPLITS {source} WITH (FORGET_OFFSETS = true)")
        else:
            self.session.sql(f"INJECT SOURCE OFFSETS {source} {self._target(move)} ALLOW CLAMP")
        preview = "\n".join(question.preview for question in self.session.questions)
        predicted = {split: (old, int(new), verdict) for split, old, new, _, verdict in _ROW.findall(preview)}
        self.session.sql(f"RESUME SOURCE {source}")
        before = self.rows
        self._read_on()
        self._check(preview, before, predicted)
        for stream, (_, new, _) in predicted.items():
            if new < self.ends[stream]:
                self.reached[stream] = self.ends[stream]
        self.total.moves += 1
        self.total.targets[move] += 1

    # The streams.

    def _made_options(self) -> dict[str, str]:
        """The options of the source."""
        return {
            "server_url": self.server.url,
            "stream": ", ".join(self.streams),
            "subject": f"{self.name}a.>, {self.name}b.read.*",
        }

    def _create(self, stream: str) -> None:
        self.server.create(stream, f"{stream}.>")

    def bounds(self) -> dict[str, tuple[int, int]]:
        """The first sequence number and the end of each stream, from the server."""
        splits = NatsConnector().look(self.options).splits
        return {stream: (splits[stream].start, splits[stream].end) for stream in self.streams}

    def present(self, stream: str) -> list[int]:
        """The sequence numbers of the messages that the source must read, from a separate subscription."""
        start, end = self.bounds()[stream]
        (table,) = NatsPartReader().read({**self.options, "subject": ">"}, (stream, start, end, None))
        return [row["_rw_offset"] for row in table.to_pylist() if ".skip" not in row["subject"]]

    def _fill(self) -> None:
        for stream in self.streams:
            value = json.dumps({"life": f"{stream}#{self.lives[stream]}"}).encode()
            self.server.publish(f"{stream}.read.x", [value] * self.random.randrange(1, 9))
            if stream == self.streams[1]:
                self.server.publish(f"{stream}.skip", [value] * self.random.randrange(3))
                self.server.publish(f"{stream}.read.y", [value] * self.random.randrange(3))
        self.times.append(int(time.time() * 1000))

    def _remove(self, *, with_unread: bool) -> None:
        bounds = self.bounds()
        start, end = bounds[self.streams[1]]
        if self.random.random() < 0.3 and end - start > 4:
            # The first message is not deleted, because its deletion would be a purge. The deleted message may have been
            # read or not.
            self.server.delete_messages(self.streams[1], *self._existing(self.streams[1], start + 1, end))
        if self.random.random() < 0.3:
            stream = self.random.choice(self.streams)
            most = bounds[stream][1] if with_unread else self.ends[stream]
            self.server.purge(stream, seq=self.random.randrange(bounds[stream][0], max(most, bounds[stream][0]) + 1))

    def _existing(self, stream: str, start: int, end: int) -> list[int]:
        chosen = self.random.randrange(start, end)
        (table,) = NatsPartReader().read({**self.options, "subject": ">"}, (stream, chosen, chosen + 1, None))
        return [row["_rw_offset"] for row in table.to_pylist()]

    def _recreate(self, stream: str) -> None:
        self.server.delete(stream)
        self._create(stream)
        self.lives[stream] += 1
        self.reached.pop(stream, None)
        self._fill()

    # The source.

    def _target(self, move: str) -> str:
        places = {
            stream: self.random.randrange(start, end + 1) for stream, (start, end) in sorted(self.bounds().items())
        }
        match move:
            case "values":
                listed = ", ".join(f"'{stream}' = {at}" for stream, at in places.items())
                return f"VALUES ({listed})"
            case "earliest" | "latest":
                return f"TO {move.upper()}"
            case "offset":
                return f"TO OFFSET {max(places.values())}"
            case "timestamp":
                at = self.random.choice(self.times)
                stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at // 1000))
                return f"TO TIMESTAMP '{stamp}.{at % 1000:03d}+00:00'"
            case "shift":
                return f"TO SHIFT {self.random.randrange(-10, 11)}"
            case "group":
                group = f"g{self.total.moves}"
                for stream, at in places.items():
                    self._make_group(stream, group, at)
                return f"FROM GROUP '{group}'"
            case _:
                raise AssertionError(move)

    def _make_group(self, stream: str, group: str, at: int) -> None:
        """Creates a durable consumer that counts all messages before a position as acknowledged."""
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        config = ConsumerConfig(
            durable_name=group,
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=max(1, at),
        )
        self.server.do(lambda js: js.add_consumer(stream, config))

    def _read_on(self) -> None:
        self.session.sql("FLUSH")
        self.rows = Counter(
            (row.life, row.stream, int(row.seq))
            for row in self.session.sql(f"SELECT life, stream, seq FROM v_{self.name}")
        )
        self.reached = self.reached or {stream: end for stream, (_, end) in self.bounds().items()}
        self.ends = {stream: end for stream, (_, end) in self.bounds().items()}

    # The proof.

    def _check(self, preview: str, before: Counter[Row], predicted: dict[str, tuple[str, int, str]]) -> None:
        came = self.rows - before
        assert not before - self.rows, "rows went away"
        assert set(predicted) == set(self.streams), preview
        for stream, (old, new, verdict) in predicted.items():
            life = f"{stream}#{self.lives[stream]}"
            found = sorted((row for row in came.elements() if row[1] == stream), key=lambda row: row[2])
            present = self.present(stream)
            due = [at for at in present if at >= new]
            assert [row[2] for row in found] == due, f"{stream}: {found} came, not {due}\n{preview}"
            assert {row[0] for row in found} <= {life}, f"{stream}: {found} came\n{preview}"
            self.total.rows += len(found)
            if verdict.startswith("UNKNOWN"):
                continue
            # For a stream that was never read, a gap is the range between its positions.
            skipped = range(self.reached.get(stream, new if old == "-" else int(old)), new)
            missing = [at for at in skipped if (life, stream, at) not in self.rows]
            if "at most" in verdict:
                missing = [at for at in missing if at in present]
            observed = {"DUPLICATES": sum(row in before for row in found), "GAP": len(missing)}
            said = {word: sum(map(int, re.findall(_COUNT.format(word), verdict))) for word in observed}
            told = f"{stream}: predicted {verdict}, observed {observed}\n{preview}"
            if "at most" in verdict:
                assert all(observed[word] <= said[word] for word in said), told
            else:
                assert said == observed, told
            self.total.duplicates += observed["DUPLICATES"]
            self.total.gaps += observed["GAP"]
