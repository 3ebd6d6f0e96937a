"""A world of dictionaries that answers what lowering asks. Nothing of it runs; a test says what there is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import pytest

from rw_sql.connectors.base import ColumnMisfit, GroupOffsets, SplitState, Upstream, UpstreamSplit
from rw_sql.connectors.kafka.source import topics_of
from rw_sql.connectors.registry import connector
from rw_sql.connectors.sink import SinkLook
from rw_sql.errors import FILE_UNREADABLE, SqlError
from rw_sql.metastore import Snapshot
from rw_sql.metastore.codec import before_to_json, changes_to_json
from rw_sql.metastore.facts import BackfillProgress, JobStatus
from rw_sql.metastore.records import FORGOTTEN, OperationRecord, PutSplitStates, SourceRecord
from rw_sql.metastore.snapshot import before_image, effect_of
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.offset_ranges import LogPiece, ReadIncarnation, with_piece, with_span
from rw_sql.model.options import visible
from rw_sql.model.pauses import pauses_of
from rw_sql.plan.lower import lower, lower_explained
from rw_sql.plan.ports.catalog import (
    AsIf,
    CheckpointText,
    MeasureLags,
    OpenSecret,
    ReadBackfills,
    ReadCheckpoint,
    ReadClock,
    ReadFile,
    ReadJobStatuses,
    ReadMetrics,
    ReadOperations,
    Sample,
    SealSecret,
    run_plan,
)
from rw_sql.plan.ports.logs import LogSize, MeasureLogs
from rw_sql.plan.ports.positions import (
    CommittedRanges,
    Positions,
    ReadCommittedRanges,
    ReadHistoryGround,
    ReadPositions,
    ReadPositionsBefore,
    ReadVersion,
    ReadWatermarks,
)
from rw_sql.plan.ports.queries import AnalyzeQuery, QueryAnalysis
from rw_sql.plan.ports.rewinds import LookAtRewind, ReadRewindPoints, RewindLook
from rw_sql.plan.ports.tables import LookAtTable, TableLook
from rw_sql.plan.ports.upstreams import (
    FindColumnMisfit,
    FindOffsetsAt,
    FindRecordTimes,
    FindSparseTopics,
    LookAtTarget,
    LookAtUpstream,
    ReadGroupOffsets,
)
from rw_sql.plan.result.explain import explain_lines
from rw_sql.plan.result.steps import after
from rw_sql.runtime.control.checkpoint_folders import answer_checkpoint
from rw_sql.syntax import parse_statement
from tests.conftest import rendered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rw_sql.metastore.facts import RewindPoint
    from rw_sql.metastore.records import Change, Operation
    from rw_sql.plan.ports.catalog import Asking, Request
    from rw_sql.plan.result.plan import Plan

T = TypeVar("T")

HERE = "127.0.0.1:9092"
ELSEWHERE = "127.0.0.1:9093"

ONE_COLUMN = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'


@dataclass(slots=True)
class CannedWorld:
    """A catalog, what its upstreams hold, where its readers stand, and what its jobs do.

    ``topics`` are (address, topic) → splits. ``moved`` are positions that a log's commits have moved on; others are the
    catalog's. ``pieces`` are what a log holds, ``run_number`` is the run that reads on, ``reader_epoch`` that of the
    oldest run that may still commit. ``target`` is what a look at a sink's target finds,
    ``misfits`` are the columns that a table of PostgreSQL cannot give. ``analysis`` is what
    Spark makes of every query, ``analyze`` of each. ``tables`` are the user's own. ``asked`` are the requests so far.
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
    watermarks: dict[int, int] = field(default_factory=dict)
    lives: dict[str, tuple[ReadIncarnation, ...]] = field(default_factory=dict)
    pieces: dict[str, tuple[LogPiece, ...]] = field(default_factory=dict)
    reader_epoch: int | None = None
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
    analyze: Callable[[AnalyzeQuery], QueryAnalysis] | None = None
    tables: dict[str, TableLook] = field(default_factory=dict)
    analysis: QueryAnalysis = field(default_factory=lambda: QueryAnalysis(schema=ONE_COLUMN))
    target: SinkLook = field(default_factory=SinkLook)
    misfits: tuple[ColumnMisfit, ...] = ()
    points: tuple[RewindPoint, ...] = ()
    rewind_look: RewindLook = field(default_factory=lambda: RewindLook(tables=()))
    asked: list[Request] = field(default_factory=list)

    def put_topic(
        self, topic: str, *bounds: tuple[int, int], at: str = HERE, life: str = "first", cluster: str | None = None
    ) -> None:
        """A topic with one partition per (start, end)."""
        self.topics[at, topic] = tuple(
            UpstreamSplit(
                split=f"{topic}:{number}", start=start, end=end, cluster=cluster or f"cluster {at}", incarnation=life
            )
            for number, (start, end) in enumerate(bounds)
        )

    def plan(self, text: str, lower_as: Callable[..., Asking[Plan]] = lower) -> Plan:
        """The plan of one statement. Raises SqlError located in the text."""
        try:
            statement = parse_statement(text)
            return self.asking(
                lower_as(statement, self.snapshot, query_dialect=self.dialect, shares_sources=self.shares_sources)
            )
        except SqlError as error:
            raise error.located(text) from error

    def run(self, *texts: str) -> Plan:
        """Plans statements one by one and puts what they change into the catalog; the last plan."""
        assert texts
        for text in texts:
            plan = self.plan(text)
            if plan.operation is not None:
                self.commit(plan.operation)
        return plan

    def commit(self, operation: Operation) -> None:
        """Puts what an operation changes into the catalog, and the operation into the log of record."""
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
        """Puts changes into the catalog."""
        self.snapshot = after(self.snapshot, changes)
        for change in changes:
            if isinstance(change, PutSplitStates):
                # What a statement sets is not moved on by commits from before it.
                names = {*change.states, *(f"{change.fragment}/{split}" for split in change.states)}
                self.moved = {split: at for split, at in self.moved.items() if split not in names}

    def read_on(self, source: str, **to: int) -> None:
        """The source's reader reads on to these offsets (``new_0=7`` is split ``new:0``), and its log says so."""
        states = self.full_states(source)
        for name, end in to.items():
            split = ":".join(name.rsplit("_", 1))
            state = states[split]
            known = self.lives.get(split, ())
            same = [life for life in known if life.incarnation == state.incarnation]
            spans = with_span(same[0].spans if same else (), state.offset, end)
            life = ReadIncarnation(spans=spans, reached=end, cluster=state.cluster, incarnation=state.incarnation)
            self.lives[split] = (*(old for old in known if old not in same), life)
            self.pieces[split] = with_piece(
                self.pieces.get(split, ()), self.run_number, state.offset, end, state.cluster, state.incarnation
            )
            self.moved[split] = end
            self.read.add(split)

    def explained(self, text: str) -> str:
        """What EXPLAIN prints."""
        return "\n".join(explain_lines(self.plan(text, lower_explained)))

    def answers(self, text: str) -> list[tuple[str, str]]:
        """Runs a statement: what it says it changed."""
        return [(row.change, row.detail) for row in self.run(text).changes]

    def states(self, source: str) -> dict[str, int]:
        """Where a source stands."""
        return {split: state.offset for split, state in self.full_states(source).items()}

    def full_states(self, source: str) -> Mapping[str, SplitState]:
        """Where a source stands, and of which upstream."""
        record = self.snapshot.find("source", source)
        assert record is not None
        return self._positions(record.id).states

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

    def asking(self, asking: Asking[T]) -> T:
        """Drives a lowering to its end."""

        def answer(request: Request) -> object:
            self.asked.append(request)
            return self._answer(request)

        return run_plan(asking, answer)

    def _answer(self, request: Request) -> object:
        match request:
            case LookAtUpstream(connector="posix_fs" | "delta"):
                # Folders are real.
                return connector(request.connector).look(visible(request.options))
            case LookAtUpstream(connector=kind) if connector(kind).spec.is_batch:
                return Upstream()
            case LookAtUpstream():
                return self._look(visible(request.options))
            case LookAtTarget():
                return self._look_at_target(visible(request.options))
            case ReadVersion():
                return 7
            case SealSecret(name=name):
                return f"sealed {name}"
            case OpenSecret():
                return True
            case FindOffsetsAt(splits=splits):
                return {split: self.times[split] for split in splits}
            case FindColumnMisfit(columns=columns):
                return tuple(misfit for misfit in self.misfits if misfit.column in dict(columns))
            case FindSparseTopics(connector="posix_fs" | "delta"):
                return connector(request.connector).sparse_topics(visible(request.options))
            case FindSparseTopics():
                return {
                    topic: why for topic, why in self.sparse.items() if topic in topics_of(visible(request.options))
                }
            case FindRecordTimes(offsets=offsets):
                return {split: self.written[split] for split, _ in offsets if split in self.written}
            case ReadWatermarks(view_ids=view_ids):
                return {id_: at for id_, at in self.watermarks.items() if id_ in view_ids}
            case ReadGroupOffsets(group=group, splits=splits):
                known = self.groups.get(group, GroupOffsets(groups=tuple(self.groups)))
                return replace(known, offsets={split: at for split, at in known.offsets.items() if split in splits})
            case ReadCheckpoint(path=path):
                if path not in self.checkpoints:
                    raise SqlError(FILE_UNREADABLE, f"cannot read checkpoint {path!r}: there is no such folder")
                return self.checkpoints[path]
            case ReadPositions(source_id=source_id, fragment=fragment):
                return self._positions(source_id, fragment)
            case ReadHistoryGround(source_id=source_id):
                ground = self._positions(source_id)
                return replace(ground, pieces=dict(self.pieces), reader_epoch=self.reader_epoch)
            case ReadFile(path=path):
                if path not in self.files:
                    raise SqlError(FILE_UNREADABLE, f"cannot read file {path!r}: no such file or directory")
                return self.files[path]
            case ReadClock():
                return 1_700_000_000_000
            case ReadJobStatuses():
                return self.jobs
            case ReadBackfills():
                return self.backfills
            case ReadOperations():
                return tuple(found for found in self.operations if found.epoch >= (request.since or 0))
            case ReadMetrics():
                return (Sample(name="rw_sql_job_running", labels=(("job", "ingest-1"), ("object", "s")), value=1),)
            case ReadCommittedRanges():
                return tuple(self.commits)
            case AsIf(snapshot=snapshot, request=inner):
                set_anew = {
                    split
                    for fragment, rows in snapshot.stored.items()
                    for split, row in rows.items()
                    if row is not self.snapshot.states(fragment).get(split)
                }
                moved = {split: at for split, at in self.moved.items() if split not in set_anew}
                held = {s.id for s in snapshot.all("source") if pauses_of(snapshot, s.id)}
                held -= {s.id for s in self.snapshot.all("source") if pauses_of(self.snapshot, s.id)}
                stopped = {ingest_fragment(id_) for id_ in held}
                jobs = {job: status for job, status in self.jobs.items() if job not in stopped}
                return replace(self, snapshot=snapshot, moved=moved, jobs=jobs)._answer(inner)
            case ReadPositionsBefore(source_id=source_id, stood=stood):
                source = self.snapshot.get(source_id)
                assert isinstance(source, SourceRecord)
                return {row.split: connector(source.connector).decode_state(row.split, row.state) for row in stood}
            case MeasureLags():
                return {}
            case MeasureLogs():
                return self.logs
            case LookAtTable(name=name):
                return self.tables.get(name, TableLook())
            case AnalyzeQuery():
                return self.analysis if self.analyze is None else self.analyze(request)
            case ReadRewindPoints(source_id=source_id):
                return tuple(point for point in self.points if source_id in (None, point.source_id))
            case LookAtRewind():
                return self.rewind_look
            case _:
                # Checkpoints and what lies beside them are files: these are real.
                return answer_checkpoint(request, self.running.get)

    def _look(self, options: dict[str, str]) -> Upstream:
        address = options.get("properties.bootstrap.server")
        if address is None:  # datagen: no upstream but itself
            return Upstream(splits={"1-0": UpstreamSplit(split="1-0", start=0, end=10, is_endless=True)})
        if "topic" not in options:
            return Upstream(
                cluster=f"cluster {address}", error=f"{address} does not answer" if address in self.silent else None
            )
        if address in self.silent:
            return Upstream(error=f"{address} does not answer")
        found = {topic: self.topics.get((address, topic)) for topic in topics_of(options)}
        return Upstream(
            splits={split.split: split for splits in found.values() for split in splits or ()},
            cluster=f"cluster {address}",
            missing=tuple(topic for topic, splits in found.items() if splits is None),
        )

    def _look_at_target(self, options: dict[str, str]) -> SinkLook:
        address = options.get("properties.bootstrap.server")
        if address in self.silent:
            return SinkLook(error=f"{address} does not answer")
        if address is not None and (address, options["topic"]) not in self.topics:
            return SinkLook(missing=f'topic "{options["topic"]}"', hint="create the topic first, or name another one")
        return self.target

    def _positions(self, source_id: int, fragment: str | None = None) -> Positions:
        record = self.snapshot.get(source_id)
        assert isinstance(record, SourceRecord)
        kind = connector(record.connector)
        states: dict[str, SplitState] = {}
        fragment = fragment or ingest_fragment(source_id)
        stored = self.snapshot.states(fragment)
        for split, row in stored.items():
            if row.state == FORGOTTEN:
                continue
            state = kind.decode_state(split, row.state)
            key = split if record.is_shared else f"{fragment}/{split}"
            states[split] = replace(state, offset=self.moved.get(key, state.offset))
        forgotten = frozenset(split for split, row in stored.items() if row.state == FORGOTTEN)
        return Positions(
            states=states,
            log_version=7,
            read_splits=frozenset(self.read),
            forgotten=forgotten,
            lives=dict(self.lives),
            sparse=frozenset(),
        )


def create_source(name: str, topic: str, *options: str, at: str = HERE) -> str:
    """A CREATE SOURCE of one column."""
    more = "".join(f", {option}" for option in options)
    return (
        f"CREATE SOURCE {name} (id INT) WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{at}'{more}) FORMAT PLAIN ENCODE JSON"
    )


def moved_world(*options: str) -> CannedWorld:
    """A source ``s`` on ``old`` (two partitions, read to 40 and 50 of 50), a view on it, and a topic ``new``."""
    world = CannedWorld()
    world.put_topic("old", (10, 50), (0, 50))
    world.put_topic("new", (0, 5), (3, 9), (0, 0))
    world.run(create_source("s", "old", *options), "CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    world.read_on("s", old_0=40, old_1=50)
    return world


def refused(world: CannedWorld, text: str) -> SqlError:
    """Runs a statement that must be refused, which then has changed nothing."""
    before = world.snapshot
    with pytest.raises(SqlError) as caught:
        world.run(text)
    assert world.snapshot is before
    return caught.value


def told(text: str, error: SqlError) -> str:
    """A statement and its refusal as fixtures keep them."""
    return f"{text}\n\n{rendered(error)}"


def refusals(world: CannedWorld, path: Path) -> list[str]:
    """Each statement of a file, all of which must be refused, and what it is told."""
    statements = path.read_text(encoding="utf-8").strip().split("\n\n")
    return [told(statement, refused(world, statement)) for statement in statements]
