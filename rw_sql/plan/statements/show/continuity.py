"""Lowers SHOW SOURCE CONTINUITY, which compares the predicted gaps and duplicates of operations with those that the log
shows.

The log's commits show which offsets each run read, in the order of the runs. The runs that started at an operation's
epoch or later show the effect of the operation. Duplicates are offsets that were read before the operation and were
read again by the runs after the operation. A gap consists of the offsets that were never read between the last record
read before the operation and the first record read after it. The runs between two operations must cause neither gaps
nor duplicates.

If offsets do not count bytes, as MySQL's positions do not, a verdict may show bytes in place of offsets. The columns
``duplicates`` and ``gaps`` then contain bytes too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from rw_sql.connectors.changes import ChangeConnector
from rw_sql.connectors.registry import connector, has_wide_offsets
from rw_sql.connectors.support.wide_offsets import MOST_COUNTED
from rw_sql.metastore.codec import before_from_json
from rw_sql.metastore.records import DISCOVERY, REWIND
from rw_sql.model.object_lookup import find_source
from rw_sql.model.offset_ranges import covered, reads_of, uncovered, with_read
from rw_sql.model.options import source_options
from rw_sql.model.source_readers import readers_of
from rw_sql.model.split_status import split_order
from rw_sql.plan.result.plan import Plan, Table
from rw_sql.plan.result.prediction import PredictedSplit, prediction_from_json
from rw_sql.plan.statements.show.operations_on import operations_on
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import RewindSource

if TYPE_CHECKING:
    from rw_sql.connectors.base import UpstreamSplit
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import OperationRecord
    from rw_sql.model.offset_ranges import IncarnationReads, ReadIncarnation
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.ports.positions import CommittedRanges
    from rw_sql.syntax.statements import ShowSourceContinuity

AS_PREDICTED = "AS PREDICTED"
PENDING = "PENDING"
DIFFERS = "DIFFERS"
CUT_SHORT = "CUT SHORT"
TAKEN_BACK = "TAKEN BACK"
NOT_PREDICTED = "NOT PREDICTED"
UNBROKEN = "UNBROKEN"
BROKEN = "BROKEN"

READING = "READING"
"""The value of the column ``kind`` in rows about the records that were read between two operations."""

COLUMNS = (
    ("operation", "BIGINT"),
    ("at", "TIMESTAMP"),
    ("kind", "STRING"),
    ("split", "STRING"),
    ("predicted", "STRING"),
    ("duplicates", "BIGINT"),
    ("gaps", "BIGINT"),
    ("last_before", "BIGINT"),
    ("first_after", "BIGINT"),
    ("status", "STRING"),
    ("fragment", "STRING"),
)

_OFFSETS = ("last_before", "first_after")
_DUPLICATES = [name for name, _ in COLUMNS].index("duplicates")

SplitIdentity = tuple[str | None, str | None]


@dataclass(slots=True)
class _Read:
    """The offsets that have been read from a split so far, as ranges for each incarnation.

    ``last`` is the last offset read.
    """

    lives: tuple[ReadIncarnation, ...] = ()
    last: int | None = None
    _found: dict[SplitIdentity, IncarnationReads | None] = field(default_factory=dict)

    def of(self, life: SplitIdentity) -> IncarnationReads | None:
        """The offsets that have been read from one incarnation. Callers must not change ``lives`` after the first call
        of this method."""
        if life not in self._found:
            self._found[life] = reads_of(self.lives, *life)
        return self._found[life]


@dataclass(slots=True)
class _Stretch:
    """The offsets that the runs between two operations read from one split.

    ``first`` is the first offset read, and ``next`` is the offset after the last offset read. ``duplicates`` and
    ``gaps`` compare these offsets with those read before the first of the two operations. ``inner_duplicates`` and
    ``inner_gaps`` compare consecutive reads of these runs with each other.
    """

    first: int | None = None
    next: int | None = None
    duplicates: int = 0
    gaps: int = 0
    last_before: int | None = None
    is_known: bool = False
    inner_duplicates: int = 0
    inner_gaps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The effect of one operation on one split, as observed in the log.

    ``is_known`` is False if no record of the split's incarnation was read before the operation. In this case, the
    counts have no meaning.
    """

    duplicates: int
    gaps: int
    last_before: int | None
    first_after: int | None
    is_known: bool


def stretches(
    commits: Iterable[CommittedRanges], epochs: Sequence[int]
) -> tuple[Mapping[tuple[int, str], Observed], Mapping[str, tuple[int, int]]]:
    """Returns two mappings. The first maps pairs (epoch of an operation, split) to the observed effect of the
    operation. The second maps splits to the duplicates and gaps that occurred between operations.

    ``epochs`` are in ascending order; ``commits`` are in the order of the log.
    """
    read: dict[str, _Read] = {}
    before: dict[tuple[int, str], _Read] = {}
    found: dict[tuple[int, str], _Stretch] = {}
    for commit in commits:
        epoch = max((at for at in epochs if at <= commit.epoch), default=0)
        for split, (start, end) in commit.ranges.items():
            if end <= start:
                continue
            life = commit.lives.get(split, (None, None))
            now = read.setdefault(split, _Read())
            key = (epoch, split)
            if key not in found:
                before[key] = _Read(lives=now.lives, last=now.last)
                found[key] = _begin(before[key], life, start)
            stretch = found[key]
            if stretch.next is not None:
                stretch.inner_gaps += max(0, start - stretch.next)
                stretch.inner_duplicates += max(0, stretch.next - start)
            if (known := before[key].of(life)) is not None:
                stretch.duplicates += covered(known.spans, start, end)
            stretch.next = end
            cluster, incarnation = life
            now.lives = with_read(now.lives, start, end, cluster=cluster, incarnation=incarnation)
            now.last = end - 1
    observed = {
        key: Observed(
            duplicates=stretch.duplicates,
            gaps=stretch.gaps,
            last_before=stretch.last_before,
            first_after=stretch.first,
            is_known=stretch.is_known,
        )
        for key, stretch in found.items()
    }
    between: dict[str, tuple[int, int]] = {}
    for (_, split), stretch in found.items():
        repeated, left_out = between.get(split, (0, 0))
        between[split] = (repeated + stretch.inner_duplicates, left_out + stretch.inner_gaps)
    return observed, between


def _begin(before: _Read, life: SplitIdentity, start: int) -> _Stretch:
    known = before.of(life)
    gaps = uncovered(known.spans, known.reached, start) if known is not None else 0
    return _Stretch(first=start, gaps=gaps, last_before=before.last, is_known=known is not None)


def lower_show_source_continuity(statement: ShowSourceContinuity, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers SHOW SOURCE CONTINUITY. For each operation and split, one row compares the prediction with the
    observation. Further rows show the records that were read between operations."""
    source = find_source(snapshot, statement.name)
    all_records = tuple(reversed(operations_on(inspector, source)))
    rows: list[tuple[object, ...]] = []
    kind, files = connector(source.connector), None
    if isinstance(kind, ChangeConnector) and not kind.positions_count_bytes:
        files = inspector.upstreams.look(source.connector, source_options(snapshot, source)).splits
    for reader in readers_of(snapshot, source):
        rows += _rows_of(inspector, reader.fragment, source.id, all_records, files)
    if not has_wide_offsets(source.connector):
        return Plan(statement=statement, table=Table(columns=COLUMNS, rows=tuple(rows)))
    columns = tuple((name, "STRING" if name in _OFFSETS else kind) for name, kind in COLUMNS)
    wide = [tuple(_shown(name, value) for (name, _), value in zip(columns, row, strict=True)) for row in rows]
    return Plan(statement=statement, table=Table(columns=columns, rows=tuple(wide)))


def _shown(column: str, value: object) -> object:
    """Converts a value for a source whose offsets do not fit into 64 bits: an offset becomes a string, and a difference
    of offsets becomes NULL."""
    if column in _OFFSETS:
        return None if value is None else str(value)
    return None if column in ("duplicates", "gaps") and isinstance(value, int) and value >= MOST_COUNTED else value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """The numbers of repeated and skipped bytes, for a source whose offsets do not count bytes.

    ``observed`` and ``between`` are the results of :func:`stretches` for places in the upstream's ``files`` instead of
    offsets. ``files`` does not contain a split if records of this split were read from another upstream. ``bounds`` are
    the lowest and the highest offset that was read from each split. The size of a file that the upstream has removed is
    unknown.
    """

    observed: Mapping[tuple[int, str], Observed]
    between: Mapping[str, tuple[int, int]]
    files: Mapping[str, UpstreamSplit]
    bounds: Mapping[str, tuple[int, int]]

    @staticmethod
    def of(commits: Sequence[CommittedRanges], epochs: Sequence[int], seen: Mapping[str, UpstreamSplit]) -> _Sizes:
        """Computes the sizes from the commits of the log. ``seen`` are the splits of the upstream."""
        strange = {
            split
            for commit in commits
            for split, (cluster, _) in commit.lives.items()
            if split in seen and cluster not in (None, seen[split].cluster)
        }
        files = {split: found for split, found in seen.items() if found.files and split not in strange}
        bounds: dict[str, tuple[int, int]] = {}
        placed: list[CommittedRanges] = []
        for commit in commits:
            ranges: dict[str, tuple[int, int]] = {}
            for split, (start, end) in commit.ranges.items():
                if end > start and split in files:
                    low, high = bounds.get(split, (start, end))
                    bounds[split] = (min(low, start), max(high, end))
                    ranges[split] = (files[split].place(start), files[split].place(end))
            placed.append(replace(commit, ranges=ranges))
        observed, between = stretches(placed, epochs)
        return _Sizes(observed=observed, between=between, files=files, bounds=bounds)

    def effect_of(
        self, key: tuple[int, str], came: Observed, said: PredictedSplit | None, said_sizes: tuple[int, int] | None
    ) -> tuple[int | None, int | None]:
        """The sizes of the duplicates and gaps of one operation. If the log shows exactly the predicted offsets, the
        sizes are the predicted sizes, even if the upstream has removed the files since."""
        # The gap begins after the last offset before the operation, and duplicates begin at the first offset after it.
        ends = (came.first_after or 0, (came.last_before or 0) + 1)
        is_known = self._has(key[1], min(ends), max(ends))
        found = self.observed.get(key)
        sizes = (0, 0) if found is None else (found.duplicates, found.gaps)
        duplicates, gaps = (size if is_known else None for size in sizes)
        if said is not None and said_sizes is not None:
            duplicates = said_sizes[0] if came.duplicates == said.duplicates else duplicates
            gaps = said_sizes[1] if came.gaps == said.gaps else gaps
        return _size(came.duplicates, duplicates), _size(came.gaps, gaps)

    def between_operations(self, split: str, counts: tuple[int, int]) -> tuple[int | None, int | None]:
        """The sizes of the duplicates and gaps between operations. ``counts`` are the corresponding numbers of
        offsets."""
        is_known = split in self.bounds and self._has(split, *self.bounds[split])
        duplicates, gaps = (size if is_known else None for size in self.between.get(split, (0, 0)))
        return _size(counts[0], duplicates), _size(counts[1], gaps)

    def _has(self, split: str, first: int, last: int) -> bool:
        """True if the upstream still has the log from ``first`` to ``last``."""
        seen = self.files.get(split)
        return seen is not None and seen.files[0][0] <= first and last <= seen.end + seen.slack


def _size(count: int, size: int | None) -> int | None:
    """The number of bytes of ``count`` offsets; None if it is not known."""
    if count == 0:
        return 0
    return None if size is None or size >= MOST_COUNTED - 1 else size


def _rows_of(
    inspector: Inspector,
    fragment: str,
    source_id: int,
    all_records: Sequence[OperationRecord],
    files: Mapping[str, UpstreamSplit] | None,
) -> list[tuple[object, ...]]:
    """Returns the rows of one reader. ``files`` are the splits of an upstream whose offsets do not count bytes."""
    records = [
        record
        for record in all_records
        if fragment in prediction_from_json(record.prediction) or _sets_states(record, fragment)
    ]
    commits = inspector.positions.committed_ranges(source_id, fragment)
    epochs = [record.epoch for record in records]
    observed, between = stretches(commits, epochs)
    sizes = None if files is None else _Sizes.of(commits, epochs, files)
    back = taken_back(records)
    again = _found_again(all_records, epochs, fragment)
    rows: list[tuple[object, ...]] = []
    for at, record in enumerate(records):
        later = [found.epoch for found in records[at + 1 :]]
        said = prediction_from_json(record.prediction).get(fragment)
        predicted = {} if said is None else {split.split: split for split in said.splits}
        came = {split for epoch, split in observed if epoch == record.epoch}
        for split in sorted(predicted.keys() | came, key=split_order):
            said_of, came_of = predicted.get(split), observed.get((record.epoch, split))
            if said_of is not None and said_of.new is None and (record.epoch, split) in again:
                came_of = None
            row = _row(record, split, said_of, came_of, bool(later))
            if sizes is not None and came_of is not None and came_of.is_known:
                told = None if said is None or isinstance(said.sizes, msgspec.UnsetType) else said.sizes.get(split)
                counts = sizes.effect_of((record.epoch, split), came_of, said_of, told)
                row = (*row[:_DUPLICATES], *counts, *row[_DUPLICATES + 2 :])
            rows.append((*row[:-1], TAKEN_BACK, fragment) if record.epoch in back else (*row, fragment))
    for split in sorted(between, key=split_order):
        repeated, left_out = between[split]
        status = UNBROKEN if (repeated, left_out) == (0, 0) else BROKEN
        shown = (repeated, left_out)
        counts = shown if sizes is None else sizes.between_operations(split, shown)
        rows.append((None, None, READING, split, "NONE", *counts, None, None, status, fragment))
    return rows


def taken_back(records: Iterable[OperationRecord]) -> frozenset[int]:
    """The epochs of the operations whose rows a later REWIND removed."""
    found: set[int] = set()
    listed = sorted(records, key=lambda record: -record.epoch)
    for record in listed:
        # A REWIND that was itself reverted has removed no rows.
        if record.kind == REWIND and record.epoch not in found:
            statement = parse_statement(record.statement)
            if isinstance(statement, RewindSource):
                found |= {other.epoch for other in listed if statement.operation <= other.epoch < record.epoch}
    return frozenset(found)


def _found_again(
    all_records: Iterable[OperationRecord], epochs: Sequence[int], fragment: str
) -> frozenset[tuple[int, str]]:
    """Returns the pairs (epoch, split) for which the split was discovered after the operation at this epoch and before
    the next operation.

    ``epochs`` are in ascending order. If the operation at the epoch discarded the split, reading the split's records
    after the discovery is not an effect of that operation.
    """
    return frozenset(
        (max((at for at in epochs if at < record.epoch), default=0), split)
        for record in all_records
        if record.kind == DISCOVERY
        for split in before_from_json(record.before).states.get(fragment, {})
    )


def _sets_states(record: OperationRecord, fragment: str) -> bool:
    """True if an operation set or reset positions of splits that were already known. The discovery of new splits does
    not count."""
    states = before_from_json(record.before).states.get(fragment, {})
    return any(state is not None for state in states.values())


def _row(
    record: OperationRecord, split: str, said: PredictedSplit | None, came: Observed | None, is_closed: bool
) -> tuple[object, ...]:
    return (
        record.epoch,
        datetime.fromtimestamp(record.at_ms / 1000, UTC),
        record.kind,
        split,
        said.verdict if said is not None else None,
        came.duplicates if came is not None and came.is_known else None,
        came.gaps if came is not None and came.is_known else None,
        came.last_before if came is not None else None,
        came.first_after if came is not None else None,
        _status(said, came, is_closed),
    )


def _status(said: PredictedSplit | None, came: Observed | None, is_closed: bool) -> str:
    if said is None:
        return NOT_PREDICTED
    if came is None:
        # No records were read since the operation. If the source was predicted not to read the split any more, this
        # agrees with the prediction.
        return AS_PREDICTED if said.new is None else CUT_SHORT if is_closed else PENDING
    if said.new is None:
        return DIFFERS
    is_moved = said.old != said.new
    if is_moved and (came.first_after or 0) < said.new:
        return DIFFERS
    if is_moved and said.is_exact and came.first_after != said.new:
        return DIFFERS
    if said.is_unknown or not came.is_known:
        return AS_PREDICTED
    # A predicted count is at most MOST_COUNTED - 1, so the observed counts are limited to the same number.
    duplicates, gaps = (min(count, MOST_COUNTED - 1) for count in (came.duplicates, came.gaps))
    if gaps > said.gaps or duplicates > said.duplicates:
        return DIFFERS
    if not said.is_exact:
        return AS_PREDICTED
    if gaps < said.gaps:
        return DIFFERS
    if duplicates < said.duplicates:
        return CUT_SHORT if is_closed else PENDING
    return AS_PREDICTED
