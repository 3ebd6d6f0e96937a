"""Answers what a lowering asks where nothing can be asked: from the catalog, else with what refuses nothing.

Every answer that stands in for one of the world is noted, so that a report can say what it did not check.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.base import GroupOffsets, SplitState, Upstream
from rw_sql.connectors.plain import PlainConnector
from rw_sql.connectors.registry import connector
from rw_sql.connectors.sink import SinkLook
from rw_sql.metastore.records import FORGOTTEN, SourceRecord
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.options import HIDDEN, visible
from rw_sql.model.relations import schema_columns
from rw_sql.plan.offline.queries import columns_known, read_text
from rw_sql.plan.offline.query_answers import QueryColumns, answer_query, written_names
from rw_sql.plan.requests.catalog import (
    AsIf,
    MeasureLags,
    OpenSecret,
    ReadBackfills,
    ReadClock,
    ReadJobStatuses,
    ReadMetrics,
    ReadOperations,
    SealSecret,
    run_plan,
)
from rw_sql.plan.requests.logs import MeasureLogs
from rw_sql.plan.requests.positions import (
    Positions,
    ReadCommittedRanges,
    ReadHistoryGround,
    ReadPositions,
    ReadPositionsBefore,
    ReadVersion,
    ReadWatermarks,
)
from rw_sql.plan.requests.queries import AnalyzeQuery, QueryAnalysis
from rw_sql.plan.requests.rewind import ReadRewindPoints
from rw_sql.plan.requests.tables import LookAtTable, TableLook
from rw_sql.plan.requests.upstream import (
    FindColumnMisfit,
    FindOffsetsAt,
    FindRecordTimes,
    FindSparseTopics,
    LookAtTarget,
    LookAtUpstream,
    ReadGroupOffsets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import MaterializedViewRecord
    from rw_sql.plan.requests.catalog import Asking, Request
    from rw_sql.plan.result.plan import Plan

UPSTREAM = "the upstream: whether it answers, its topics and splits"
TARGET = "the sink's target: whether it answers and takes the rows"
QUERY = "whether Spark can keep the query up to date"
POSITIONS = "where the source's readers stand"
SECRET = "whether the secret's value can be read where it is kept"
TABLE = "tables that only Spark knows"
FILE = "files and checkpoints that the statement names"
JOBS = "which views are being made and which tables refreshed"
OPERATIONS = "the operations that were done in the warehouse"

ASSUMED_OFFSET = 2**40
"""Where readers stand as far as anybody knows offline: so far on that no step back leads to a negative offset."""

SELF_CONTAINED = frozenset({"datagen"})
"""Connectors whose upstream is their own code: looking at it reaches nothing."""


class Unanswerable(Exception):  # noqa: N818 - no error: the statement may be right
    """A lowering needs a fact that nothing could stand in for. ``what`` is unchecked, and so is all that follows."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class OfflineInspector:
    """Answers the requests of one lowering on a catalog. ``unchecked`` lists what it could not know, in order."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        columns: QueryColumns | None = None,
        readers: Sequence[MaterializedViewRecord] = (),
        ask_spark: Callable[[AnalyzeQuery], QueryAnalysis | None] | None = None,
    ) -> None:
        """``columns`` are those of the statement's query, as far as they are known; ``readers`` are the views that are
        planned again with the one whose query changes. ``ask_spark`` asks its analyzer, which answers None where what
        the query reads is not known itself."""
        self._snapshot = snapshot
        self._columns = columns
        self._readers = readers
        self._ask_spark = ask_spark
        self._noted: dict[str, None] = {}

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What was asked and not known."""
        return tuple(self._noted)

    def run(self, asking: Asking[Plan]) -> Plan:
        """Runs a lowering to its end. Raises SqlError as it does, and Unanswerable."""
        return run_plan(asking, self.answer)

    def note(self, what: str) -> None:
        """Lists something as unchecked."""
        self._noted[what] = None

    def answer(self, request: Request) -> object:
        """One answer. Raises Unanswerable where none would be true of every world."""
        match request:
            case AsIf(snapshot=snapshot, request=inner):
                before, self._snapshot = self._snapshot, snapshot
                try:
                    return self.answer(inner)
                finally:
                    self._snapshot = before
            case LookAtUpstream(connector=name):
                if name in SELF_CONTAINED and HIDDEN not in visible(request.options).values():
                    return connector(name).look(visible(request.options))
                self.note(UPSTREAM)
                return Upstream()
            case FindOffsetsAt() | ReadGroupOffsets():
                return self._answer_by_connector(request)
            case FindSparseTopics() | FindRecordTimes():
                return {}
            case FindColumnMisfit():
                self.note(UPSTREAM)
                return ()
            case LookAtTarget():
                self.note(TARGET)
                return SinkLook()
            case SealSecret(name=name):
                return f"sealed {name}"
            case OpenSecret():
                self.note(SECRET)
                return True
            case ReadPositions(source_id=source_id, fragment=fragment):
                self.note(POSITIONS)
                return self._positions(source_id, fragment)
            case ReadHistoryGround(source_id=source_id):
                return self._positions(source_id, None)
            case AnalyzeQuery():
                return self._answer_query(request)
            case LookAtTable():
                self.note(TABLE)
                return TableLook()
            case ReadClock() | ReadVersion():
                return 0
            case ReadBackfills():
                raise Unanswerable(JOBS)
            case ReadJobStatuses() | MeasureLags() | MeasureLogs() | ReadWatermarks():
                return {}
            case ReadMetrics() | ReadCommittedRanges() | ReadRewindPoints():
                return ()
            case ReadOperations(since=since):
                if since is not None:
                    raise Unanswerable(OPERATIONS)
                return ()
            case ReadPositionsBefore():
                raise Unanswerable(OPERATIONS)
            case _:
                raise Unanswerable(FILE)

    def _answer_by_connector(self, request: FindOffsetsAt | ReadGroupOffsets) -> object:
        """Raises SqlError where the connector has no such thing, whatever its upstream holds."""
        kind = connector(request.connector)
        options = visible(request.options)
        if isinstance(request, FindOffsetsAt):
            if isinstance(kind, PlainConnector) and _is_left_out(kind, "offsets_at"):
                kind.offsets_at(options, request.milliseconds, request.splits)
            self.note(UPSTREAM)
            return dict.fromkeys(request.splits, ASSUMED_OFFSET)
        if isinstance(kind, PlainConnector) and _is_left_out(kind, "group_offsets"):
            kind.group_offsets(options, request.group, request.splits)
        self.note(UPSTREAM)
        return GroupOffsets(offsets=dict.fromkeys(request.splits, ASSUMED_OFFSET))

    def _positions(self, source_id: int, fragment: str | None) -> Positions:
        record = self._snapshot.get(source_id)
        if not isinstance(record, SourceRecord):
            return Positions()
        kind = connector(record.connector)
        states: dict[str, SplitState] = {}
        stored = self._snapshot.states(fragment or ingest_fragment(source_id))
        for split, row in stored.items():
            if row.state != FORGOTTEN:
                state = kind.decode_state(split, row.state)
                states[split] = replace(state, offset=max(state.offset, ASSUMED_OFFSET))
        forgotten = frozenset(split for split, row in stored.items() if row.state == FORGOTTEN)
        return Positions(states=states, log_version=0, forgotten=forgotten)

    def _answer_query(self, request: AnalyzeQuery) -> QueryAnalysis:
        if self._ask_spark is not None:
            found = self._ask_spark(request)
            if found is not None:
                return found
        self.note(QUERY)
        return self._answer_of_reader(request) or answer_query(request, self._columns)

    def _answer_of_reader(self, request: AnalyzeQuery) -> QueryAnalysis | None:
        """The answer for a view that is planned again; None for the statement's own query.

        A type that is not known is taken to be the one that the view has.
        """
        given = {relation.name: columns_known(relation.columns) for relation in request.relations}
        readers = [reader for reader in self._readers if self._input_names(reader) == given.keys()]
        if not readers:
            return None
        # Of two that read the same, the one whose columns these are.
        names = set(written_names(request.query))
        reader = max(readers, key=lambda each: len(names & dict(schema_columns(each.schema)).keys()))
        before = dict(schema_columns(reader.schema))
        reading = read_text(request.query, given, names_columns=False)
        if reading.findings:
            return QueryAnalysis(refusal=reading.findings[0].message)
        columns = tuple((name, kind or before.get(name)) for name, kind in reading.columns or ())
        return answer_query(request, QueryColumns(columns=columns or None))

    def _input_names(self, reader: MaterializedViewRecord) -> set[str]:
        return {record.name for id_ in reader.inputs if (record := self._snapshot.get(id_)) is not None}


def _is_left_out(kind: PlainConnector, method: str) -> bool:
    """Whether a connector leaves a method to the base, which refuses."""
    made: object = getattr(type(kind), method)
    return made is getattr(PlainConnector, method)
