"""The Inspector of a canned world. Each call of a method is recorded in ``CannedWorld.asked``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import TYPE_CHECKING, Any

from rw_sql.connectors import registry
from rw_sql.connectors.base import ENDLESS, GroupOffsets, SplitState, Upstream, UpstreamSplit
from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.kafka.source import topics_of
from rw_sql.connectors.schemas.look import SchemaLook
from rw_sql.connectors.sink import SinkLook
from rw_sql.connectors.snapshots import ColumnChecker, ColumnLister, ColumnMisfit
from rw_sql.errors import FILE_UNREADABLE, UPSTREAM_MISSING, SqlError
from rw_sql.metastore.records import DEFAULT_GROUP, FORGOTTEN, SourceRecord
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.options import visible
from rw_sql.model.pauses import pauses_of
from rw_sql.plan.ports.checkpoints import CheckpointText
from rw_sql.plan.ports.jobs import Owner, Sample
from rw_sql.plan.ports.positions import Positions
from rw_sql.plan.ports.queries import STREAM, AnalyzedQuery, QueryAnalysis
from rw_sql.plan.ports.tables import TableLook
from rw_sql.runtime.control.checkpoint_folders import CheckpointFolders

if TYPE_CHECKING:
    from rw_sql.connectors.changes import ChangeCount, Lack, UpstreamTable
    from rw_sql.connectors.sink import SinkShape
    from rw_sql.connectors.slot_details import SlotDetails
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import BackfillProgress, JobStatus, RewindPoint
    from rw_sql.metastore.records import OperationRecord, SecretRecord, StoredState
    from rw_sql.model.options import PlannedOptions
    from rw_sql.model.relations import Relation
    from rw_sql.plan.ports.positions import CommittedRanges
    from rw_sql.plan.ports.rewinds import RewindLook
    from rw_sql.plan.ports.tables import LogSize
    from tests.plan.canned import CannedWorld

LOCAL = ("posix_fs", "delta", "iceberg")
"""Connectors whose folders are real."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One call of a method: its qualified name, and its arguments."""

    method: str
    arguments: Mapping[str, Any]


def noted(method: FunctionType) -> Callable[..., Any]:
    """Wraps a method so that each call of the method is recorded."""
    parameters = signature(method)

    @wraps(method)
    def call(self: Port, *args: Any, **kwargs: Any) -> Any:
        bound = parameters.bind(self, *args, **kwargs)
        bound.apply_defaults()
        arguments = {name: value for name, value in bound.arguments.items() if name != "self"}
        self.world.asked.append(Asked(method=method.__qualname__, arguments=arguments))
        return method(self, *args, **kwargs)

    return call


class Port:
    """One port of a canned world. Every call of a public method is recorded."""

    def __init__(self, world: CannedWorld) -> None:
        self.world = world

    def __init_subclass__(cls) -> None:
        for name, found in list(vars(cls).items()):
            if isinstance(found, FunctionType) and not name.startswith("_") and name != "after":
                setattr(cls, name, noted(found))


class CannedInspector(Port):
    """Reads a canned world."""

    def after(self, snapshot: Snapshot) -> CannedInspector:
        world = self.world
        set_anew = {
            split
            for fragment, rows in snapshot.stored.items()
            for split, row in rows.items()
            if row is not world.snapshot.states(fragment).get(split)
        }
        moved = {split: at for split, at in world.moved.items() if split not in set_anew}
        held = {s.id for s in snapshot.all("source") if pauses_of(snapshot, s.id)}
        held -= {s.id for s in world.snapshot.all("source") if pauses_of(world.snapshot, s.id)}
        stopped = {ingest_fragment(id_) for id_ in held}
        jobs = {job: status for job, status in world.jobs.items() if job not in stopped}
        return CannedInspector(replace(world, snapshot=snapshot, moved=moved, jobs=jobs))

    @property
    def upstreams(self) -> CannedUpstreams:
        return CannedUpstreams(self.world)

    @property
    def positions(self) -> CannedPositions:
        return CannedPositions(self.world)

    @property
    def jobs(self) -> CannedJobs:
        return CannedJobs(self.world)

    @property
    def tables(self) -> CannedTables:
        return CannedTables(self.world)

    @property
    def queries(self) -> CannedQueries:
        return CannedQueries(self.world)

    @property
    def checkpoints(self) -> CannedCheckpoints:
        return CannedCheckpoints(self.world)

    @property
    def rewinds(self) -> CannedRewinds:
        return CannedRewinds(self.world)

    @property
    def secrets(self) -> CannedSecrets:
        return CannedSecrets(self.world)

    def clock(self) -> int:
        return 1_700_000_000_000

    def file_text(self, path: str) -> str:
        if path not in self.world.files:
            raise SqlError(FILE_UNREADABLE, f"cannot read file {path!r}: no such file or directory")
        return self.world.files[path]

    def operations(
        self, *, is_unsafe: bool | None = None, object_name: str | None = None, since: int | None = None
    ) -> tuple[OperationRecord, ...]:
        return tuple(
            found
            for found in self.world.operations
            if found.epoch >= (since or 0)
            and is_unsafe in (None, found.is_unsafe)
            and (object_name is None or object_name in found.objects)
        )


class CannedUpstreams(Port):
    """The topics of the world. Connectors that read folders read real folders."""

    def look(self, connector: str, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = ()) -> Upstream:
        if connector in LOCAL:
            return registry.connector(connector).look(visible(options))
        if registry.connector(connector).spec.is_batch:
            return Upstream()
        return _look(self.world, visible(options))

    def look_again(self, connector: str, options: PlannedOptions) -> Upstream:
        found, grown = _look(self.world, visible(options)), self.world.grown
        splits = {name: replace(split, end=grown.get(name, split.end)) for name, split in found.splits.items()}
        return replace(found, splits=splits)

    def sparse_topics(self, connector: str, options: PlannedOptions) -> Mapping[str, str]:
        if connector in LOCAL:
            return registry.connector(connector).sparse_topics(visible(options))
        return {topic: why for topic, why in self.world.sparse.items() if topic in topics_of(visible(options))}

    def offsets_at(
        self, connector: str, options: PlannedOptions, milliseconds: int, splits: tuple[str, ...]
    ) -> dict[str, int]:
        return {split: self.world.times[split] for split in splits}

    def cut_logs(self, connector: str, options: PlannedOptions, states: Mapping[str, SplitState]) -> Mapping[str, int]:
        cuts = self.world.cuts
        return {split: cuts[split] for split, state in states.items() if split in cuts and cuts[split] < state.offset}

    def record_times(self, connector: str, options: PlannedOptions, offsets: Mapping[str, int]) -> Mapping[str, int]:
        return {split: self.world.written[split] for split in offsets if split in self.world.written}

    def group_offsets(
        self, connector: str, options: PlannedOptions, group: str, splits: tuple[str, ...]
    ) -> GroupOffsets:
        known = self.world.groups.get(group, GroupOffsets(groups=tuple(self.world.groups)))
        return replace(known, offsets={split: at for split, at in known.offsets.items() if split in splits})

    def column_misfit(self, connector: str, options: PlannedOptions, columns: Mapping[str, str]) -> ColumnMisfit | None:
        kind = registry.connector(connector)
        if connector in LOCAL and isinstance(kind, ColumnChecker):
            return kind.column_misfit(visible(options), columns)
        return next((misfit for misfit in self.world.misfits if misfit.column in columns), None)

    def describe_table(
        self, connector: str, options: PlannedOptions, table: str, *, is_needed: bool
    ) -> UpstreamTable | None:
        found = self.world.upstream_tables.get(table)
        if found is None:
            raise CaptureError(UPSTREAM_MISSING, f"table {table} does not exist", hint=f"CREATE TABLE {table} (…)")
        return found

    def find_lacks(
        self, connector: str, options: PlannedOptions, tables: Mapping[str, Mapping[str, str] | None]
    ) -> tuple[Lack, ...]:
        return self.world.lacks

    def slot_details(self, connector: str, options: PlannedOptions) -> SlotDetails | None:
        slot = self.world.slot
        return slot if slot is not None and visible(options).get("slot.name", slot.name) == slot.name else None

    def find_obstacle(self, connector: str, options: PlannedOptions, position: SplitState) -> CaptureError | None:
        return self.world.obstacle

    def lacks_slot(self, connector: str, options: PlannedOptions) -> bool:
        return self.world.slot is None

    def count_changes(
        self,
        connector: str,
        options: PlannedOptions,
        start: int,
        end: int,
        tables: tuple[str, ...],
        *,
        only_first: bool = False,
        includes_earlier: bool = True,
    ) -> ChangeCount | None:
        return self.world.changes

    def read_schema(self, options: PlannedOptions, subject: str, *, is_needed: bool) -> SchemaLook:
        known = self.world.schemas
        schema = known.get(subject)
        return SchemaLook(schema=schema, present=tuple(known), error=self.world.registry_error)

    def read_schema_file(self, location: str) -> bytes:
        return self.world.files[location].encode("latin1")

    def registry_error(
        self, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = (), *, is_login_enough: bool = False
    ) -> str | None:
        return self.world.registry_error

    def columns(self, connector: str, options: PlannedOptions) -> Mapping[str, str]:
        kind = registry.connector(connector)
        return kind.columns(visible(options)) if isinstance(kind, ColumnLister) else {}

    def look_at_target(
        self,
        connector: str,
        options: PlannedOptions,
        shape: SinkShape | None,
        candidates: tuple[SecretRecord, ...] = (),
    ) -> SinkLook:
        resolved = visible(options)
        address = resolved.get("properties.bootstrap.server")
        if address in self.world.silent:
            return SinkLook(error=f"{address} does not answer")
        if address is not None and (address, resolved["topic"]) not in self.world.topics:
            return SinkLook(missing=f'topic "{resolved["topic"]}"', hint="create the topic first, or name another one")
        return self.world.target


def _look(world: CannedWorld, options: dict[str, str]) -> Upstream:
    address = options.get("properties.bootstrap.server")
    if "database.name" in options:
        database = options["database.name"]
        split = UpstreamSplit(split=database, start=0x1000, end=0x5000, cluster="7:1", incarnation="16384")
        return Upstream(splits={database: split}, cluster="7:1")
    if address is None:  # datagen has no upstream
        return Upstream(splits={"1-0": UpstreamSplit(split="1-0", start=0, end=ENDLESS, is_endless=True)})
    if "topic" not in options:
        return Upstream(
            cluster=f"cluster {address}", error=f"{address} does not answer" if address in world.silent else None
        )
    if address in world.silent:
        return Upstream(error=f"{address} does not answer")
    found = {topic: world.topics.get((address, topic)) for topic in topics_of(options)}
    return Upstream(
        splits={split.split: split for splits in found.values() for split in splits or ()},
        cluster=f"cluster {address}",
        missing=tuple(topic for topic, splits in found.items() if splits is None),
    )


class CannedPositions(Port):
    """The positions of the readers. Statements have set these positions, or the world defines them."""

    def of(self, source_id: int, fragment: str | None = None) -> Positions:
        return positions_in(self.world, source_id, fragment)

    def with_log(self, source_id: int) -> Positions:
        found = positions_in(self.world, source_id)
        readings, is_trimmed = dict(self.world.pieces), self.world.is_trimmed
        return replace(
            found,
            pieces={} if is_trimmed else readings,
            readings=readings,
            is_trimmed=is_trimmed,
            reader_epoch=self.world.reader_epoch,
        )

    def before(
        self, source_id: int, epoch: int, stood: tuple[StoredState, ...], fragment: str | None = None
    ) -> Mapping[str, SplitState]:
        source = self.world.snapshot.get(source_id)
        assert isinstance(source, SourceRecord)
        kind = registry.connector(source.connector)
        return {row.split: kind.decode_state(row.split, row.state) for row in stood}

    def newest_run(self, source_id: int) -> int:
        return self.world.run_number

    def committed_ranges(
        self, source_id: int, fragment: str | None = None, *, down_to: int = 0
    ) -> tuple[CommittedRanges, ...]:
        return tuple(self.world.commits)

    def watermarks(self, view_ids: tuple[int, ...]) -> Mapping[int, int]:
        return {id_: at for id_, at in self.world.watermarks.items() if id_ in view_ids}


def positions_in(world: CannedWorld, source_id: int, fragment: str | None = None) -> Positions:
    """The positions of a reader."""
    record = world.snapshot.get(source_id)
    assert isinstance(record, SourceRecord)
    kind = registry.connector(record.connector)
    states: dict[str, SplitState] = {}
    fragment = fragment or ingest_fragment(source_id)
    stored = world.snapshot.states(fragment)
    for split, row in stored.items():
        if row.state == FORGOTTEN:
            continue
        state = kind.decode_state(split, row.state)
        key = split if record.is_shared else f"{fragment}/{split}"
        states[split] = replace(state, offset=world.moved.get(key, state.offset))
    forgotten = frozenset(split for split, row in stored.items() if row.state == FORGOTTEN)
    return Positions(
        states=states,
        log_version=world.log_version,
        read_splits=frozenset(world.read),
        forgotten=forgotten,
        lives=dict(world.lives),
        sparse=frozenset(),
    )


class CannedJobs(Port):
    """The jobs of the world."""

    def statuses(self) -> Mapping[str, JobStatus]:
        return self.world.jobs

    def serve_command(self, group: str) -> str:
        return "rw-sql serve" if group == DEFAULT_GROUP else f"rw-sql serve --resource-group {group}"

    def owners(self) -> Mapping[str, Owner]:
        return {}

    def backfills(self) -> Mapping[str, BackfillProgress]:
        return self.world.backfills

    def being_backfilled(self) -> frozenset[str]:
        return frozenset(self.world.backfills)

    def lags(self) -> Mapping[str, int | None]:
        return {}

    def metrics(self) -> tuple[Sample, ...]:
        return (Sample(name="rw_sql_job_running", labels=(("job", "ingest-1"), ("object", "s")), value=1),)


class CannedTables(Port):
    """The Delta tables and databases that Spark has."""

    def look(self, name: str) -> TableLook:
        return self.world.tables.get(name, TableLook())

    def is_users_database(self, name: str) -> bool:
        return name in self.world.tables

    def in_current_database(self, name: str) -> str:
        return self.world.current_tables.get(name, "")

    def version(self, object_id: int) -> int:
        return -1 if self.world.snapshot.get(object_id) is None else 7

    def log_sizes(self, source_ids: tuple[int, ...]) -> Mapping[int, LogSize]:
        return self.world.logs


class CannedQueries(Port):
    """Spark's results for queries, as the world defines them."""

    def analyze(
        self,
        query: str,
        relations: tuple[Relation, ...],
        *,
        closes_windows: bool = False,
        form: str = STREAM,
        same_as: str = "",
    ) -> QueryAnalysis:
        if self.world.analyze is None:
            return self.world.analysis
        return self.world.analyze(
            AnalyzedQuery(query=query, relations=relations, closes_windows=closes_windows, form=form, same_as=same_as)
        )


class CannedCheckpoints(CheckpointFolders, Port):
    """Reads real checkpoints and the files that belong to them, except for texts that the world defines."""

    def __init__(self, world: CannedWorld) -> None:
        CheckpointFolders.__init__(self, world.running.get)
        Port.__init__(self, world)

    def text(self, path: str) -> CheckpointText:
        if path not in self.world.checkpoints:
            raise SqlError(FILE_UNREADABLE, f"cannot read checkpoint {path!r}: there is no such folder")
        return self.world.checkpoints[path]


class CannedRewinds(Port):
    """The rewind points of the world."""

    def points(self, source_id: int | None = None) -> tuple[RewindPoint, ...]:
        return tuple(point for point in self.world.points if source_id in (None, point.source_id))

    def carried_out(self) -> frozenset[int]:
        return self.world.carried_out

    def look(self, point: RewindPoint) -> RewindLook:
        return self.world.rewind_look


class CannedSecrets(Port):
    """Every secret can be read."""

    def seal(self, name: str, value: str, *, is_new_key: bool = False) -> str:
        return f"sealed {name}"

    def reseal(self, secret: SecretRecord, name: str) -> str:
        assert secret.sealed == f"sealed {secret.name}"
        return f"sealed {name}"

    def require_readable(self, secret: SecretRecord) -> None:
        pass
