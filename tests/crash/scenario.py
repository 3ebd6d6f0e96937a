"""A workflow as a list of steps, and its expected result, computed from the steps without any code of the product.

A source is created and read in small and large batches. The source is paused in the middle, moved between topics while
it is running and while it is paused, reset and injected. Every statement commits exactly one operation. Therefore, the
number of operations shows a process that takes over the workflow where to continue.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

SOURCE_ID = 1
"""The id of the source, which is the first object of the warehouse."""

KEYS = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce:
    """Fills the partitions of a topic up to these ends."""

    topic: str
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """Waits until all records that were produced have been read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """A statement, in whose text ``{a}``, ``{b}``, ``{c}`` and ``{bootstrap}`` are replaced.

    ``reads`` are the topics that are read after the statement; None if they do not change. ``starts`` are the positions
    that the statement sets. A split that is added without a position starts at 0.
    """

    label: str
    text: str
    reads: tuple[str, ...] | None = None
    starts: Mapping[str, int] = field(default_factory=dict)
    forgets: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grow:
    """Adds partitions to a topic that the source reads, and waits until the source has discovered them. New partitions
    are read from their beginning."""

    topic: str
    partitions: int


Step = Produce | Flush | Grow | Say

PARTITIONS = {"a": 3, "b": 2, "c": 4}
"""The topics with their initial numbers of partitions."""

STEPS: tuple[Step, ...] = (
    Produce(topic="a", ends=(10, 10, 10)),
    Say(
        label="create_source",
        text="CREATE SOURCE s (topic VARCHAR, k BIGINT, v BIGINT) INCLUDE partition AS part INCLUDE offset AS off"
        " WITH (connector = 'kafka', topic = '{a}', properties.bootstrap.server = '{bootstrap}')"
        " FORMAT PLAIN ENCODE JSON",
        reads=("a",),
    ),
    Say(
        label="create_keyed",
        text="CREATE MATERIALIZED VIEW per_key AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k",
    ),
    Say(
        label="create_appended",
        text="CREATE MATERIALIZED VIEW thirds AS SELECT topic, part, off, v FROM s WHERE v % 3 = 0",
    ),
    Say(label="allow_unsafe", text="ALTER SYSTEM SET enable_unsafe_ops = true"),
    Produce(topic="a", ends=(40, 40, 40)),
    Flush(),
    Produce(topic="a", ends=(60, 70, 80)),
    Flush(),
    Say(label="pause_before_large", text="PAUSE SOURCE s"),
    Produce(topic="a", ends=(7_000, 7_000, 7_000)),
    # One batch with more rows than the driver handles. Spark itself appends this batch to the log and to the view.
    Say(label="resume_large", text="RESUME SOURCE s"),
    Flush(),
    Produce(topic="a", ends=(7_050, 7_050, 7_050)),
    # Without a wait, the pause comes at an arbitrary position of the reader. No record may be lost or repeated.
    Say(label="pause_midway", text="PAUSE SOURCE s"),
    Say(label="resume_midway", text="RESUME SOURCE s"),
    Produce(topic="b", ends=(100, 120)),
    Produce(topic="a", ends=(7_070, 7_070, 7_070)),
    Flush(),
    Say(label="add_topic_running", text="ALTER SOURCE s UNSAFE SET (topic = '{a},{b}')", reads=("a", "b")),
    Produce(topic="b", ends=(150, 150)),
    Flush(),
    Grow(topic="b", partitions=3),
    Produce(topic="b", ends=(160, 150, 30)),
    Flush(),
    Produce(topic="c", ends=(200, 200, 200, 200)),
    Say(label="pause", text="PAUSE SOURCE s"),
    Say(label="unsafe_set", text="ALTER SOURCE s UNSAFE SET (topic = '{c}')", reads=("c",)),
    Say(label="reset", text="RESET SOURCE SPLITS s", forgets=True),
    Say(
        label="inject",
        text="INJECT SOURCE OFFSETS s VALUES ('{c}:0' = 150, '{c}:1' = 10, '{c}:2' = 200)",
        starts={"c:0": 150, "c:1": 10, "c:2": 200},
    ),
    Say(label="resume", text="RESUME SOURCE s"),
    Produce(topic="c", ends=(230, 230, 230, 230)),
    Flush(),
    Produce(topic="c", ends=(260, 260, 260, 260)),
    Flush(),
    Say(label="pause_again", text="PAUSE SOURCE s"),
    Say(
        label="inject_again",
        text="INJECT SOURCE OFFSETS s VALUES ('{c}:0' = 100, '{c}:3' = 250)",
        starts={"c:0": 100, "c:3": 250},
    ),
    Say(label="resume_again", text="RESUME SOURCE s"),
    Flush(),
    Say(
        label="reset_running",
        text="RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)",
        reads=("c",),
        forgets=True,
    ),
    Flush(),
    # The splits of the topic were discarded, so all of its records are read again, in a large batch.
    Say(label="move_back_running", text="ALTER SOURCE s UNSAFE SET (topic = '{a}')", reads=("a",)),
    Flush(),
    Say(label="move_on_running", text="ALTER SOURCE s UNSAFE SET (topic = '{c}')", reads=("c",)),
    Produce(topic="c", ends=(280, 270, 290, 260)),
    Flush(),
)

LABELS = tuple(step.label for step in STEPS if isinstance(step, Say))


def first_step(statements_done: int) -> int:
    """The index of the step at which to continue after this number of statements. The steps after the last statement,
    which produce records and wait, are repeated."""
    said = [at for at, step in enumerate(STEPS) if isinstance(step, Say)]
    return 0 if statements_done == 0 else said[statements_done - 1] + 1


def record(topic: str, partition: int, offset: int) -> dict[str, object]:
    """The record at a place of the upstream."""
    return {"topic": topic, "k": (7 * offset + 5 * partition + len(topic)) % KEYS, "v": 3 * offset + partition}


def value(topic: str, partition: int, offset: int) -> bytes:
    """The value of the record that is produced at that place."""
    return json.dumps(record(topic, partition, offset)).encode()


def times_read() -> Counter[tuple[str, int, int]]:
    """The number of times that each record of the upstream must have been read, by topic, partition and offset."""
    times: Counter[tuple[str, int, int]] = Counter()
    ends: dict[str, list[int]] = {topic: [0] * partitions for topic, partitions in PARTITIONS.items()}
    positions: dict[tuple[str, int], int] = {}
    reads: tuple[str, ...] = ()
    for step in STEPS:
        match step:
            case Produce():
                ends[step.topic] = list(step.ends)
            case Grow():
                ends[step.topic] += [0] * (step.partitions - len(ends[step.topic]))
            case Flush():
                for split in [(topic, partition) for topic in reads for partition in range(len(ends[topic]))]:
                    topic, partition = split
                    end = ends[topic][partition]
                    times.update((topic, partition, offset) for offset in range(positions.get(split, 0), end))
                    positions[split] = end
            case Say():
                reads = step.reads if step.reads is not None else reads
                if step.forgets:
                    positions.clear()
                for name, offset in step.starts.items():
                    topic, _, number = name.partition(":")
                    positions[topic, int(number)] = offset
    return times
