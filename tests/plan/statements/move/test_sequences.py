"""Random sequences of moves, pauses and records: the reads match an operator's expectations.

The reader is a model. If the catalog requires one and the upstream matches its states, it reads every assigned split to
the end. The commits of the lowering decide which records are read twice and which never.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rw_sql.connectors.base import UpstreamSplit
from rw_sql.errors import SqlError
from rw_sql.model.definitions import definition_of, listed_options
from rw_sql.model.job_specs import IngestSpec, desired_jobs
from rw_sql.model.split_status import OK, split_status
from rw_sql.plan.statements.common import take_up_new_topics
from rw_sql.syntax import render
from tests.plan.canned import HERE, CannedWorld, create_source

TOPICS = ("a", "b")


@dataclass(slots=True)
class Story:
    """A source ``s`` over topics ``a`` and ``b``, and how often its reader has read each (incarnation, split,
    offset)."""

    world: CannedWorld = field(default_factory=CannedWorld)
    read: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    lives: int = 0

    def begin(self, mode: str) -> None:
        for topic in TOPICS:
            self.make(topic, 2)
        self.world.run(
            create_source("s", "a", f"scan.startup.mode = '{mode}'"),
            "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
        )

    def make(self, topic: str, partitions: int) -> None:
        self.lives += 1
        self.world.put_topic(topic, *((0, 3) for _ in range(partitions)), life=f"life {self.lives}")

    def bounds(self, topic: str) -> list[tuple[int, int]]:
        return [(split.start, split.end) for split in self.splits(topic)]

    def splits(self, topic: str) -> tuple[UpstreamSplit, ...]:
        return self.world.topics[HERE, topic]

    def produce(self, topic: str, partition: int, count: int) -> None:
        bounds = self.bounds(topic)
        start, end = bounds[partition % len(bounds)]
        bounds[partition % len(bounds)] = (start, end + count)
        self.world.put_topic(topic, *bounds, life=self.splits(topic)[0].incarnation or "")

    def add_partition(self, topic: str) -> None:
        self.world.put_topic(topic, *self.bounds(topic), (0, 2), life=self.splits(topic)[0].incarnation or "")

    def tick(self) -> None:
        """The owner looks for new splits, then the reader reads to the end."""
        world = self.world
        source = world.snapshot.find("source", "s")
        assert source is not None
        if f"ingest-{source.id}" not in desired_jobs(world.snapshot):
            return
        changes, _ = take_up_new_topics(world.snapshot, world.inspector, source)
        if changes:
            world.apply(changes)
        spec = desired_jobs(world.snapshot)[f"ingest-{source.id}"]
        assert isinstance(spec, IngestSpec)
        (named,) = world.named("s")
        shown = {split.split: split for split in self.splits(named)}
        states = world.full_states("s")
        assert set(spec.splits) <= set(states), "every assigned split has a position"
        statuses = {split_status(states[split], shown.get(split)) for split in spec.splits}
        if not spec.splits or statuses != {OK}:
            return
        for split in spec.splits:
            assert split.startswith(f"{named}:"), "no split of another topic is read"
            for offset in range(states[split].offset, shown[split].end):
                self.read[shown[split].incarnation or "", split, offset] += 1
            world.moved[split] = shown[split].end
            world.read.add(split)

    def say(self, text: str) -> bool:
        """Runs a statement; returns False if it is refused, and asserts that nothing has changed then."""
        before = self.world.snapshot
        try:
            self.world.run(text)
        except SqlError:
            assert self.world.snapshot is before
            return False
        source = self.world.snapshot.find("source", "s")
        assert source is not None
        definition = definition_of(source)
        assert render(definition) == source.definition
        assert listed_options(definition) == source.options
        return True

    def act(self, action: tuple[object, ...]) -> None:
        match action:
            case ("produce", str(topic), int(partition), int(count)):
                self.produce(topic, partition, count)
            case ("add partition", str(topic)):
                self.add_partition(topic)
            case ("make again", str(topic), int(partitions)):
                self.make(topic, partitions)
            case ("tick",):
                self.tick()
            case ("say", str(text)):
                self.say(text)


topics = st.sampled_from(TOPICS)
upstream_actions = st.one_of(
    st.tuples(st.just("produce"), topics, st.integers(0, 3), st.integers(1, 4)),
    st.tuples(st.just("add partition"), topics),
    st.tuples(st.just("tick")),
)
moves = st.tuples(
    st.just("say"),
    st.one_of(
        topics.map(lambda topic: f"ALTER SOURCE s UNSAFE SET (topic = '{topic}')"),
        st.sampled_from(
            [
                "PAUSE SOURCE s",
                "RESUME SOURCE s",
                "PAUSE ALL SOURCES",
                "RESUME ALL SOURCES",
                "ALTER SOURCE s UNSAFE SET (group.id.prefix = 'mine')",
                "RESET SOURCE SPLITS s FOR SPLITS ('0') WITH (REDISCOVER = false)",
            ]
        ),
    ),
)
unsafe = st.tuples(
    st.just("say"),
    st.one_of(
        st.sampled_from(
            [
                "RESET SOURCE SPLITS s",
                "RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)",
                "RESET SOURCE SPLITS s WITH (REDISCOVER = false, FORGET_OFFSETS = true)",
                "RESET SOURCE SPLITS s FOR SPLITS ('1') WITH (FORGET_OFFSETS = true)",
                "INJECT SOURCE OFFSETS s TO EARLIEST",
                "INJECT SOURCE OFFSETS s TO LATEST FOR SPLITS ('0')",
                "INJECT SOURCE OFFSETS s VALUES ('0' = NULL)",
                "ALTER SOURCE s UNSAFE SET (scan.startup.mode = 'latest')",
            ]
        ),
        st.integers(0, 6).map(lambda offset: f"INJECT SOURCE OFFSETS s VALUES ('0' = {offset}) ALLOW CLAMP"),
    ),
)
recreations = st.tuples(st.just("make again"), topics, st.integers(1, 3))


def run_to_the_end(story: Story, topic: str) -> None:
    """Removes every pause, and lets the source read one topic to its end."""
    for text in ("RESUME ALL SOURCES", "RESUME SOURCE s", f"ALTER SOURCE s UNSAFE SET (topic = '{topic}')"):
        assert story.say(text)
    story.tick()


@pytest.mark.long
@settings(max_examples=150)
@given(st.lists(st.one_of(upstream_actions, moves), max_size=14), topics)
def test_moves_without_reset_repeat_nothing_and_lose_nothing(actions: list[tuple[object, ...]], last: str) -> None:
    story = Story()
    story.begin("earliest")
    for action in actions:
        story.act(action)
    run_to_the_end(story, last)
    assert set(story.read.values()) <= {1}
    wanted = {(split.incarnation, split.split, offset) for split in story.splits(last) for offset in range(split.end)}
    assert wanted <= set(story.read)


@pytest.mark.long
@settings(max_examples=150)
@given(st.lists(st.one_of(upstream_actions, moves), max_size=14), topics)
def test_with_latest_what_is_read_has_no_hole(actions: list[tuple[object, ...]], last: str) -> None:
    story = Story()
    story.begin("latest")
    for action in actions:
        story.act(action)
    run_to_the_end(story, last)
    assert set(story.read.values()) <= {1}
    for split in story.splits(last):
        offsets = sorted(
            offset for life, name, offset in story.read if (life, name) == (split.incarnation, split.split)
        )
        assert offsets == list(range(split.end))[split.end - len(offsets) :]
        if last == "a" and split.split not in ("a:0", "a:1"):
            assert len(offsets) == split.end, "a partition added to a topic that was read begins at its first record"


@pytest.mark.long
@settings(max_examples=200)
@given(st.lists(st.one_of(upstream_actions, moves, unsafe, recreations), max_size=16), topics)
def test_whatever_is_typed_the_source_can_be_brought_to_run(actions: list[tuple[object, ...]], last: str) -> None:
    story = Story()
    story.begin("earliest")
    for action in actions:
        story.act(action)
    run_to_the_end(story, last)
    assert story.say("RESET SOURCE SPLITS s")
    story.tick()
    states = story.world.full_states("s")
    for split in story.splits(last):
        assert (states[split.split].offset, states[split.split].incarnation) == (split.end, split.incarnation)
    # No more forced moves: new records are read once.
    before = Counter(story.read)
    for number, split in enumerate(story.splits(last)):
        story.produce(last, number, 3)
        assert split.end + 3 == story.splits(last)[number].end
    story.tick()
    assert sum((story.read - before).values()) == 3 * len(story.splits(last))


@pytest.mark.long
@settings(max_examples=150)
@given(st.lists(upstream_actions, max_size=8), unsafe)
def test_the_preview_of_one_operation_is_exact(
    actions: list[tuple[object, ...]], operation: tuple[object, ...]
) -> None:
    story = Story()
    story.begin("earliest")
    for action in (*actions, ("tick",)):
        story.act(action)
    assert story.say("PAUSE SOURCE s")
    text = str(operation[1])
    plan = story.world.plan(text)
    assert plan.preview is not None
    read = set(story.read)
    assert story.say(text)
    assert story.say("RESUME SOURCE s")
    story.tick()
    repeated = sum(count - 1 for count in story.read.values())
    assert set(story.read) == read, "all was read before"
    if "REDISCOVER = false" in text:
        return  # what it forgets is found again at RESUME, as its preview says
    predicted = sum(
        int(found) for split in plan.preview.splits for found in re.findall(r"DUPLICATES (\d+)", split.verdict)
    )
    assert predicted == repeated
