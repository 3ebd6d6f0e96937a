"""Defines the Inspector of ``rw-sql check``.

The inspector reads the catalog. For facts that are not in the catalog, it returns assumed values with which the checks
of these facts pass.

The inspector records each assumption. From these records, the report lists the facts that were not checked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors import registry
from rw_sql.connectors.base import GroupOffsets, SplitState, Upstream
from rw_sql.connectors.plain import PlainConnector
from rw_sql.connectors.schemas.look import SchemaLook
from rw_sql.connectors.sink import SinkLook
from rw_sql.metastore.records import DEFAULT_GROUP, FORGOTTEN, SourceRecord
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.options import HIDDEN, visible
from rw_sql.model.relations import schema_columns
from rw_sql.plan.offline.queries import columns_known, is_not_built_in, read_text
from rw_sql.plan.offline.query_answers import QueryColumns, answer_query, written_names
from rw_sql.plan.ports.positions import Positions
from rw_sql.plan.ports.queries import STREAM, AnalyzedQuery, QueryAnalysis
from rw_sql.plan.ports.tables import TableLook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rw_sql.connectors.changes import CaptureError, ChangeCount, Lack, UpstreamTable
    from rw_sql.connectors.sink import SinkShape
    from rw_sql.connectors.slot_details import SlotDetails
    from rw_sql.connectors.snapshots import ColumnMisfit
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import BackfillProgress, JobStatus, RewindPoint
    from rw_sql.metastore.records import MaterializedViewRecord, OperationRecord, SecretRecord, StoredState
    from rw_sql.model.options import PlannedOptions
    from rw_sql.model.relations import Relation
    from rw_sql.plan.ports.checkpoints import CheckpointPort
    from rw_sql.plan.ports.jobs import Owner, Sample
    from rw_sql.plan.ports.positions import CommittedRanges
    from rw_sql.plan.ports.rewinds import RewindLook
    from rw_sql.plan.ports.tables import LogSize

UPSTREAM = "the upstream: whether it answers, its topics and splits"
UPSTREAM_TABLE = "the columns of the upstream table that * selects"
REGISTRY = "the schema registry: whether it answers, and the columns of its schema"
TARGET = "the sink's target: whether it answers and accepts the rows"
QUERY = "whether Spark can keep the query up to date"
POSITIONS = "the positions of the source's readers"
SECRET = "whether the secret's value can be read from its backend"
SECRET_BY_HAND = "whether a secret exists that the folder does not define"
TABLE = "tables that exist only in Spark"
FUNCTION = "functions that exist only in Spark"
FILE = "files and checkpoints that the statement names"
JOBS = "which views are being built and which tables are being refreshed"
OPERATIONS = "the past operations of the warehouse"

ASSUMED_OFFSET = 2**40
"""The position that offline checks assume for readers. This position is so high that no statement that shifts it
backwards reaches a negative offset."""

SELF_CONTAINED = frozenset({"datagen"})
"""The connectors that generate their data themselves. Reading the upstream of such a connector contacts no other
system."""


class Unanswerable(Exception):  # noqa: N818 - no error: the statement may be right
    """Raised if a lowering needs a fact for which no value can be assumed.

    ``what`` describes the fact. The check of the statement ends when this exception is raised.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class OfflineInspector:
    """An Inspector that reads only a catalog. ``unchecked`` lists the facts that the inspector could not determine, in
    the order in which these facts were needed.

    Some facts have no value that is plausible for every upstream and every job. A method that would return such a fact
    raises Unanswerable.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        columns: QueryColumns | None = None,
        readers: Sequence[MaterializedViewRecord] = (),
        ask_spark: Callable[[AnalyzedQuery], QueryAnalysis | None] | None = None,
    ) -> None:
        """``columns`` are the known columns of the statement's query. If the statement changes the query of a view,
        ``readers`` are the views that must be planned again together with this view. ``ask_spark`` is a function that
        calls Spark's analyzer, and returns None if the columns of an input are not known."""
        self._snapshot = snapshot
        self._columns = columns
        self._readers = readers
        self._ask_spark = ask_spark
        self._noted: dict[str, None] = {}

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The facts that a lowering needed but that the inspector could not determine."""
        return tuple(self._noted)

    def note(self, what: str) -> None:
        """Records a fact as unchecked."""
        self._noted[what] = None

    def after(self, snapshot: Snapshot) -> OfflineInspector:
        then = OfflineInspector(snapshot, columns=self._columns, readers=self._readers, ask_spark=self._ask_spark)
        then._noted = self._noted
        return then

    @property
    def upstreams(self) -> _Upstreams:
        return _Upstreams(self.note)

    @property
    def positions(self) -> _StoredPositions:
        return _StoredPositions(self._snapshot, self.note)

    @property
    def jobs(self) -> OfflineJobs:
        return OfflineJobs()

    @property
    def tables(self) -> _Tables:
        return _Tables(self.note)

    @property
    def queries(self) -> _Queries:
        return _Queries(self._snapshot, self.note, self._columns, self._readers, self._ask_spark)

    @property
    def checkpoints(self) -> CheckpointPort:
        raise Unanswerable(FILE)

    @property
    def rewinds(self) -> _Rewinds:
        return _Rewinds()

    @property
    def secrets(self) -> _Secrets:
        return _Secrets(self.note)

    def clock(self) -> int:
        return 0

    def file_text(self, path: str) -> str:
        raise Unanswerable(FILE)

    def operations(
        self, *, is_unsafe: bool | None = None, object_name: str | None = None, since: int | None = None
    ) -> tuple[OperationRecord, ...]:
        if since is not None:
            raise Unanswerable(OPERATIONS)
        return ()


class _Upstreams:
    """The port for upstreams and targets. Assumes that every upstream responds and has no splits, and that every target
    accepts all rows."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def look(self, connector: str, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = ()) -> Upstream:
        if connector in SELF_CONTAINED and HIDDEN not in visible(options).values():
            return registry.connector(connector).look(visible(options))
        self._note(UPSTREAM)
        return Upstream()

    def look_again(self, connector: str, options: PlannedOptions) -> Upstream:
        return self.look(connector, options)

    def sparse_topics(self, connector: str, options: PlannedOptions) -> Mapping[str, str]:
        return {}

    def offsets_at(
        self, connector: str, options: PlannedOptions, milliseconds: int, splits: tuple[str, ...]
    ) -> dict[str, int]:
        """Returns ASSUMED_OFFSET for each split. Raises SqlError if the connector cannot look up offsets by time."""
        kind = registry.connector(connector)
        if isinstance(kind, PlainConnector) and _is_left_out(kind, "offsets_at"):
            kind.offsets_at(visible(options), milliseconds, splits)
        self._note(UPSTREAM)
        return dict.fromkeys(splits, ASSUMED_OFFSET)

    def cut_logs(self, connector: str, options: PlannedOptions, states: Mapping[str, SplitState]) -> Mapping[str, int]:
        return {}

    def record_times(self, connector: str, options: PlannedOptions, offsets: Mapping[str, int]) -> Mapping[str, int]:
        return {}

    def group_offsets(
        self, connector: str, options: PlannedOptions, group: str, splits: tuple[str, ...]
    ) -> GroupOffsets:
        """Raises SqlError if the connector does not support consumer groups."""
        kind = registry.connector(connector)
        if isinstance(kind, PlainConnector) and _is_left_out(kind, "group_offsets"):
            kind.group_offsets(visible(options), group, splits)
        self._note(UPSTREAM)
        return GroupOffsets(offsets=dict.fromkeys(splits, ASSUMED_OFFSET))

    def column_misfit(self, connector: str, options: PlannedOptions, columns: Mapping[str, str]) -> ColumnMisfit | None:
        self._note(UPSTREAM)
        return None

    def describe_table(
        self, connector: str, options: PlannedOptions, table: str, *, is_needed: bool
    ) -> UpstreamTable | None:
        if is_needed:
            raise Unanswerable(UPSTREAM_TABLE)
        self._note(UPSTREAM)
        return None

    def find_lacks(
        self, connector: str, options: PlannedOptions, tables: Mapping[str, Mapping[str, str] | None]
    ) -> tuple[Lack, ...]:
        self._note(UPSTREAM)
        return ()

    def slot_details(self, connector: str, options: PlannedOptions) -> SlotDetails | None:
        return None

    def find_obstacle(self, connector: str, options: PlannedOptions, position: SplitState) -> CaptureError | None:
        return None

    def lacks_slot(self, connector: str, options: PlannedOptions) -> bool:
        return False

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
        return None

    def read_schema(self, options: PlannedOptions, subject: str, *, is_needed: bool) -> SchemaLook:
        """Raises Unanswerable if the columns of the statement depend on the schema, because the schema is not known."""
        if is_needed:
            raise Unanswerable(REGISTRY)
        self._note(REGISTRY)
        return SchemaLook(is_unknown=True)

    def read_schema_file(self, location: str) -> bytes:
        raise Unanswerable(FILE)

    def registry_error(
        self, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = (), *, is_login_enough: bool = False
    ) -> str | None:
        self._note(REGISTRY)
        return None

    def columns(self, connector: str, options: PlannedOptions) -> Mapping[str, str]:
        raise Unanswerable(UPSTREAM)

    def look_at_target(
        self,
        connector: str,
        options: PlannedOptions,
        shape: SinkShape | None,
        candidates: tuple[SecretRecord, ...] = (),
    ) -> SinkLook:
        self._note(TARGET)
        return SinkLook()


class _StoredPositions:
    """The port for positions. Returns the positions in the catalog, but raises each position below ASSUMED_OFFSET to
    ASSUMED_OFFSET. Therefore, no shift makes a position negative."""

    def __init__(self, snapshot: Snapshot, note: Callable[[str], None]) -> None:
        self._snapshot = snapshot
        self._note = note

    def of(self, source_id: int, fragment: str | None = None) -> Positions:
        self._note(POSITIONS)
        return self._stored(source_id, fragment)

    def with_log(self, source_id: int) -> Positions:
        return self._stored(source_id, None)

    def before(
        self, source_id: int, epoch: int, stood: tuple[StoredState, ...], fragment: str | None = None
    ) -> Mapping[str, SplitState]:
        raise Unanswerable(OPERATIONS)

    def newest_run(self, source_id: int) -> int:
        return 0

    def committed_ranges(
        self, source_id: int, fragment: str | None = None, *, down_to: int = 0
    ) -> tuple[CommittedRanges, ...]:
        return ()

    def watermarks(self, view_ids: tuple[int, ...]) -> Mapping[int, int]:
        return {}

    def _stored(self, source_id: int, fragment: str | None) -> Positions:
        record = self._snapshot.get(source_id)
        if not isinstance(record, SourceRecord):
            return Positions()
        kind = registry.connector(record.connector)
        states: dict[str, SplitState] = {}
        stored = self._snapshot.states(fragment or ingest_fragment(source_id))
        for split, row in stored.items():
            if row.state != FORGOTTEN:
                state = kind.decode_state(split, row.state)
                states[split] = replace(state, offset=max(state.offset, ASSUMED_OFFSET))
        forgotten = frozenset(split for split, row in stored.items() if row.state == FORGOTTEN)
        return Positions(states=states, log_version=0, forgotten=forgotten)


class OfflineJobs:
    """The port for jobs. The states of jobs are unknown offline: the results contain no status, owner or backlog, and
    :meth:`backfills` raises Unanswerable."""

    def statuses(self) -> Mapping[str, JobStatus]:
        return {}

    def serve_command(self, group: str) -> str:
        return "rw-sql serve" if group == DEFAULT_GROUP else f"rw-sql serve --resource-group {group}"

    def owners(self) -> Mapping[str, Owner]:
        return {}

    def backfills(self) -> Mapping[str, BackfillProgress]:
        raise Unanswerable(JOBS)

    def being_backfilled(self) -> frozenset[str]:
        return frozenset()

    def lags(self) -> Mapping[str, int | None]:
        return {}

    def metrics(self) -> tuple[Sample, ...]:
        return ()


class _Tables:
    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def look(self, name: str) -> TableLook:
        self._note(TABLE)
        return TableLook()

    def is_users_database(self, name: str) -> bool:
        return False

    def in_current_database(self, name: str) -> str:
        return ""

    def version(self, object_id: int) -> int:
        return 0

    def log_sizes(self, source_ids: tuple[int, ...]) -> Mapping[int, LogSize]:
        return {}


class _Queries:
    """The port for the analysis of queries. Calls Spark's analyzer if it is available. Otherwise, analyzes the text of
    the query."""

    def __init__(
        self,
        snapshot: Snapshot,
        note: Callable[[str], None],
        columns: QueryColumns | None,
        readers: Sequence[MaterializedViewRecord],
        ask_spark: Callable[[AnalyzedQuery], QueryAnalysis | None] | None,
    ) -> None:
        self._snapshot = snapshot
        self._note = note
        self._columns = columns
        self._readers = readers
        self._ask_spark = ask_spark

    def analyze(
        self,
        query: str,
        relations: tuple[Relation, ...],
        *,
        closes_windows: bool = False,
        form: str = STREAM,
        same_as: str = "",
    ) -> QueryAnalysis:
        analyzed = AnalyzedQuery(
            query=query, relations=relations, closes_windows=closes_windows, form=form, same_as=same_as
        )
        if self._ask_spark is not None:
            found = self._ask_spark(analyzed)
            if found is not None:
                return found
        self._note(QUERY)
        return self._answer_of_reader(analyzed) or answer_query(analyzed, self._columns)

    def _answer_of_reader(self, analyzed: AnalyzedQuery) -> QueryAnalysis | None:
        """The analysis of a view in ``readers``, which is planned again; None for the statement's own query.

        If the type of a column is unknown, the view's current type is assumed.
        """
        given = {relation.name: columns_known(relation.columns) for relation in analyzed.relations}
        readers = [reader for reader in self._readers if self._input_names(reader) == given.keys()]
        if not readers:
            return None
        # If several views have these inputs, the view that shares the most columns with the query is used.
        names = set(written_names(analyzed.query))
        reader = max(readers, key=lambda each: len(names & dict(schema_columns(each.schema)).keys()))
        before = dict(schema_columns(reader.schema))
        # The view exists, so Spark has the functions in its query.
        reading = read_text(analyzed.query, given, names_columns=False, is_function=is_not_built_in)
        if reading.findings:
            return QueryAnalysis(refusal=reading.findings[0].message)
        columns = tuple((name, kind or before.get(name)) for name, kind in reading.columns or ())
        return answer_query(analyzed, QueryColumns(columns=columns or None))

    def _input_names(self, reader: MaterializedViewRecord) -> set[str]:
        return {record.name for id_ in reader.inputs if (record := self._snapshot.get(id_)) is not None}


class _Rewinds:
    def points(self, source_id: int | None = None) -> tuple[RewindPoint, ...]:
        return ()

    def carried_out(self) -> frozenset[int]:
        raise Unanswerable(FILE)

    def look(self, point: RewindPoint) -> RewindLook:
        raise Unanswerable(FILE)


class _Secrets:
    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def seal(self, name: str, value: str, *, is_new_key: bool = False) -> str:
        return f"sealed {name}"

    def reseal(self, secret: SecretRecord, name: str) -> str:
        return self.seal(name, "")

    def require_readable(self, secret: SecretRecord) -> None:
        self._note(SECRET)


def _is_left_out(kind: PlainConnector, method: str) -> bool:
    """True if a connector does not implement the method, but inherits the base class's method, which refuses every
    call."""
    made: object = getattr(type(kind), method)
    return made is getattr(PlainConnector, method)
