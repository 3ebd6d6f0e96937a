"""A world of dictionaries, from which lowering reads facts. A test sets the facts, and nothing runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.base import GroupOffsets, SplitState, UpstreamSplit
from rw_sql.connectors.changes import CaptureError, ChangeCount, Lack, UpstreamTable
from rw_sql.connectors.kafka.source import topics_of
from rw_sql.connectors.schemas.client import RegisteredSchema
from rw_sql.connectors.sink import SinkLook
from rw_sql.connectors.slot_details import SlotDetails
from rw_sql.connectors.snapshots import ColumnMisfit
from rw_sql.errors import SqlError
from rw_sql.metastore import Snapshot
from rw_sql.metastore.codec import before_to_json, changes_to_json
from rw_sql.metastore.facts import BackfillProgress, JobStatus
from rw_sql.metastore.records import OperationRecord, PutSplitStates
from rw_sql.metastore.snapshot import before_image, effect_of
from rw_sql.model.job_ids import ingest_fragment, view_job
from rw_sql.model.job_specs import desired_jobs
from rw_sql.model.offset_ranges import LogPiece, with_piece, with_read
from rw_sql.plan.lower import lower, lower_explained
from rw_sql.plan.ports.checkpoints import CheckpointText
from rw_sql.plan.ports.positions import CommittedRanges
from rw_sql.plan.ports.queries import AnalyzedQuery, QueryAnalysis
from rw_sql.plan.ports.rewinds import RewindLook
from rw_sql.plan.ports.tables import LogSize, TableLook
from rw_sql.plan.result.explain import explain_lines
from rw_sql.plan.result.steps import after
from rw_sql.plan.statements.session.search_path import DEFAULT_PATH
from rw_sql.runtime.jobs.changed_jobs import desired_jobs_since
from rw_sql.syntax import parse_statement
from tests.conftest import rendered
from tests.plan.canned_inspector import Asked, CannedInspector, positions_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rw_sql.metastore.facts import RewindPoint
    from rw_sql.metastore.records import Change, Operation
    from rw_sql.model.offset_ranges import ReadIncarnation
    from rw_sql.plan.result.plan import Plan

HERE = "127.0.0.1:9092"
ELSEWHERE = "127.0.0.1:9093"

ONE_COLUMN = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'


@dataclass(slots=True)
class CannedWorld:
    """A catalog, the content of its upstreams, the positions of its readers, and the statuses of its jobs.

    ``topics`` maps (address, topic) to the topic's splits. ``moved`` are positions that a log's commits have advanced;
    all other positions come from the catalog. ``pieces`` are the contents of a log. ``run_number`` is the number of the
    run that reads. ``reader_epoch`` is the epoch of the oldest run that may still commit. ``target`` is the state of a
    sink's target. ``misfits`` are the columns that a PostgreSQL table cannot provide. ``analysis`` is Spark's result
    for every query, unless ``analyze`` is a function that returns the result for a query. ``cuts`` maps a split to the
    first offset that its log has lost. ``is_trimmed`` is true if rows have been deleted from the log. ``tables`` are
    the user's own tables. ``upstream_tables``, ``lacks``, ``slot`` and ``changes`` are the facts about a database for
    change data capture. ``asked`` lists the calls so far.
    """

    snapshot: Snapshot = field(default_factory=Snapshot)
    topics: dict[tuple[str, str], tuple[UpstreamSplit, ...]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    moved: dict[str, int] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, JobStatus] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    sparse: dict[str, str] = field(default_factory=dict)
    cuts: dict[str, int] = field(default_factory=dict)
    watermarks: dict[int, int] = field(default_factory=dict)
    lives: dict[str, tuple[ReadIncarnation, ...]] = field(default_factory=dict)
    pieces: dict[str, tuple[LogPiece, ...]] = field(default_factory=dict)
    is_trimmed: bool = False
    reader_epoch: int | None = None
    log_version: int = 7
    backfills: dict[str, BackfillProgress] = field(default_factory=dict)
    run_number: int = 1
    groups: dict[str, GroupOffsets] = field(default_factory=dict)
    checkpoints: dict[str, CheckpointText] = field(default_factory=dict)
    operations: tuple[OperationRecord, ...] = ()
    commits: list[CommittedRanges] = field(default_factory=list)
    running: dict[str, str] = field(default_factory=dict)
    logs: dict[int, LogSize] = field(default_factory=dict)
    dialect: str = "spark"
    shares_sources: bool = True
    search_path: tuple[str, ...] = DEFAULT_PATH
    analyze: Callable[[AnalyzedQuery], QueryAnalysis] | None = None
    tables: dict[str, TableLook] = field(default_factory=dict)
    current_tables: dict[str, str] = field(default_factory=dict)
    """The full names of the tables in the current database, if jobs use another database."""
    analysis: QueryAnalysis = field(default_factory=lambda: QueryAnalysis(schema=ONE_COLUMN))
    target: SinkLook = field(default_factory=SinkLook)
    misfits: tuple[ColumnMisfit, ...] = ()
    upstream_tables: dict[str, UpstreamTable] = field(default_factory=dict)
    lacks: tuple[Lack, ...] = ()
    slot: SlotDetails | None = None
    obstacle: CaptureError | None = None
    """The reason why the reader of a database cannot continue."""
    changes: ChangeCount | None = None
    schemas: dict[str, RegisteredSchema] = field(default_factory=dict)
    registry_error: str | None = None
    grown: dict[str, int] = field(default_factory=dict)
    """The ends that splits have when they are requested again."""
    points: tuple[RewindPoint, ...] = ()
    carried_out: frozenset[int] = frozenset()
    rewind_look: RewindLook = field(default_factory=lambda: RewindLook(tables=()))
    asked: list[Asked] = field(default_factory=list)

    def put_topic(
        self, topic: str, *bounds: tuple[int, int], at: str = HERE, life: str = "first", cluster: str | None = None
    ) -> None:
        """Adds a topic with one partition for each pair (start, end)."""
        self.topics[at, topic] = tuple(
            UpstreamSplit(
                split=f"{topic}:{number}", start=start, end=end, cluster=cluster or f"cluster {at}", incarnation=life
            )
            for number, (start, end) in enumerate(bounds)
        )

    def plan(self, text: str, lower_as: Callable[..., Plan] = lower) -> Plan:
        """The plan of one statement. Raises SqlError located in the text."""
        try:
            return lower_as(
                parse_statement(text),
                self.snapshot,
                self.inspector,
                query_dialect=self.dialect,
                shares_sources=self.shares_sources,
                search_path=self.search_path,
            )
        except SqlError as error:
            raise error.located(text) from error

    def run(self, *texts: str) -> Plan:
        """Plans statements one by one, applies their changes to the catalog, and returns the last plan."""
        assert texts
        for text in texts:
            plan = self.plan(text)
            if plan.operation is not None:
                self.commit(plan.operation)
        return plan

    def commit(self, operation: Operation) -> None:
        """Applies an operation to the catalog, and adds the operation to the log of operations."""
        effect = effect_of(self.snapshot, self.snapshot.epoch + 1, "somebody", operation.changes)
        record = OperationRecord(
            epoch=effect.epoch,
            kind=operation.kind,
            statement=operation.statement,
            objects=operation.objects,
            is_unsafe=operation.is_unsafe,
            actor="somebody",
            at_ms=1_700_000_000_000,
            reason=operation.reason,
            plan=operation.plan,
            changes=changes_to_json(operation.changes),
            before=before_to_json(before_image(self.snapshot, effect)),
            prediction=operation.prediction,
        )
        self.operations = (record, *self.operations)
        self.apply(operation.changes)

    def apply(self, changes: tuple[Change, ...]) -> None:
        """Applies changes to the catalog."""
        before, self.snapshot = self.snapshot, after(self.snapshot, changes)
        # Checks an invariant for each statement of each test: the jobs of objects that the changes do not affect need
        # not be computed again.
        assert desired_jobs_since(before, desired_jobs(before), self.snapshot) == desired_jobs(self.snapshot)
        for change in changes:
            if isinstance(change, PutSplitStates):
                # Commits from before a statement do not advance the position that the statement sets.
                names = {*change.states, *(f"{change.fragment}/{split}" for split in change.states)}
                self.moved = {split: at for split, at in self.moved.items() if split not in names}

    def read_on(self, source: str, **to: int) -> None:
        """Makes the source's reader read up to these offsets (``new_0=7`` is split ``new:0``), as its log records."""
        states = self.full_states(source)
        for name, end in to.items():
            split = ":".join(name.rsplit("_", 1))
            state = states[split]
            self.lives[split] = with_read(
                self.lives.get(split, ()), state.offset, end, cluster=state.cluster, incarnation=state.incarnation
            )
            self.pieces[split] = with_piece(
                self.pieces.get(split, ()),
                LogPiece(
                    first_run=self.run_number,
                    last_run=self.run_number,
                    start=state.offset,
                    end=end,
                    cluster=state.cluster,
                    incarnation=state.incarnation,
                    term=next(
                        (seen.term for splits in self.topics.values() for seen in splits if seen.split == split), None
                    ),
                ),
            )
            self.moved[split] = end
            self.read.add(split)

    def begin_backfill(self, view: str) -> None:
        """Begins the backfill of a view. The backfill has read 5 of 40 records."""
        record = self.snapshot.find("materialized_view", view)
        assert record is not None
        job = view_job(record.id)
        self.backfills[job] = BackfillProgress(
            job=job,
            object_id=record.id,
            generation=1,
            phase="reading history",
            done=5,
            total=40,
            started_ms=0,
            updated_ms=0,
        )

    def explained(self, text: str) -> str:
        """The output of EXPLAIN."""
        return "\n".join(explain_lines(self.plan(text, lower_explained)))

    def answers(self, text: str) -> list[tuple[str, str]]:
        """Runs a statement, and returns its result rows."""
        return [(row.change, row.detail) for row in self.run(text).changes]

    def states(self, source: str) -> dict[str, int]:
        """The positions of a source."""
        return {split: state.offset for split, state in self.full_states(source).items()}

    def full_states(self, source: str) -> Mapping[str, SplitState]:
        """The positions of a source, with the identity of their upstream."""
        record = self.snapshot.find("source", source)
        assert record is not None
        return positions_in(self, record.id).states

    def named(self, source: str) -> tuple[str, ...]:
        """The topics that a source names."""
        record = self.snapshot.find("source", source)
        assert record is not None
        return topics_of(dict(record.options))

    def assigned(self, source: str) -> tuple[str, ...]:
        """The splits assigned to a source."""
        record = self.snapshot.find("source", source)
        assert record is not None
        return tuple(sorted(self.snapshot.splits(ingest_fragment(record.id))))

    @property
    def inspector(self) -> CannedInspector:
        """The inspector through which planning reads this world."""
        return CannedInspector(self)

    def asked_of(self, method: Callable[..., object]) -> list[Mapping[str, Any]]:
        """The arguments of each call of a port's method so far."""
        return [asked.arguments for asked in self.asked if asked.method == method.__qualname__]


def create_source(name: str, topic: str, *options: str, at: str = HERE) -> str:
    """A CREATE SOURCE with one column."""
    more = "".join(f", {option}" for option in options)
    return (
        f"CREATE SOURCE {name} (id INT) WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{at}'{more}) FORMAT PLAIN ENCODE JSON"
    )


def moved_world(*options: str) -> CannedWorld:
    """A source ``s`` on the topic ``old``, a view on ``s``, and a topic ``new``. ``old`` has two partitions, which end
    at 50 and were read to 40 and 50."""
    world = CannedWorld()
    world.put_topic("old", (10, 50), (0, 50))
    world.put_topic("new", (0, 5), (3, 9), (0, 0))
    world.run(create_source("s", "old", *options), "CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    world.read_on("s", old_0=40, old_1=50)
    return world


def refused(world: CannedWorld, text: str) -> SqlError:
    """Runs a statement that must be refused. Asserts that the statement has changed nothing."""
    before = world.snapshot
    with pytest.raises(SqlError) as caught:
        world.run(text)
    assert world.snapshot is before
    return caught.value


def told(text: str, error: SqlError) -> str:
    """A statement and its refusal, in the form in which fixtures record them."""
    return f"{text}\n\n{rendered(error)}"


def refusals(world: CannedWorld, path: Path) -> list[str]:
    """The statements of a file with their errors. Every statement must be refused."""
    statements = path.read_text(encoding="utf-8").strip().split("\n\n")
    return [told(statement, refused(world, statement)) for statement in statements]
