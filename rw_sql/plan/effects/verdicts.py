"""Computes the verdict on moving a split's position: how many offsets the source will read a second time, and how many
it will never read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.connectors.changes import ChangeConnector
from rw_sql.connectors.support.wide_offsets import MOST_COUNTED
from rw_sql.model.offset_ranges import IncarnationReads, covered, reads_of, uncovered
from rw_sql.model.split_status import (
    OK,
    ORPHAN,
    OTHER_CLUSTER,
    RECREATED,
    identity_status,
    is_emptied,
    is_known_same,
    split_order,
)
from rw_sql.plan.result.allow import FORGOTTEN_SPLIT
from rw_sql.plan.result.plan import SplitPreview

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rw_sql.connectors.base import Connector, SplitState, Upstream, UpstreamSplit
    from rw_sql.model.offset_ranges import Spans
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.ports.positions import Positions

UNREACHABLE = "UNKNOWN (no answer)"
"""The verdict for a split whose upstream does not respond."""

OTHER_CLUSTER_SPLIT = "UNKNOWN (other cluster)"
RECREATED_SPLIT = "UNKNOWN (topic was re-created)"
UNTOLD_SPLIT = "UNKNOWN (the brokers report no cluster id)"
"""The verdicts for a split whose offsets before and after the move cannot be compared."""

OTHER_RECORDS = "UNKNOWN (other records)"
"""The verdict for a split from which the source would select different records after a change of its properties than
before."""

UNCERTAIN_READS = "the upstream did not always report the split's identity"
"""The reason that is shown if counts are upper limits because the source may have read some of the records from another
incarnation of the split."""

CUT_SPLIT = "UNKNOWN (log cut at {cut})"
"""The verdict for a split whose upstream has lost records that the source has read; ``cut`` is the first lost
offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The effect of moving a split's position, in words and as counts of offsets. If ``is_exact`` is false, the counts
    are upper limits. ``sizes`` are the numbers of repeated and skipped bytes; None if the upstream does not list the
    files of the split's log."""

    text: str
    duplicates: int = 0
    gaps: int = 0
    is_exact: bool = True
    sizes: tuple[int, int] | None = None


def counted(
    duplicates: int, gaps: int, *, is_exact: bool = True, why: str = "", sizes: tuple[int, int] | None = None
) -> Verdict:
    """Returns the verdict for the given counts. Its text is NONE, ``DUPLICATES n``, ``GAP n``, or both ``DUPLICATES n``
    and ``GAP n``. If the counts are not exact, the text contains ``at most`` and the reason ``why``. If ``sizes`` is
    given, the text shows these numbers of repeated and skipped bytes in place of the counts of offsets."""
    if duplicates <= 0 and gaps <= 0:
        return Verdict(text="NONE", is_exact=is_exact)
    most = "" if is_exact else "at most "
    if sizes is not None:
        sizes = max(0, sizes[0]) if duplicates > 0 else 0, max(0, sizes[1]) if gaps > 0 else 0
    shown = (duplicates, gaps) if sizes is None else sizes
    parts = [
        _part(word, most, size)
        for word, number, size in (("GAP", gaps, shown[1]), ("DUPLICATES", duplicates, shown[0]))
        if number > 0
    ]
    text = ", ".join(parts)
    if not is_exact and why:
        text += f" ({why})"
    duplicates, gaps = (min(max(0, number), MOST_COUNTED - 1) for number in (duplicates, gaps))
    if sizes is not None:
        sizes = min(sizes[0], MOST_COUNTED - 1), min(sizes[1], MOST_COUNTED - 1)
    return Verdict(text=text, duplicates=duplicates, gaps=gaps, is_exact=is_exact, sizes=sizes)


def _part(word: str, most: str, number: int) -> str:
    return f"{word} of unknown size" if number >= MOST_COUNTED else f"{word} {most}{number}"


def with_cuts(
    inspector: Inspector,
    name: str,
    options: PlannedOptions,
    upstream: Upstream,
    positions: Positions,
    *after: Mapping[str, SplitState],
) -> Positions:
    """Returns the positions with ``Positions.cuts`` set. ``cuts`` maps each split to the first offset that the upstream
    has lost, if this offset is before a position of the split.

    Examines the positions in ``positions``, and the positions in ``after``, which a move would set. The function
    contacts the upstream only for splits whose log has a later term (Kafka: leader epoch) than the position. ``name``
    is the name of the connector.
    """
    cuts: dict[str, int] = {}
    for states in (positions.states, *after):
        newer = {
            split: state
            for split, state in states.items()
            if state.term is not None
            and (seen := upstream.splits.get(split)) is not None
            and (seen.term or 0) > state.term
            and identity_status(state, seen) == OK
        }
        found = inspector.upstreams.cut_logs(name, options, newer) if newer else {}
        cuts |= {split: min(cut, cuts.get(split, cut)) for split, cut in found.items()}
    return replace(positions, cuts=cuts) if cuts else positions


def verdict(
    kind: Connector,
    split: str,
    new: SplitState | None,
    upstream: Upstream,
    positions: Positions,
    read_topics: Collection[str],
) -> Verdict:
    """Returns the effect of moving a split's position to ``new``. The verdict is either counts, which are derived from
    the offsets in the source's log, or UNKNOWN with a reason.

    The gap consists of the offsets before ``new`` that the source would never read. Duplicates are the offsets at or
    after ``new`` that the source has already read. ``read_topics`` are the topics of the splits that have a position.
    """
    old, seen = positions.states.get(split), upstream.splits.get(split)
    if new is None:
        return Verdict(text=ORPHAN if seen is None else "NONE" if old is None else FORGOTTEN_SPLIT)
    # The offsets of two clusters, or of two incarnations of a topic, cannot be compared.
    identities = {
        identity_status(state, other)
        for state, other in ((old, seen), (new, seen), (old, new))
        if state is not None and other is not None
    }
    if OTHER_CLUSTER in identities:
        return Verdict(text=OTHER_CLUSTER_SPLIT)
    if RECREATED in identities:
        return Verdict(text=RECREATED_SPLIT)
    if split in positions.cuts:
        return Verdict(text=CUT_SPLIT.format(cut=positions.cuts[split]))
    topic = kind.split_topic(split)
    why = upstream.sparse.get(topic, "")
    why = why or ("some offsets of the split have no record" if split in positions.sparse else "")
    has_records = seen is None or not is_emptied(seen)
    reads = reads_of(positions.lives.get(split, ()), *_identity(seen, new, old))
    if reads is not None or old is not None:
        move = _Move(
            new=new.offset,
            old=None if old is None else old.offset,
            start=None if seen is None else seen.start,
            reads=reads,
            # If another incarnation of the split was read, nothing was read from this incarnation.
            is_read=split in positions.read_splits and not positions.lives.get(split),
            is_complete=positions.is_complete,
        )
        duplicates, gaps, doubt = move.counts()
        sizes = move.sizes(seen) if seen is not None and seen.files else None
        why = why or doubt
        return counted(duplicates if has_records else 0, gaps, is_exact=not why, why=why, sizes=sizes)
    if not positions.read_splits:
        return Verdict(text="NONE")
    if topic not in read_topics:
        return Verdict(text="UNKNOWN (other topic)")
    if seen is not None:
        sizes = (0, seen.place(new.offset) - seen.place(seen.start)) if seen.files else None
        return counted(0, new.offset - seen.start, is_exact=not why, why=why, sizes=sizes)
    return Verdict(text="NONE")


def _identity(*states: UpstreamSplit | SplitState | None) -> tuple[str | None, str | None]:
    """The cluster and the incarnation that the given states contain; each is None if no state contains it. All states
    that contain an incarnation must contain the same one."""
    known = [state for state in states if state is not None]
    cluster = next((state.cluster for state in known if state.cluster), None)
    return cluster, next((state.incarnation for state in known if state.incarnation), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """A move of a split from offset ``old`` to ``new``. ``start`` is the first offset that the upstream has. ``reads``
    are the offsets that were read; None if the log does not show them. In that case, ``is_read`` is True if all offsets
    before ``old`` were read. ``is_complete`` is True if no commits are missing from the log."""

    new: int
    old: int | None
    start: int | None
    reads: IncarnationReads | None
    is_read: bool
    is_complete: bool

    def within(self, seen: UpstreamSplit) -> _Move:
        """Returns the move with each offset replaced by its byte position in the files of the split's log."""
        reads = self.reads
        if reads is not None:
            reads = IncarnationReads(
                spans=_placed(reads.spans, seen),
                reached=seen.place(reads.reached),
                certain_spans=_placed(reads.certain_spans, seen),
                certain_reached=None if reads.certain_reached is None else seen.place(reads.certain_reached),
            )
        return replace(
            self,
            new=seen.place(self.new),
            old=None if self.old is None else seen.place(self.old),
            start=None if self.start is None else seen.place(self.start),
            reads=reads,
        )

    def sizes(self, seen: UpstreamSplit) -> tuple[int, int]:
        """Returns the numbers of repeated and skipped bytes. If the upstream has removed files that the move skips, the
        number of skipped bytes is unknown, and the result contains MOST_COUNTED."""
        duplicates, gaps, _ = self.within(seen).counts()
        first = min(seen.files[0][0], self.new)
        spans, reached = ((), self.old or 0) if self.reads is None else (self.reads.spans, self.reads.reached)
        return duplicates, MOST_COUNTED if uncovered(spans, reached, first) else gaps

    def counts(self) -> tuple[int, int, str]:
        """Returns the numbers of repeated and skipped offsets. If these numbers are only upper limits, also returns the
        reason; if they are exact, the reason is empty."""
        reads, new = self.reads, self.new
        if reads is None:
            moved = new - (self.old or 0)
            return -moved if self.is_read else 0, moved, ""
        why = ""
        duplicates = covered(reads.spans, new)
        gaps = uncovered(reads.spans, reads.reached, new)
        if not reads.is_certain:
            least = covered(reads.certain_spans, new)
            most = uncovered(reads.certain_spans, self._certainly_reached(reads), new)
            if (least, most) != (duplicates, gaps):
                why = UNCERTAIN_READS
            gaps = max(gaps, most)
        if not self.is_complete:
            # The commits that are missing from the log may contain offsets that no existing commit contains.
            unknown = uncovered(reads.spans, new, reads.spans[-1][1])
            duplicates += unknown
            if unknown or gaps:
                why = why or "some of the log's commits were removed"
        return duplicates, gaps, why

    def _certainly_reached(self, reads: IncarnationReads) -> int:
        """Returns a lower bound for the offset up to which the source has read the incarnation that the upstream has at
        present."""
        reached = reads.certain_reached
        if reached is None:
            reached = self.start if self.old is None else self.old
        return reads.reached if reached is None else min(reads.reached, reached)


def _placed(spans: Spans, seen: UpstreamSplit) -> Spans:
    return tuple((seen.place(start), seen.place(end)) for start, end in spans)


def preview_splits(
    kind: Connector,
    upstream: Upstream,
    positions: Positions,
    after: Mapping[str, SplitState | None],
    *,
    left: Upstream | None = None,
) -> tuple[SplitPreview, ...]:
    """Returns the rows of a preview's table of splits. The table has one row for every split that is known before or
    after the move.

    ``after`` maps splits to their new positions. A split that is mapped to None, or is missing from ``after``, is not
    read after the move. If the upstream does not respond, a missing split has the verdict UNREACHABLE. ``left`` is the
    upstream that the source leaves, if the move changes the upstream. The source will never read the records of
    ``left`` after the old positions.
    """
    rows = []
    read_topics = frozenset(kind.split_topic(known) for known in positions.states)
    for split in sorted({*positions.states, *after, *upstream.splits}, key=split_order):
        old, new, seen = positions.states.get(split), after.get(split), upstream.splits.get(split)
        is_unknown = not upstream.is_reachable and split not in after
        if left is not None and seen is None and new is None and split in left.splits:
            rows.append(_left_behind(old, left.splits[split], left.sparse.get(kind.split_topic(split), "")))
            continue
        found = Verdict(text=UNREACHABLE) if is_unknown else verdict(kind, split, new, upstream, positions, read_topics)
        rows.append(
            SplitPreview(
                split=split,
                old=old.offset if old else None,
                new=new.offset if new else None,
                start=seen.start if seen else None,
                end=seen.end if seen else None,
                verdict=found.text,
                duplicates=found.duplicates,
                gaps=found.gaps,
                is_exact=found.is_exact,
                written=_written(kind, old, new, seen),
                sizes=found.sizes,
            )
        )
    return tuple(rows)


def without_identity(
    rows: Iterable[SplitPreview],
    before: Mapping[str, SplitState],
    after: Mapping[str, SplitState | None],
    upstream: Upstream,
) -> tuple[SplitPreview, ...]:
    """Corrects the rows of a preview for an upstream that does not report its identity, and that may therefore not be
    the upstream from which the source has read. Returns the corrected rows.

    The verdict on a split that keeps its position becomes UNKNOWN, because the record at this position may differ from
    the record that the former upstream has there.
    """
    return tuple(
        replace(row, verdict=UNTOLD_SPLIT, duplicates=0, gaps=0, is_exact=True, sizes=None)
        if (state := after.get(row.split)) is not None
        and state == before.get(row.split)
        and (seen := upstream.splits.get(row.split)) is not None
        and not seen.is_endless
        and identity_status(state, seen) == OK
        and not is_known_same(state, seen)
        else row
        for row in rows
    )


def with_other_records(
    rows: Iterable[SplitPreview], restored: Collection[str] = ()
) -> tuple[tuple[SplitPreview, ...], bool]:
    """Corrects the rows of a preview for new properties that select different records of the splits. Returns two
    results: the corrected rows, and whether a row has the verdict OTHER_RECORDS.

    Some records that only the new properties select may be before a split's position. The source does not read these
    records, and their number is not known. The rows of the splits ``restored`` stay unchanged, because the new
    properties already selected the records before the positions of these splits.
    """
    found = tuple(
        replace(row, verdict=OTHER_RECORDS, is_exact=False)
        if row.old is not None
        and row.new is not None
        and row.split not in restored
        and (row.start is None or row.new > row.start)
        and not row.verdict.startswith("UNKNOWN")
        else row
        for row in rows
    )
    return found, any(row.verdict == OTHER_RECORDS for row in found)


def shown_offset(kind: Connector, offset: int) -> str:
    """Returns an offset in the notation of the upstream."""
    return kind.show_position(offset) if isinstance(kind, ChangeConnector) else str(offset)


def _written(
    kind: Connector, old: SplitState | None, new: SplitState | None, seen: UpstreamSplit | None
) -> tuple[str, str, str] | None:
    if not isinstance(kind, ChangeConnector):
        return None
    before, after = ("-" if state is None else kind.show_position(state.offset) for state in (old, new))
    if seen is None:
        return before, after, "unknown" if new is not None else "not there"
    return before, after, f"[{kind.show_position(seen.start)}, {kind.show_position(seen.end)})"


def _left_behind(old: SplitState | None, seen: UpstreamSplit, why: str) -> SplitPreview:
    """Returns the row for a split that the source no longer reads. The row shows how many of the split's records the
    source will never read. If ``why`` is not empty, this number is only an upper limit, for the reason ``why``."""
    unread = seen.end - max(old.offset, seen.start) if old is not None and not seen.is_endless else 0
    sizes = (0, seen.behind(old.offset)) if old is not None and seen.files else None
    found = counted(0, unread, is_exact=not why, sizes=sizes)
    return SplitPreview(
        split=seen.split,
        old=old.offset if old else None,
        new=None,
        start=seen.start,
        end=seen.end,
        verdict=f"{found.text} (left unread)" if unread > 0 else ORPHAN,
        gaps=found.gaps,
        is_exact=not why,
        sizes=found.sizes,
    )
