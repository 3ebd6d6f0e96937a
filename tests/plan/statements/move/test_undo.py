"""UNDO OPERATION: it restores the state before an operation, and its refusals."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rw_sql.connectors.base import SplitState
from rw_sql.metastore.codec import before_from_json
from rw_sql.metastore.records import FORGOTTEN, PauseRecord, SourceRecord
from rw_sql.model.job_ids import ingest_fragment
from tests.plan.canned import ELSEWHERE, HERE, CannedWorld, moved_world, refused
from tests.plan.statements.move.test_sequences import Story


def undo(world: CannedWorld, back: int = 0) -> str:
    """UNDO of the newest operation, or of an earlier one."""
    return f"UNDO OPERATION {world.operations[back].epoch}"


def test_undo_of_an_injection_gives_back_the_position_of_the_reader() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 15)")
    assert world.states("s") == {"old:0": 15, "old:1": 50}
    plan = world.run(undo(world))
    assert world.states("s") == {"old:0": 40, "old:1": 50}
    assert plan.is_unsafe
    assert [(row.change, row.detail) for row in plan.changes] == [("MOVED", "old:0 at 40 (was 15)")]


def test_undo_of_unsafe_set_gives_back_properties_and_splits() -> None:
    world = moved_world()
    world.run("ALTER SOURCE s UNSAFE SET (topic = 'new', group.id.prefix = 'mine')")
    assert world.named("s") == ("new",)
    definition = "topic = 'old'"
    plan = world.run(undo(world))
    source = world.snapshot.find("source", "s")
    assert source is not None
    assert definition in source.definition
    assert "group.id.prefix" not in source.definition
    assert world.assigned("s") == ("old:0", "old:1")
    assert world.states("s") == {"old:0": 40, "old:1": 50}
    assert plan.preview is not None
    assert ("topic", "new", "old") in plan.preview.properties


def test_undo_of_a_reset_that_forgot_gives_back_the_positions() -> None:
    world = moved_world()
    world.run("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)")
    assert world.states("s") == {"old:0": 10, "old:1": 0}
    world.run(undo(world))
    assert world.states("s") == {"old:0": 40, "old:1": 50}


def test_an_undo_can_be_undone_and_then_undone_again() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 15)")
    injected = world.operations[0].epoch
    world.run(f"UNDO OPERATION {injected}")
    undone = world.operations[0].epoch
    error = refused(world, f"UNDO OPERATION {injected}")
    assert (error.code, error.message) == (
        "RW330",
        f"operation {injected} cannot be undone: operation {undone} has already undone it",
    )
    assert error.hint == f"UNDO OPERATION {undone} restores it"
    world.run(f"UNDO OPERATION {undone}")
    assert world.states("s") == {"old:0": 15, "old:1": 50}
    world.run(f"UNDO OPERATION {injected}")
    assert world.states("s") == {"old:0": 40, "old:1": 50}


def test_undo_names_the_later_operations_that_rest_on_it() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 15)")
    first = world.operations[0].epoch
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 20)")
    second = world.operations[0].epoch
    error = refused(world, f"UNDO OPERATION {first}")
    assert error.code == "RW330"
    assert f"later operations depend on it: {second} (INJECT SOURCE OFFSETS)" in error.message
    assert error.hint == f"UNDO OPERATION {second}; then UNDO OPERATION {first}"
    world.run(f"UNDO OPERATION {second}", f"UNDO OPERATION {first}")
    assert world.states("s") == {"old:0": 40, "old:1": 50}


def test_a_move_is_undone_from_its_end() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "ALTER SOURCE s UNSAFE SET (topic = 'new')")
    moved = world.operations[0].epoch
    world.run("RESET SOURCE SPLITS s")
    reset = world.operations[0].epoch
    assert all(split.startswith("new:") for split in world.assigned("s"))
    # On its own it would name the old topic again, without the positions that the RESET discarded.
    error = refused(world, f"UNDO OPERATION {moved}")
    assert f"later operations depend on it: {reset} (RESET SOURCE SPLITS)" in error.message
    assert error.hint == f"UNDO OPERATION {reset}; then UNDO OPERATION {moved}"
    world.run(f"UNDO OPERATION {reset}", f"UNDO OPERATION {moved}")
    assert world.states("s") == {"old:0": 40, "old:1": 50}


def test_operations_on_other_splits_do_not_prevent_an_undo() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 15)")
    first = undo(world)
    world.run("INJECT SOURCE OFFSETS s VALUES ('1' = 20)", first)
    assert world.states("s") == {"old:0": 40, "old:1": 20}


def test_redoing_on_a_base_that_was_undone_meanwhile_is_refused() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 15)")
    first = world.operations[0].epoch
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 20)")
    world.run(undo(world))
    undone = world.operations[0].epoch
    world.run(f"UNDO OPERATION {first}")
    error = refused(world, f"UNDO OPERATION {undone}")
    assert f"later operations depend on it: {undone + 1} (UNDO OPERATION)" in error.message


def test_undo_is_refused_where_the_upstream_has_dropped_the_records() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 15)")
    world.run("INJECT SOURCE OFFSETS s TO LATEST")
    world.put_topic("old", (30, 60), (0, 60))
    error = refused(world, undo(world))
    assert error.code == "RW330"
    assert "old:0 at 15 (EXPIRED, the upstream has [30, 60))" in error.message
    assert "INJECT SOURCE OFFSETS s" in (error.hint or "")


def test_undo_is_refused_where_the_topic_was_made_again() -> None:
    world = moved_world()
    world.put_topic("old", (0, 7), (0, 8), life="second")
    world.run("RESET SOURCE SPLITS s")
    error = refused(world, undo(world))
    assert "old:0 at 40 (RECREATED, the upstream has [0, 7))" in error.message


def test_undo_of_a_move_to_a_cluster_that_does_not_answer() -> None:
    world = moved_world()
    world.silent.add(ELSEWHERE)
    world.run(
        "PAUSE SOURCE s",
        f"ALTER SOURCE s UNSAFE SET (properties.bootstrap.server = '{ELSEWHERE}') WITH (VALIDATE = false)",
    )
    world.run(undo(world))
    source = world.snapshot.find("source", "s")
    assert source is not None
    assert HERE in source.definition
    # And the other way round: the emergency exit does not need the broker that is left.
    world.silent = {HERE}
    redo = world.plan(undo(world))
    assert redo.is_unsafe


def test_undo_of_a_pause_asks_nobody_and_needs_no_upstream() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s")
    world.silent.add(HERE)
    plan = world.run(undo(world))
    assert not plan.is_unsafe
    assert [(row.object, row.change) for row in plan.changes] == [("s", "RESUMED")]
    assert not world.snapshot.all("pause")
    world.run(undo(world))
    assert len(world.snapshot.all("pause")) == 1


def test_a_later_pause_prevents_undoing_a_resume() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "RESUME SOURCE s")
    resumed = undo(world)
    world.run("PAUSE SOURCE s")
    assert "later operations depend on it" in refused(world, resumed).message


def test_undo_of_what_is_no_operation_and_of_what_cannot_be_undone() -> None:
    world = moved_world()
    error = refused(world, "UNDO OPERATION 99")
    assert (error.code, error.message) == ("RW230", "operation 99 does not exist")
    error = refused(world, "UNDO OPERATION 1")
    assert error.code == "RW330"
    assert "CREATE SOURCE" in error.message


def test_undo_is_refused_once_the_source_was_dropped() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 15)")
    injected = undo(world)
    world.run("DROP SOURCE s CASCADE")
    error = refused(world, injected)
    assert "(DROP SOURCE)" in error.message
    assert error.hint is not None
    assert "cannot be undone" in error.hint


def test_undo_of_alter_connection_reaches_everything_that_uses_it() -> None:
    world = CannedWorld()
    world.put_topic("old", (0, 50))
    world.put_topic("old", (0, 50), at=ELSEWHERE, cluster=f"cluster {HERE}")
    world.run(
        f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')",
        "CREATE SOURCE s (id INT) WITH (connector = 'kafka', connection = c, topic = 'old') FORMAT PLAIN ENCODE JSON",
        f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}')",
    )
    plan = world.run(undo(world))
    connection = world.snapshot.find("connection", "c")
    assert connection is not None
    assert HERE in connection.definition
    assert plan.preview is not None
    assert [part.title for part in plan.preview.parts] == ["connection c", "source s"]
    assert plan.operation is not None
    assert set(plan.operation.objects) == {"c", "s"}


def test_undo_is_refused_where_the_connection_it_would_give_back_is_gone() -> None:
    world = CannedWorld()
    world.put_topic("old", (0, 50))
    world.run(
        f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')",
        "CREATE SOURCE s (id INT) WITH (connector = 'kafka', connection = c, topic = 'old') FORMAT PLAIN ENCODE JSON",
        f"ALTER SOURCE s UNSAFE SET (properties.bootstrap.server = '{HERE}'), UNSET (connection)",
    )
    moved = undo(world)
    world.run("DROP CONNECTION c")
    error = refused(world, moved)
    assert error.code == "RW330"
    assert 'connection "c" does not exist' in error.message


Seen = tuple[str, object, tuple[str, ...], dict[str, SplitState], set[str], set[int | None]]


def seen(world: CannedWorld) -> Seen:
    """Definition, properties, assignments, positions (including discarded ones) and pauses of ``s``."""
    source = world.snapshot.find("source", "s")
    assert isinstance(source, SourceRecord)
    fragment = ingest_fragment(source.id)
    forgotten = {split for split, row in world.snapshot.states(fragment).items() if row.state == FORGOTTEN}
    holds = {hold.source_id for hold in world.snapshot.all("pause") if isinstance(hold, PauseRecord)}
    return (
        source.definition,
        source.options,
        world.assigned("s"),
        dict(world.full_states("s")),
        forgotten,
        holds,
    )


@dataclass(slots=True)
class Undoing(Story):
    """A story that stores the state before every operation, and the discoveries in between."""

    met: dict[int, Seen] = field(default_factory=dict)
    discovered: set[str] = field(default_factory=set)

    def tick(self) -> None:
        before = seen(self.world)
        Story.tick(self)
        after = seen(self.world)
        self.discovered |= (set(after[2]) - set(before[2])) | (before[4] - after[4])

    def say(self, text: str) -> bool:
        before, epoch = seen(self.world), self.world.snapshot.epoch
        done = Story.say(self, text)
        if self.world.snapshot.epoch > epoch:
            self.met[self.world.snapshot.epoch] = before
        return done


topics = st.sampled_from(("a", "b"))
statements = st.one_of(
    topics.map(lambda topic: f"ALTER SOURCE s UNSAFE SET (topic = '{topic}')"),
    st.integers(0, 6).map(lambda offset: f"INJECT SOURCE OFFSETS s VALUES ('0' = {offset}) ALLOW CLAMP"),
    st.sampled_from(
        [
            "PAUSE SOURCE s",
            "RESUME SOURCE s",
            "PAUSE ALL SOURCES",
            "RESUME ALL SOURCES",
            "ALTER SOURCE s UNSAFE SET (group.id.prefix = 'mine')",
            "ALTER SOURCE s UNSAFE SET (scan.startup.mode = 'latest')",
            "RESET SOURCE SPLITS s",
            "RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)",
            "RESET SOURCE SPLITS s FOR SPLITS ('1') WITH (FORGET_OFFSETS = true)",
            "RESET SOURCE SPLITS s FOR SPLITS ('0') WITH (REDISCOVER = false)",
            "RESET SOURCE SPLITS s WITH (REDISCOVER = false, FORGET_OFFSETS = true)",
            "INJECT SOURCE OFFSETS s TO EARLIEST",
            "INJECT SOURCE OFFSETS s TO LATEST FOR SPLITS ('0')",
            "INJECT SOURCE OFFSETS s VALUES ('0' = NULL)",
            "UNDO LAST",
        ]
    ),
)
produced = st.tuples(topics, st.integers(0, 1), st.integers(1, 4))


@pytest.mark.long
@settings(max_examples=300)
@given(st.lists(st.one_of(statements, produced), max_size=14))
@example(
    [
        "RESET SOURCE SPLITS s WITH (REDISCOVER = false, FORGET_OFFSETS = true)",
        "RESET SOURCE SPLITS s FOR SPLITS ('1') WITH (FORGET_OFFSETS = true)",
        ("a", 0, 1),
    ]
)
@example(
    [
        "RESET SOURCE SPLITS s FOR SPLITS ('0') WITH (REDISCOVER = false)",
        "RESET SOURCE SPLITS s WITH (REDISCOVER = false, FORGET_OFFSETS = true)",
        ("a", 0, 1),
    ]
)
def test_undone_in_reverse_order_every_sequence_ends_where_it_began(actions: list[str | tuple[str, int, int]]) -> None:
    story = Undoing()
    story.begin("earliest")
    world = story.world
    story.tick()
    began = world.snapshot.epoch
    for action in actions:
        if isinstance(action, tuple):
            story.produce(*action)
            reading = world.snapshot.epoch
            story.tick()
            assert world.snapshot.epoch in (reading, reading + 1)
        elif action == "UNDO LAST":
            story.say(undo(world)) if world.operations[0].epoch > began else None
        else:
            story.say(action)
    done = [record for record in world.operations if record.epoch > began]
    for record in done:
        before = before_from_json(record.before)
        touched = {split for of_fragment in before.states.values() for split in of_fragment}
        assigned_by_it = {split for of_fragment in before.splits.values() for split in of_fragment}
        # A discovery in between belongs to no operation: an undo leaves it, unless the undo restores that split.
        left = story.discovered - touched - assigned_by_it
        # A position is given back without the split being taken from its reader again.
        still_assigned = story.discovered - assigned_by_it
        world.run(f"UNDO OPERATION {record.epoch}")
        definition, options, assigned, states, forgotten, holds = seen(world)
        met = story.met[record.epoch]
        assert (definition, options, holds) == (*met[:2], met[5])
        assert set(assigned) - still_assigned == set(met[2]) - still_assigned
        assert forgotten - left == met[4] - left
        assert {split: states.get(split) for split in touched} == {split: met[3].get(split) for split in touched}
        assert set(states) - set(met[3]) <= left, "nothing else has a position that had none"
        stayed = set(states) & set(met[3])
        assert all(states[split].offset >= met[3][split].offset for split in stayed), "others have only read on"


def test_undo_of_another_connection_and_of_a_safe_change() -> None:
    world = CannedWorld()
    world.put_topic("old", (0, 50))
    world.put_topic("old", (0, 50), at=ELSEWHERE, cluster=f"cluster {HERE}")
    world.run(
        f"CREATE CONNECTION here WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')",
        f"CREATE CONNECTION there WITH (type = 'kafka', properties.bootstrap.server = '{ELSEWHERE}')",
        "CREATE SOURCE s (id INT) "
        "WITH (connector = 'kafka', connection = here, topic = 'old') FORMAT PLAIN ENCODE JSON",
        "ALTER SOURCE s SET CONNECTION there",
    )
    moved = undo(world)
    world.run("ALTER SOURCE s CONNECTOR WITH (properties.fetch.max.bytes = '1000')")
    assert "later operations depend on it" in refused(world, moved).message
    world.run(undo(world), moved)
    source = world.snapshot.find("source", "s")
    assert isinstance(source, SourceRecord)
    assert "connection = here" in source.definition
    assert "fetch.max" not in source.definition
    connection = world.snapshot.find("connection", "here")
    assert connection is not None
    assert connection.id in source.uses
