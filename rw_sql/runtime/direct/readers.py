"""The direct readers of one run of a view.

Direct readers decode records inside the view's query, whose checkpoint stores the readers' positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.checkpoints.offset_log import read_entry
from rw_sql.connectors.base import TermConnector, look_anew
from rw_sql.connectors.fetching import PartlyStreamingConnector
from rw_sql.connectors.registry import connector
from rw_sql.metastore.records import MaterializedViewRecord, SourceRecord
from rw_sql.model.definitions import source_definition, source_watermark
from rw_sql.model.job_specs import view_spec
from rw_sql.model.split_status import OK, identity_status, split_status
from rw_sql.plan.statements.table.source_of_table import added_fields
from rw_sql.runtime.decoding.decoder import ERROR, decode
from rw_sql.runtime.decoding.upstream_records import packages_on_executors
from rw_sql.runtime.delta.job_output import SMALL_ROWS
from rw_sql.runtime.direct.align_checkpoint import DesiredReader, align, positions_of
from rw_sql.runtime.direct.checkpoint_record import offsets_of, read_head, read_record, with_lines, write_record
from rw_sql.runtime.direct.read_terms import commit_key, reached_states
from rw_sql.runtime.jobs.log_terms import LogTerms
from rw_sql.runtime.jobs.rate_limit import Throttle, pace_of
from rw_sql.runtime.jobs.startable import require_incarnations, require_readable, require_splits
from rw_sql.runtime.positions.planned_rows import Planned
from rw_sql.runtime.spark.executors import require_executors
from rw_sql.runtime.spark.jvm import analyzed_plan
from rw_sql.runtime.support.failures import StalledError, cause_line
from rw_sql.syntax import canonical_type
from rw_sql.syntax.lexing.identifiers import literal, sql_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from rw_sql.connectors.base import Connector, SplitState, Upstream, UpstreamWatch
    from rw_sql.metastore import Snapshot
    from rw_sql.model.job_specs import ReaderSpec, ViewSpec
    from rw_sql.model.view_inputs import ViewInput
    from rw_sql.runtime.delta.delta_log import SplitIdentity
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.support.warehouse import Warehouse


_ERRORS = "errors"

_RECORD_BYTES = 512 * 1024
"""The assumed size in bytes of a record that has not been read yet. Few records are larger. With this value, a batch of
up to 64 records counts as small without a measurement. The size of a batch with more records is measured."""


def _errors_of(source_id: int) -> str:
    return f"rw_sql_decode_errors_{source_id}"


@dataclass(slots=True)
class _Reader:
    """One source of the run: its reader's settings and start positions."""

    spec: ReaderSpec
    source: SourceRecord
    kind: Connector
    options: Mapping[str, str]
    upstream: Upstream
    throttle: Throttle
    watch: UpstreamWatch | None = None
    states: dict[str, SplitState] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    terms: LogTerms | None = None
    mark: int | None = None

    @property
    def incarnations(self) -> dict[str, str | None]:
        """The incarnation of each topic when the reader began."""
        return {self.kind.split_topic(split): state.incarnation for split, state in self.states.items()}


@dataclass(slots=True)
class DirectReaders:
    """The view's direct readers.

    ``terms`` maps a split to the term (Kafka: leader epoch) of the split's log at the reader's position. ``unproved``
    maps a split to the range of offsets that the batch in progress reads; :meth:`require_same_log` checks these ranges.
    The keys of both are the split names that the view's commits use.
    """

    warehouse: Warehouse
    spec: ViewSpec
    files: CheckpointFiles
    snapshot: Snapshot
    readers: tuple[_Reader, ...]
    counted: int = -1
    terms: dict[str, int] = field(default_factory=dict)
    unproved: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @staticmethod
    def look(context: Context, spec: ViewSpec, snapshot: Snapshot, checkpoint: str) -> DirectReaders | None:
        """Returns the direct readers of a view; None for a view without direct readers. Requests the splits and their
        ends from the upstreams.

        Raises StalledError if the readers cannot start. Writes nothing.
        """
        if not spec.readers:
            return None
        view = snapshot.get(spec.view_id)
        if not isinstance(view, MaterializedViewRecord) or view_spec(snapshot, view) != spec:
            raise StalledError("the catalog has changed")
        files = CheckpointFiles.at(checkpoint)
        readers = []
        for given in spec.readers:
            source = snapshot.get(given.source_id)
            if not isinstance(source, SourceRecord):
                raise StalledError("the catalog has changed")
            kind = connector(given.connector)
            options = context.resolve(given.options, snapshot)
            upstream = look_anew(kind, options)
            require_splits(given.splits, upstream)
            states = positions_of(read_head(files), given.fragment, kind, snapshot.states(given.fragment))
            _require_readable(given, states, upstream)
            readers.append(
                _Reader(
                    spec=given,
                    source=source,
                    kind=kind,
                    options=options,
                    upstream=upstream,
                    throttle=Throttle(pace_of(options).per_second),
                )
            )
        return DirectReaders(
            warehouse=context.warehouse, spec=spec, files=files, snapshot=snapshot, readers=tuple(readers)
        )

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages (jars) that Spark must load for the readers."""
        return tuple(dict.fromkeys(package for reader in self.readers for package in reader.kind.spark_packages()))

    @property
    def on_executors(self) -> tuple[str, ...]:
        """The Python packages that executors need to read and decode the records."""
        of_each = (packages_on_executors(each.kind, source_definition(each.source.definition)) for each in self.readers)
        return tuple(dict.fromkeys(package for packages in of_each for package in packages))

    @property
    def interval_ms(self) -> int:
        """The minimum time between two batches in milliseconds: the longest interval of all sources."""
        return max(pace_of(reader.options).interval_ms for reader in self.readers)

    @property
    def lives(self) -> dict[str, SplitIdentity]:
        """Maps each split to its cluster and incarnation. The keys are the split names that the view's commits use."""
        return {
            commit_key(reader.source.id, split): (state.cluster, state.incarnation)
            for reader in self.readers
            for split, state in reader.states.items()
        }

    def align_checkpoint(self, done: int) -> int | None:
        """Aligns the checkpoint with the catalog, after earlier runs of the view are fenced.

        ``done`` is the number of the last batch whose rows are in the view. If the checkpoint contains a planned batch
        that must be finished first, sets up the readers for this batch and returns its number. Otherwise, returns None.
        Raises StalledError if the readers cannot start.
        """
        alignment = align(
            self.files,
            (
                DesiredReader(
                    fragment=reader.spec.fragment,
                    kind=reader.kind,
                    splits=reader.spec.splits,
                    stored=self.snapshot.states(reader.spec.fragment),
                    since=reader.spec.since,
                )
                for reader in self.readers
            ),
            done=done,
        )
        if alignment.unfinished is not None:
            self._set_up_for(alignment.unfinished)
            return alignment.unfinished
        for reader in self.readers:
            reader.states = dict(alignment.states[reader.spec.fragment])
            _require_readable(reader.spec, reader.states, reader.upstream)
            reader.positions = {split: state.offset for split, state in reader.states.items()}
            if reader.watch is None:
                reader.watch = reader.kind.watch(reader.options)
            stored = self.snapshot.states(reader.spec.fragment)
            states = self._reached(reader, {split: stored[split].epoch for split in reader.states})
            reader.terms = LogTerms.open(
                reader.source.name, reader.kind, reader.options, states, reader.upstream.splits
            )
            self._note_terms(reader)
        return None

    def _reached(self, reader: _Reader, since: Mapping[str, int]) -> Mapping[str, SplitState]:
        """Returns the reader's positions, each with the term of the split's log. If the rows of the last batch are
        already in the view, returns the positions after this batch."""
        if not isinstance(reader.kind, TermConnector):
            return reader.states
        table = self.warehouse.data(self.spec.view_id, self.spec.generation)
        return reached_states(self.warehouse, table, reader.source.id, reader.states, since)

    def _note_terms(self, reader: _Reader) -> None:
        if reader.terms is not None:
            self.terms.update((commit_key(reader.source.id, split), at) for split, at in reader.terms.known.items())

    def _set_up_for(self, batch: int) -> None:
        """Sets up the readers for a planned batch. Raises StalledError if the upstream does not have the records of the
        batch any more."""
        head = read_head(self.files)
        record = head.record
        if record is None:
            raise self._damaged("it does not show which sources its offsets belong to")
        for reader in self.readers:
            planned = head.planned_offsets(self.files, reader.spec.fragment, reader.kind) or {}
            lives = record.lives.get(reader.spec.fragment, {})
            reader.states = {}
            for split, offset in planned.items():
                cluster, incarnation = lives.get(split, (None, None))
                state = reader.kind.decode_state(split, str(offset))
                reader.states[split] = _with_identity(state, cluster, incarnation)
            begun = head.offsets(reader.spec.fragment, reader.kind) or {}
            reader.positions = {split: begun.get(split, offset) for split, offset in planned.items()}
            reader.watch = reader.watch or reader.kind.watch(reader.options)
            if self._is_elsewhere(reader):
                raise StalledError(
                    f"UNFINISHED batch {batch} of {self.spec.name}: its rows are in the view but its state is not, and "
                    f"the present upstream of source {reader.source.name} does not have its records: "
                    "UNDO OPERATION restores the properties; change them again after the batch is complete"
                )
            if self._has_lost(reader) and self.files.stamps("state"):
                name = sql_name(self.spec.name)
                raise StalledError(
                    f"UNFINISHED batch {batch} of {self.spec.name}: its rows are in the view but its state is not, and "
                    f"the upstream of source {reader.source.name} has lost its records: DROP MATERIALIZED VIEW {name} "
                    "and create it again",
                    is_final=True,
                )

    def _damaged(self, what: str, *, is_final: bool = False) -> StalledError:
        """The error for a checkpoint of the view that contradicts itself, the query or the catalog."""
        again = f"restore the checkpoint, or DROP MATERIALIZED VIEW {sql_name(self.spec.name)} and create it again"
        return StalledError(f"CHECKPOINT damaged: {what}: {again}", is_final=is_final)

    def _has_lost(self, reader: _Reader) -> bool:
        """True if the upstream has lost records of a planned batch. The upstream may have other records at their
        offsets."""
        if not isinstance(reader.kind, TermConnector):
            return False
        try:
            return bool(reader.kind.diverged(reader.options, self._reached(reader, dict.fromkeys(reader.states, -1))))
        except OSError as error:
            raise StalledError(f"UNREACHABLE {cause_line(str(error))}") from error

    def _is_elsewhere(self, reader: _Reader) -> bool:
        cluster = reader.upstream.cluster
        if any(cluster and state.cluster and state.cluster != cluster for state in reader.states.values()):
            return True
        if reader.watch is None:
            seen = reader.upstream.splits
            return any(s not in seen or identity_status(st, seen[s]) != OK for s, st in reader.states.items())
        known = reader.incarnations
        now = reader.watch.incarnations(tuple(known))
        return any(life is not None and now.get(topic, "") not in (None, life) for topic, life in known.items())

    def frame(self, spark: SparkSession, given: ViewInput) -> DataFrame | None:
        """The decoded rows of a source, without the records that could not be decoded; None for a source without a
        direct reader."""
        source_id = given.id
        reader = next((found for found in self.readers if found.source.id == source_id), None)
        if reader is None:
            return None
        statement = source_definition(reader.spec.definition)
        records = reader.kind.read_stream(
            spark,
            reader.options,
            reader.states,
            max_records=pace_of(reader.options, spark.sparkContext.defaultParallelism).batch_records,
            with_headers=any(column.kind == "header" for column in statement.include),
            columns={column.name: canonical_type(column.data_type) for column in statement.columns},
        )
        added = added_fields(self.snapshot, reader.source)
        rows = decode(records, statement, reader.options, run=0, batch=0, bucket=0, added=added)
        rows = rows.observe(_errors_of(source_id), f.count(ERROR).alias(_ERRORS))
        reader.mark = _leaf_id(_leaves(records)[0])
        frame = rows.where(f"{ERROR} IS NULL").selectExpr(*given.selected)
        watermark = source_watermark(statement)
        return frame if watermark is None else frame.withWatermark(*watermark)

    def know_lines(self, query: DataFrame) -> None:
        """Records, in the checkpoint, the fragment to which each line of the query's offset log belongs. If the
        checkpoint already contains this record, compares the query with it.

        Raises StalledError if the fragment of a line cannot be determined, or differs from the recorded fragment.
        """
        marks = {reader.mark: reader.spec.fragment for reader in self.readers}
        lines = tuple(marks.get(_leaf_id(leaf)) for leaf in _leaves(query))
        told = [line for line in lines if line is not None]
        if sorted(told) != sorted(reader.spec.fragment for reader in self.readers):
            raise StalledError(
                f"UNSUPPORTED {self.spec.name} reads a source several times, and the source is not shared: "
                "create a view of the source first, or a shared source",
                is_final=True,
            )
        record = read_record(self.files)
        if record is None:
            raise TypeError("a checkpoint is aligned before its query starts")
        if record.lines and record.lines != lines:
            raise self._damaged(f"it has offsets of {record.lines}, but the query reads {lines}", is_final=True)
        if not record.lines:
            write_record(self.files, with_lines(record, lines))

    def ranges(self, batch: int) -> dict[str, tuple[int, int]]:
        """Maps each split to the range that a batch reads. The keys are the split names that the view's commits use.

        Raises StalledError if the checkpoint is damaged.
        """
        record = read_record(self.files)
        entry = read_entry(self.files.read(f"offsets/{batch}"))
        if record is None or len(record.lines) != len(entry.offsets):
            raise self._damaged("it does not show which sources its offsets belong to", is_final=True)
        found: dict[str, tuple[int, int]] = {}
        for reader in self.readers:
            ends = offsets_of(entry, record.lines, reader.spec.fragment, reader.kind) or {}
            if not ends.keys() <= reader.positions.keys():
                what = f"it has offsets of {reader.spec.fragment} for other splits than the catalog: {sorted(ends)[:8]}"
                raise self._damaged(what, is_final=True)
            for split, start in reader.positions.items():
                found[commit_key(reader.source.id, split)] = (start, ends.get(split, start))
        return found

    def begin(self, ranges: Mapping[str, tuple[int, int]], spark: SparkSession) -> None:
        """Begins a batch that reads ``ranges``. The query of the batch runs in the session ``spark``. Until
        :meth:`read_to` ends the batch, :meth:`require_same_log` checks ``ranges``. Raises StalledError if the stream
        cannot read a record of the batch, or if an executor is not able to read the batch."""
        require_executors(self.warehouse, spark, self.on_executors)
        self.unproved = {key: (start, end) for key, (start, end) in ranges.items() if end > start}
        for reader in self.readers:
            if isinstance(reader.kind, PartlyStreamingConnector):
                self._require_streamable(reader, reader.kind)

    def _require_streamable(self, reader: _Reader, kind: PartlyStreamingConnector) -> None:
        keys = {split: commit_key(reader.source.id, split) for split in reader.positions}
        read = {split: self.unproved[key] for split, key in keys.items() if key in self.unproved}
        for split, at in sorted(kind.unstreamable(reader.options, read).items()) if read else ():
            # It is not known whether the stream can read the records after the first one.
            if at >= read[split][0]:
                name = sql_name(reader.source.name)
                raise StalledError(
                    f"UNREADABLE {split}: the query of {self.spec.name}, which reads {name} itself, cannot read the "
                    f"record at offset {at}: to omit it, INJECT SOURCE OFFSETS {name} VALUES ({literal(split)} = "
                    f"{at + 1})"
                )

    def read_to(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Advances the positions to the ends of ``ranges``. Must be called after the batch with these ranges is
        written."""
        self.unproved = {}
        for reader in self.readers:
            reader.positions = {split: ranges[commit_key(reader.source.id, split)][1] for split in reader.positions}

    def take_turn(self, ranges: Mapping[str, tuple[int, int]]) -> bool:
        """Waits as long as the sources' rate limits require; returns False if :meth:`end` interrupted the wait."""
        for reader in self.readers:
            of = [ranges[commit_key(reader.source.id, split)] for split in reader.positions]
            if not reader.throttle.take(sum(end - start for start, end in of)):
                return False
        return True

    def planned(self, ranges: Mapping[str, tuple[int, int]]) -> Planned:
        """Estimates the maximum number and the maximum size of a batch's rows. The exact number and size are known only
        after the batch is read. The result is empty if the batch has more than :data:`SMALL_ROWS` offsets, or if the
        view has several inputs."""
        offsets = sum(end - start for start, end in ranges.values())
        if offsets > SMALL_ROWS or len(self.spec.inputs) != 1:
            return Planned()
        return Planned(most=SMALL_ROWS, size=offsets * _RECORD_BYTES)

    def require_same_log(self) -> None:
        """Raises StalledError if a topic was replaced or deleted since the reader began, or if a split's log may have
        lost records that the reader has read.

        Comparing the ids of the topics is sufficient, because a deleted topic's id is never used again.
        """
        for reader in self.readers:
            if reader.watch is None:
                continue
            known = reader.incarnations
            require_incarnations(reader.source.name, known, reader.watch.incarnations(tuple(known)))
            keys = {split: commit_key(reader.source.id, split) for split in reader.positions}
            read = {split: self.unproved[key] for split, key in keys.items() if key in self.unproved}
            if reader.terms is not None and read:
                reader.terms.require_read(read)
                self._note_terms(reader)

    def count_errors(self, progress: StreamingQueryProgress | None) -> dict[str, int]:
        """Maps each source to the number of its records in the last reported batch that could not be decoded. The
        result omits sources without undecodable records. The result is empty if an earlier call has counted this
        batch."""
        if progress is None or progress.batchId <= self.counted:
            return {}
        self.counted = progress.batchId
        observed = progress.observedMetrics
        found = {r.source.name: observed.get(_errors_of(r.source.id)) for r in self.readers}
        return {name: int(row[_ERRORS]) for name, row in found.items() if row is not None and row[_ERRORS]}

    def end(self) -> None:
        """Ends the waits for a rate limit (:meth:`take_turn`)."""
        for reader in self.readers:
            reader.throttle.end()

    def close(self) -> None:
        """Closes the connections to the upstreams."""
        for reader in self.readers:
            if reader.watch is not None:
                reader.watch.close()


def _require_readable(spec: ReaderSpec, states: Mapping[str, SplitState], upstream: Upstream) -> None:
    if any(split_status(states.get(split), upstream.splits.get(split)) != OK for split in spec.splits):
        require_readable(spec.name, spec.splits, states, upstream)


def _with_identity(state: SplitState, cluster: str | None, incarnation: str | None) -> SplitState:
    return replace(state, cluster=cluster, incarnation=incarnation)


def _leaves(frame: DataFrame) -> list[Any]:
    """The sources of a streaming query, in the order of its offset log's lines."""
    leaves = analyzed_plan(frame).collectLeaves()
    found = [leaves.apply(i) for i in range(leaves.size())]
    # A reference to a WITH query is also a leaf, but not a source. The leaves of the definition of the WITH query are
    # included.
    return [leaf for leaf in found if str(leaf.getClass().getSimpleName()).startswith("StreamingRelation")]


def _leaf_id(leaf: Any) -> int | None:
    """Returns an id that identifies a source of a query within this process. The id stays the same when Spark
    transforms the query."""
    output = leaf.output()
    return int(output.apply(0).exprId().id()) if output.size() else None
