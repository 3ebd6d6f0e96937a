"""The position of a view's direct reader and its read ranges, from its checkpoint and its commits, in any process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rw_sql.connectors.base import SplitState, Upstream, UpstreamSplit
from rw_sql.connectors.registry import connector
from rw_sql.metastore import Metastore
from rw_sql.metastore.records import (
    AssignSplits,
    Change,
    MaterializedViewRecord,
    Operation,
    PutObject,
    PutSplitStates,
    SourceRecord,
)
from rw_sql.model.job_specs import ReaderSpec, ViewSpec
from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.runtime.control.quiesce import quiesced_jobs
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.direct import readers as own_module
from rw_sql.runtime.direct.align_checkpoint import DesiredReader, align
from rw_sql.runtime.direct.checkpoint_record import read_record, with_lines, write_record
from rw_sql.runtime.direct.read_terms import commit_key, reached_states
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.rate_limit import Throttle
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse
from tests.runtime.controlled_jobs import Jobs, lock_from_elsewhere
from tests.runtime.direct.test_direct_checkpoints import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rw_sql.plan.ports.positions import PositionPort, Positions

KAFKA = connector("kafka")
FRAGMENT = "mv-2:1"
SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "v", "type": "long", "nullable": True, "metadata": {}}]})


class Own:
    """A view that reads one split directly: statements set positions; batches are planned, written and committed."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = Warehouse.at(str(folder))
        self.metastore = Metastore.open(str(folder))
        self.context = Context(
            warehouse=self.warehouse,
            metastore=self.metastore,
            sessions=None,  # type: ignore[arg-type]  # nothing here asks Spark
            owner="me",
        )
        source = SourceRecord(id=1, name="s", definition="", connector="kafka", options=(), is_shared=False)
        view = MaterializedViewRecord(id=2, name="v", definition="", query="", schema=SCHEMA, inputs=(1,))
        self.checkpoint = Checkpoint(folder=folder / "checkpoints/mv-2/1")
        self.at = 10
        self.batch = -1
        self.put(PutObject(record=source), PutObject(record=view), AssignSplits(fragment=FRAGMENT, splits=("a:0",)))
        self.set(10)
        self.run = 0
        self.start()

    def put(self, *changes: Change) -> int:
        operation = Operation(kind="TEST", statement="", objects=("s",), changes=changes)
        return self.metastore.commit(operation, based_on=self.metastore.snapshot()).epoch

    def set(self, offset: int) -> int:
        """A statement sets the position; its epoch."""
        state = KAFKA.encode_state(SplitState(split="a:0", offset=offset, cluster="c", incarnation="t"))
        return self.put(PutSplitStates(fragment=FRAGMENT, states={"a:0": state}))

    def start(self) -> None:
        """A start of the view's query up to its first batch."""
        self.run += 1
        snapshot = self.metastore.snapshot()
        path = self.warehouse.data(2, 1)
        self.output = JobOutput.open(self.warehouse, path, SCHEMA, job="mv-2", run=self.run, epoch=snapshot.epoch)
        wanted = DesiredReader(
            fragment=FRAGMENT,
            kind=KAFKA,
            splits=("a:0",),
            stored=snapshot.states(FRAGMENT),
            since=snapshot.fragment_epoch(FRAGMENT),
        )
        alignment = align(self.checkpoint.files, [wanted], done=self.output.done)
        self.at = alignment.states[FRAGMENT]["a:0"].offset
        record = read_record(self.checkpoint.files)
        assert record is not None
        write_record(self.checkpoint.files, with_lines(record, (FRAGMENT,)))
        self.output.lives = {commit_key(1, "a:0"): ("c", "t")}

    def read(self, to: int, *, rows: int = 1, until: str = "committed") -> None:
        """A batch: planned, its rows written, and committed by Spark, or only some of these."""
        self.batch += 1
        self.checkpoint.plan(self.batch, {"a:0": to})
        if until == "planned":
            return
        self.output.ranges = {commit_key(1, "a:0"): (self.at, to)}
        if rows:
            self.output.append_rows(pa.table({"v": [1] * rows}), self.batch)
        assert self.output.is_written(self.batch) == bool(rows)
        if not rows:
            self.output.mark(self.batch)
        self.at = to
        if until == "committed":
            self.checkpoint.write(f"commits/{self.batch}", "v1\n{}")

    @property
    def current(self) -> Positions:
        return self.positions.of(1, FRAGMENT)

    @property
    def positions(self) -> PositionPort:
        return WarehouseInspector(self.context, self.metastore.snapshot()).positions

    @property
    def next(self) -> int:
        return self.current.states["a:0"].offset


@pytest.fixture
def own(tmp_path: Path) -> Own:
    return Own(tmp_path)


def test_the_position_is_the_checkpoints_or_the_statements_whichever_is_newer(own: Own) -> None:
    assert own.next == 10
    own.read(20)
    assert own.next == 20
    own.set(5)
    assert own.next == 5
    own.start()
    assert own.next == 5
    own.read(8)
    assert own.next == 8
    assert own.current.states["a:0"].incarnation == "t"


def test_a_batch_counts_from_when_its_rows_are_in_the_view(own: Own) -> None:
    own.read(20)
    own.read(30, until="planned")
    assert own.next == 20
    own.batch -= 1
    own.read(30, until="written")
    assert own.next == 30


def test_what_was_read_is_known_from_the_commits_of_batches_with_rows_and_without(own: Own) -> None:
    own.read(20)
    own.read(25, rows=0)
    own.set(12)
    own.start()
    own.read(16)
    (life,) = own.current.lives["a:0"]
    assert (life.spans, life.reached, life.incarnation) == (((10, 25),), 16, "t")
    assert own.current.read_splits == {"a:0"}
    ranges = own.positions.committed_ranges(1, FRAGMENT)
    assert [found.ranges["a:0"] for found in ranges] == [(10, 20), (20, 25), (12, 16)]
    assert not own.positions.committed_ranges(1, "mv-9:1")


def test_undo_gets_the_position_from_before(own: Own) -> None:
    own.read(20)
    stood = own.metastore.snapshot().states(FRAGMENT)["a:0"]
    epoch = own.set(5)

    def before() -> int:
        return own.positions.before(1, epoch, (stood,), FRAGMENT)["a:0"].offset

    # A batch of the old run may still complete.
    own.read(26)
    assert before() == 26
    own.start()
    assert before() == 26
    own.read(9)
    assert before() == 26


def term_of(own: Own) -> int | None:
    """The term of the current position."""
    return own.current.states["a:0"].term


def test_a_position_has_the_term_of_the_commit_that_reached_it(own: Own) -> None:
    own.output.terms = {commit_key(1, "a:0"): 3}
    own.read(20)
    assert term_of(own) == 3
    own.output.terms = {commit_key(1, "a:0"): 4}
    own.read(26)
    assert term_of(own) == 4
    stood = own.metastore.snapshot().states(FRAGMENT)["a:0"]
    # A statement may set the same position: it is accepted as it is.
    epoch = own.set(26)
    own.start()
    assert own.next == 26
    assert term_of(own) is None
    own.output.terms = {commit_key(1, "a:0"): 5}
    own.read(30)
    assert term_of(own) == 5
    before = own.positions.before(1, epoch, (stood,), FRAGMENT)["a:0"]
    assert (before.offset, before.term) == (26, 4)


def test_the_records_of_a_batch_without_its_state_must_be_in_the_log(own: Own) -> None:
    states = own.current.states
    own.output.terms = {commit_key(1, "a:0"): 3}
    own.read(20)
    own.output.terms = {commit_key(1, "a:0"): 4}
    own.read(30, until="written")
    table = own.warehouse.data(2, 1)
    found = reached_states(own.warehouse, table, 1, states, {"a:0": 0})["a:0"]
    assert (found.offset, found.term) == (30, 4)


def test_a_block_stops_the_jobs_of_all_readers(own: Own) -> None:
    snapshot = own.metastore.snapshot()
    hold = lock_from_elsewhere(own.metastore)
    assert quiesced_jobs(own.context, snapshot) == {"mv-2": (hold,)}


def test_a_quiesce_lock_is_taken_once_the_readers_of_all_views_have_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(tmp_path, monkeypatch)
    definition = (
        "CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = 'a', properties.bootstrap.server = 'b:1', "
        "shared = 'false') FORMAT PLAIN ENCODE JSON"
    )
    options = (("topic", "a"), ("properties.bootstrap.server", "b:1"))
    jobs.commit(
        PutObject(
            record=SourceRecord(
                id=1, name="s", definition=definition, connector="kafka", options=options, is_shared=False
            )
        )
    )
    for view in (2, 3):
        record = MaterializedViewRecord(id=view, name=f"v{view}", definition="", query="", schema=SCHEMA, inputs=(1,))
        jobs.commit(PutObject(record=record))
    jobs.reach(lambda: len(jobs.jobs) == 2, "both views run")
    assert jobs.reconciler.wants_discovery() == [1]
    jobs.jobs["mv-3"].may_stop.clear()
    facts = jobs.metastore.jobs
    lock_from_elsewhere(jobs.metastore)
    jobs.reach(lambda: jobs.jobs["mv-2"].is_stopped and jobs.jobs["mv-3"].is_stopping.is_set(), "one has stopped")
    jobs.reconciler.reconcile()
    assert not any(found.is_taken for found in facts.quiesce_locks())
    jobs.jobs["mv-3"].may_stop.set()
    jobs.reach(lambda: all(found.is_taken for found in facts.quiesce_locks()), "the hold is taken")


class SameTopic:
    """An upstream whose topics always have the same incarnation."""

    def incarnations(self, topics: Sequence[str]) -> Mapping[str, str | None]:
        return dict.fromkeys(topics, "t")

    def close(self) -> None:
        """Does nothing: there is no connection."""


@pytest.mark.parametrize("cluster", ["c", "another"])
def test_a_batch_that_is_in_the_view_is_finished_as_it_was_planned(own: Own, cluster: str) -> None:
    own.read(20)
    own.read(30, until="written")
    own.set(5)
    snapshot = own.metastore.snapshot()
    source = snapshot.get(1)
    assert isinstance(source, SourceRecord)
    spec = ReaderSpec(
        fragment=FRAGMENT,
        source_id=1,
        name="s",
        connector="kafka",
        definition="",
        options=(),
        splits=("a:0",),
        since=snapshot.fragment_epoch(FRAGMENT),
    )
    seen = UpstreamSplit(split="a:0", start=0, end=99, cluster=cluster, incarnation="t")
    reader = own_module._Reader(
        spec=spec,
        source=source,
        kind=KAFKA,
        options={},
        upstream=Upstream(splits={"a:0": seen}, cluster=cluster),
        throttle=Throttle(None),
        watch=SameTopic(),
    )
    view = ViewSpec(
        job="mv-2",
        view_id=2,
        name="v",
        query="",
        schema=SCHEMA,
        keys=(),
        generation=1,
        inputs=(),
        readers=(spec,),
    )
    readers = own_module.DirectReaders(
        warehouse=own.warehouse, spec=view, files=own.checkpoint.files, snapshot=snapshot, readers=(reader,)
    )
    if cluster != "c":
        with pytest.raises(StalledError, match=r"UNFINISHED batch 1 of v.*UNDO OPERATION"):
            readers.align_checkpoint(1)
        return
    assert readers.align_checkpoint(1) == 1
    assert {split: state.offset for split, state in reader.states.items()} == {"a:0": 30}
    assert readers.ranges(1) == {"1/a:0": (20, 30)}
    own.checkpoint.write("commits/1", "v1\n{}")
    assert readers.align_checkpoint(1) is None
    assert reader.positions == {"a:0": 5}
    assert own.checkpoint.line(1) == {"a:0": 5}
    (own.checkpoint.folder / "_rw_sql/readers.json").unlink()
    remedy = "restore the checkpoint, or DROP MATERIALIZED VIEW v and create it again"
    with pytest.raises(StalledError, match=f"^CHECKPOINT damaged: .*: {remedy}$"):
        readers.ranges(1)
