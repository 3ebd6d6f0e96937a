"""Random moves of one source on a real broker: the predictions of each preview are compared with counts from the rows
themselves.

Every record contains its topic and the topic's incarnation, and every row contains its partition and offset. Therefore,
the rows show which records arrived twice, and which records never arrived.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from rw_sql.cli.servers.kafka_topics import Record, create_topic, delete_records, delete_topic, produce
from rw_sql.model.offset_files import write_offsets
from tests.support.plain_consumer import bounds_of, offsets_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.integration.attached import AttachedSession

RETAINED, COMPACTED, TRANSACTIONAL = "retained", "compacted", "transactional"
KINDS = (RETAINED, COMPACTED, TRANSACTIONAL)
FILES = ("file map", "file connect", "file csv", "file csv4", "file rpk", "file spark")
TARGETS = (
    "values",
    *FILES,
    "group",
    "checkpoint",
    "source",
    "earliest",
    "latest",
    "offset",
    "timestamp",
    "back by",
    "shift",
    "last seen",
    "null",
)
MOVES = (*TARGETS, "forget", "recreate", "other topic")

_EPOCH_MS = 1_700_000_000_000
_ROW = re.compile(r"^\s+(\S+:\d+)\s+(\d+|-)\s+(\d+|-)\s+(\[\d+, \d+\)|not there|unknown)\s+(\S.*)$", re.MULTILINE)
_COUNT = r"{} (?:at most )?(\d+)"

Row = tuple[str, int, int]
"""A record as its row describes it: the topic with its incarnation (``topic#life``), the partition and the offset."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One move, and the changes of the topic while the source is paused before the move. ``more`` has the number of new
    records for each partition. ``expired`` and ``places`` are shares of a partition's range of offsets, per mille."""

    move: str
    more: tuple[int, ...]
    expired: int | None
    places: tuple[int, ...]
    is_partial: bool
    before: str | None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A topic, and the history of the source that reads it."""

    kind: str
    records: tuple[int, ...]
    steps: tuple[Step, ...]


def _steps(partitions: int) -> st.SearchStrategy[Step]:
    per_mille = st.integers(0, 1000)
    return st.builds(
        Step,
        move=st.sampled_from(MOVES),
        more=st.tuples(*[st.integers(0, 12)] * partitions),
        expired=st.none() | per_mille,
        places=st.tuples(*[per_mille] * partitions),
        is_partial=st.booleans(),
        before=st.none() | st.sampled_from(("values", "earliest", "latest")),
    )


scenarios = st.integers(1, 8).flatmap(
    lambda partitions: st.builds(
        Scenario,
        kind=st.sampled_from(KINDS),
        records=st.tuples(*[st.integers(0, 25)] * partitions),
        steps=st.lists(_steps(partitions), min_size=1, max_size=3).map(tuple),
    )
)


def drawn(number: int, count: int) -> list[Scenario]:
    """The scenarios of a seed. A seed always gives the same scenarios. Hypothesis begins with the simplest scenarios,
    which are left out."""
    found: list[Scenario] = []

    @seed(number)
    @settings(
        max_examples=40 + count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(scenarios)
    def draw(scenario: Scenario) -> None:
        found.append(scenario)

    draw()
    return found[-count:]


def _values(named: Mapping[str, object]) -> str:
    listed = ", ".join(f"'{split}' = {at}" for split, at in named.items())
    return f"VALUES ({listed})"


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """The prediction for one split: the positions before and after the move, and the verdict."""

    old: int | None
    new: int
    verdict: str


@dataclass(slots=True)
class Totals:
    """The totals of the moves of a run."""

    moves: int = 0
    rows: int = 0
    duplicates: int = 0
    gaps: int = 0
    targets: Counter[str] = field(default_factory=Counter)


class MovedSource:
    """A source ``s`` with a view ``v`` of all its rows. This class fills the source's topic, expires its records, and
    creates the topic again."""

    def __init__(self, session: AttachedSession, bootstrap: str, folder: Path, name: str, scenario: Scenario) -> None:
        self.session, self.bootstrap, self.folder = session, bootstrap, folder
        self.scenario = scenario
        self.partitions = len(scenario.records)
        self.name = name
        self.topic, self.life = f"{name}.0", 0
        self.total = Totals()
        self.rows: Counter[Row] = Counter()
        self.stands: dict[int, int] = {}
        self.reached: dict[int, int] = {}
        """Maps each partition of the topic's present incarnation to the end offset of the newest batch that was
        read."""
        self.others: list[str] = []
        self._make_topic()
        self._produce(scenario.records)
        session.run(
            f"""CREATE SOURCE s_{name} (id STRING) INCLUDE partition AS part INCLUDE offset AS off WITH (
                connector = 'kafka', topic = '{self.topic}', properties.bootstrap.server = '{bootstrap}'
            ) FORMAT PLAIN ENCODE JSON""",
            f"CREATE MATERIALIZED VIEW v_{name} AS SELECT id, part, off FROM s_{name}",
        )
        self._read_on()
        self.reached = {part: end for part, end in self.stands.items() if end > 0}

    def drop(self) -> None:
        """Drops the source with its view, and the other sources of the scenario."""
        self.session.run(f"DROP SOURCE s_{self.name} CASCADE", *(f"DROP SOURCE {other}" for other in self.others))

    # The topic.

    def _make_topic(self) -> None:
        config = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
        if self.scenario.kind == COMPACTED:
            config |= {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
        create_topic(self.bootstrap, self.topic, self.partitions, config)

    def _produce(self, counts: tuple[int, ...]) -> None:
        """Produces ``counts`` further records in the partitions. The time of a record is its offset in seconds."""
        ends = self.bounds()
        value = json.dumps({"id": f"{self.topic}#{self.life}"}).encode()
        made = [
            Record(
                value=value,
                key=b"%d" % (number % 5),
                partition=part,
                timestamp_ms=_EPOCH_MS + 1000 * (ends[part][1] + number),
            )
            for part, count in enumerate(counts)
            for number in range(count)
        ]
        if self.scenario.kind != TRANSACTIONAL:
            produce(self.bootstrap, self.topic, made)
            return
        import confluent_kafka

        maker: Any = confluent_kafka.Producer
        producer = maker({"bootstrap.servers": self.bootstrap, "transactional.id": self.topic, "log_level": 0})
        producer.init_transactions(30)
        for start in range(0, len(made), 7):
            producer.begin_transaction()
            for record in made[start : start + 7]:
                producer.produce(
                    self.topic, record.value, record.key, partition=record.partition, timestamp=record.timestamp_ms
                )
            if start % 3:
                # Without the flush, unsent records would be discarded. The topic would then contain no aborted records,
                # and the broker would refuse the end of a transaction that it has not received.
                producer.flush(30)
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)

    def bounds(self) -> dict[int, tuple[int, int]]:
        """The present range of offsets in each partition, from the broker."""
        return bounds_of(self.bootstrap, self.topic)

    def present(self) -> dict[int, list[int]]:
        """The offsets that have records for a plain consumer. Like the source, the consumer does not read records of
        aborted transactions."""
        return offsets_of(self.bootstrap, self.topic)

    # The source.

    def _read_on(self) -> None:
        self.session.sql("FLUSH")
        self.rows = Counter(
            (row.id, int(row.part), int(row.off))
            for row in self.session.sql(f"SELECT id, part, off FROM v_{self.name}")
        )
        self.stands = {part: end for part, (_, end) in self.bounds().items()}

    def run(self) -> Totals:
        """Runs all steps, with a check after each."""
        for step in self.scenario.steps:
            self._step(step)
        return self.total

    def _step(self, step: Step) -> None:
        source = f"s_{self.name}"
        self.session.sql(f"PAUSE SOURCE {source}")
        if step.move in ("recreate", "other topic"):
            self._new_topic(step)
            self.session.questions.clear()
            self.session.sql(f"RESET SOURCE SPLITS {source}")
        else:
            self._produce(step.more)
            self._expire(step)
            self.session.questions.clear()
            if step.before is not None:
                self._inject(step, step.before)
            self._inject(step, step.move)
        previews = [question.preview for question in self.session.questions]
        predicted = self._predicted(previews)
        self.session.sql(f"RESUME SOURCE {source}")
        before = self.rows
        self._read_on()
        self._check("\n".join(previews), before, predicted)
        for part, move in predicted.items():
            if move.new < self.stands[part]:
                self.reached[part] = self.stands[part]
        self.total.moves += 1
        self.total.targets[step.move] += 1

    def _predicted(self, previews: list[str]) -> dict[int, Predicted]:
        """The combined predictions of the previews. For each split, the prediction of the last preview that moves the
        split applies."""
        found: dict[int, Predicted] = {}
        for preview in previews:
            for split, old, new, _, verdict in _ROW.findall(preview):
                topic, _, part = split.rpartition(":")
                if topic == self.topic and (int(part) not in found or old != new):
                    stood = None if old == "-" else int(old)
                    found[int(part)] = Predicted(old=stood, new=int(new), verdict=verdict)
        assert len(found) == self.partitions, previews
        return found

    def _new_topic(self, step: Step) -> None:
        """Creates the topic again, or creates another topic. In both cases, the new topic has other records."""
        if step.move == "recreate":
            delete_topic(self.bootstrap, self.topic)
        self.life += 1
        if step.move == "other topic":
            self.topic = f"{self.name}.{self.life}"
        self._make_topic()
        self._produce(step.more)
        self.reached = {}
        if step.move == "other topic":
            self.session.sql(f"ALTER SOURCE s_{self.name} UNSAFE SET (topic = '{self.topic}')")

    def _expire(self, step: Step) -> None:
        if step.expired is None or self.scenario.kind == COMPACTED:
            return
        before = {part: start + (end - start) * step.expired // 1000 for part, (start, end) in self.bounds().items()}
        delete_records(self.bootstrap, self.topic, before)

    def _inject(self, step: Step, move: str) -> None:
        source = f"s_{self.name}"
        if move == "forget":
            self.session.sql(f"RESET SOURCE SPLITS {source} WITH (FORGET_OFFSETS = true)")
            return
        # If records have expired at the position of a split, the split must be moved. In this case, the statement names
        # every split, with positions within the bounds.
        bounds = self.bounds()
        is_whole = not step.is_partial or any(self.stands[part] < start for part, (start, _) in bounds.items())
        chosen = [part for part in bounds if is_whole or step.places[part] % 2 == 0] or [0]
        wanted = {
            part: bounds[part][0] + (bounds[part][1] - bounds[part][0]) * step.places[part] // 1000 for part in chosen
        }
        target, only = self._target(step, move, wanted)
        clause = f" FOR SPLITS ({', '.join(repr(str(part)) for part in chosen)})" if only and not is_whole else ""
        convention = " WITH (CONVENTION = 'last_seen')" if move == "last seen" else ""
        self.session.sql(f"INJECT SOURCE OFFSETS {source} {target}{clause} ALLOW CLAMP{convention}")

    def _target(self, step: Step, move: str, wanted: Mapping[int, int]) -> tuple[str, bool]:
        """The text of the target, and whether FOR SPLITS is needed to select the splits."""
        named = {f"{self.topic}:{part}": at for part, at in wanted.items()}
        place = step.places[0]
        match move:
            case "values":
                return _values(named), False
            case "last seen":
                return _values({split: max(0, at - 1) for split, at in named.items()}), False
            case "null":
                return _values(dict.fromkeys(named, "NULL")), False
            case _ if move in FILES:
                form = move.removeprefix("file ")
                path = self.folder / f"{self.name}.offsets"
                group = "loader" if form == "csv4" else None
                path.write_text(write_offsets(form.removesuffix("4"), named, group=group), encoding="utf-8")
                return f"FROM FILE '{path}'", False
            case "group":
                self._commit_group(wanted)
                return f"FROM GROUP 'group.{self.name}.{self.life}.{self.total.moves}'", False
            case "checkpoint":
                return f"FROM CHECKPOINT '{self._write_checkpoint(named)}'", False
            case "source":
                return f"FROM SOURCE {self._other_source(named)}", False
            case "earliest" | "latest":
                return f"TO {move.upper()}", True
            case "offset":
                return f"TO OFFSET {max(wanted.values()) * place // 1000}", True
            case "timestamp":
                seconds = max(wanted.values()) * place // 1000
                stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(_EPOCH_MS // 1000 + seconds))
                return f"TO TIMESTAMP '{stamp}+00:00'", True
            case "back by":
                seconds = max(wanted.values()) * place // 1000
                return f"BACK BY INTERVAL '{int(time.time()) - _EPOCH_MS // 1000 - seconds} seconds'", True
            case "shift":
                return f"TO SHIFT {place % 21 - 10}", True
            case _:
                raise AssertionError(move)

    def _commit_group(self, wanted: Mapping[int, int]) -> None:
        import confluent_kafka as ck
        from confluent_kafka.admin import AdminClient

        group = f"group.{self.name}.{self.life}.{self.total.moves}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for _ in range(100):  # the group's coordinator may just be loading
            parts = [ck.TopicPartition(self.topic, part, at) for part, at in wanted.items()]
            (future,) = admin.alter_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(group, parts)]).values()
            if all(part.error is None for part in future.result(30).topic_partitions):
                return
            admin.poll(0.1)
        raise AssertionError(f"group {group} takes no offsets")

    def _write_checkpoint(self, named: Mapping[str, int]) -> Path:
        folder = self.folder / f"checkpoint.{self.name}"
        for part in ("offsets", "commits"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        offset = write_offsets("spark", named).strip()
        (folder / "metadata").write_text('{"id":"8f3c2d1e-0000-4000-8000-000000000000"}', encoding="utf-8")
        (folder / "offsets" / "4").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset}', encoding="utf-8")
        (folder / "commits" / "4").write_text('v1\n{"nextBatchWatermarkMs":0}', encoding="utf-8")
        return folder

    def _other_source(self, named: Mapping[str, int]) -> str:
        other = f"o_{self.name}_{self.life}_{self.total.moves}_{len(self.session.questions)}"
        bounds = self.bounds()
        inside = {split: max(at, bounds[int(split.rpartition(":")[2])][0]) for split, at in named.items()}
        asked = list(self.session.questions)
        self.session.run(
            f"""CREATE SOURCE {other} (id STRING) WITH (connector = 'kafka', topic = '{self.topic}', paused = 'true',
                properties.bootstrap.server = '{self.bootstrap}') FORMAT PLAIN ENCODE JSON""",
            f"INJECT SOURCE OFFSETS {other} {_values(inside)}",
        )
        self.session.questions[:] = asked
        self.others.append(other)
        return other

    # The proof.

    def _check(self, preview: str, before: Counter[Row], predicted: Mapping[int, Predicted]) -> None:
        came = self.rows - before
        assert not before - self.rows, "rows went away"
        present = self.present()
        life = f"{self.topic}#{self.life}"
        assert {row[0] for row in came} <= {life}, f"rows of another topic came\n{preview}"
        for part, move in predicted.items():
            new, verdict = move.new, move.verdict
            read = sorted(off for (_, where, off), n in came.items() if where == part for _ in range(n))
            due = [offset for offset in present[part] if offset >= new]
            if self.scenario.kind == COMPACTED:
                # The cleaner may have removed records between the read and this check, so the source may have read
                # further records.
                assert set(due) <= set(read), f"partition {part}: {read} came, not {due}\n{preview}"
                assert all(offset >= new for offset in read), f"partition {part}: {read} came\n{preview}"
                assert len(read) == len(set(read)), f"partition {part}: {read} came\n{preview}"
            else:
                assert read == due, f"partition {part}: {read} came, not {due}\n{preview}"
            if verdict.startswith("UNKNOWN"):
                assert part not in self.reached, f"partition {part}: {verdict}\n{preview}"
                continue
            duplicates = sum((life, part, offset) in before for offset in read)
            # For a split that was never read, a gap is the range between its positions.
            skipped = range(self.reached.get(part, new if move.old is None else move.old), new)
            missing = [offset for offset in skipped if (life, part, offset) not in self.rows]
            if self.scenario.kind != RETAINED:
                missing = [offset for offset in missing if offset in present[part]]
            said = {word: sum(map(int, re.findall(_COUNT.format(word), verdict))) for word in ("DUPLICATES", "GAP")}
            found = {"DUPLICATES": duplicates, "GAP": len(missing)}
            told = f"partition {part}: predicted {verdict}, observed {found}\n{preview}"
            if self.scenario.kind == RETAINED:
                assert said == found, told
                assert "at most" not in verdict, told
            else:
                assert all(found[word] <= said[word] for word in said), told
                assert self.scenario.kind != COMPACTED or verdict == "NONE" or "at most" in verdict, told
            self.total.duplicates += duplicates
            self.total.gaps += len(missing)
        self.total.rows += sum(came.values())
