"""What becomes of splits: discovery, identity, and the verdict on a move. A position is the next record to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState
from rw_sql.model.offset_ranges import covered, uncovered
from rw_sql.model.options import visible
from rw_sql.plan.requests.catalog import Asking
from rw_sql.plan.requests.upstream import offsets_at
from rw_sql.plan.result.plan import SplitPreview

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rw_sql.connectors.base import Connector, Upstream, UpstreamSplit
    from rw_sql.model.offset_ranges import ReadLife
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.requests.positions import Positions

OK = "OK"
NEW = "NEW"
ORPHAN = "ORPHAN"
EXPIRED = "EXPIRED"
AHEAD = "AHEAD"
RECREATED = "RECREATED"
OTHER_CLUSTER = "OTHER_CLUSTER"
UNKNOWN = "UNKNOWN"

UNREACHABLE = "UNKNOWN (no answer)"
"""The verdict on a split whose upstream does not answer."""


def identity_status(state: SplitState, upstream: UpstreamSplit) -> str:
    """Whether a state belongs to this very split: OK, OTHER_CLUSTER, or RECREATED. What is unknown counts as equal."""
    if state.cluster and upstream.cluster and state.cluster != upstream.cluster:
        return OTHER_CLUSTER
    if state.incarnation and upstream.incarnation and state.incarnation != upstream.incarnation:
        return RECREATED
    return OK


def split_status(state: SplitState | None, upstream: UpstreamSplit | None) -> str:
    """How a split stands against the upstream, as SHOW SOURCE SPLITS says it."""
    if upstream is None:
        return ORPHAN
    if state is None:
        return NEW
    identity = identity_status(state, upstream)
    if identity != OK:
        return identity
    if state.offset < upstream.start:
        return EXPIRED
    return AHEAD if state.offset > upstream.end else OK


def identified(state: SplitState, upstream: UpstreamSplit) -> SplitState:
    """The state, marked as one of this very split."""
    return SplitState(
        split=state.split, offset=state.offset, cluster=upstream.cluster, incarnation=upstream.incarnation
    )


def beginning(upstream: UpstreamSplit) -> SplitState:
    """The split's first record."""
    return SplitState(
        split=upstream.split, offset=upstream.start, cluster=upstream.cluster, incarnation=upstream.incarnation
    )


def startup_states(
    kind: Connector, connector: str, options: PlannedOptions, splits: Iterable[UpstreamSplit]
) -> Asking[dict[str, SplitState]]:
    """Where splits without a state begin by ``scan.startup.mode``, resolved to numbers now."""
    resolved = visible(options)
    wanted = list(splits)
    at_time = kind.startup_time(resolved)
    times: dict[str, int] = {}
    if at_time is not None and wanted:
        times = yield from offsets_at(connector, options, at_time, tuple(split.split for split in wanted))
    return {
        split.split: SplitState(
            split=split.split,
            offset=kind.start_offset(resolved, split, times),
            cluster=split.cluster,
            incarnation=split.incarnation,
        )
        for split in wanted
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What the upstream's splits become: those to read, where each stands, and which of these positions are new."""

    assigned: tuple[str, ...]
    states: Mapping[str, SplitState]
    fresh: Mapping[str, SplitState]


def discover(
    kind: Connector,
    connector: str,
    options: PlannedOptions,
    upstream: Upstream,
    known: Mapping[str, SplitState],
    *,
    forget: Collection[str] = (),
    forgotten: Collection[str] = (),
) -> Asking[Discovery]:
    """Takes up every split that the upstream shows.

    One that has a state of this very split keeps it, unless it is in ``forget``. A partition added to a topic that is
    already read begins at its first record; any other, and one that was ``forgotten`` before, begins where
    ``scan.startup.mode`` says.
    """
    keeps: dict[str, SplitState] = {}
    added: dict[str, SplitState] = {}
    unstarted: list[UpstreamSplit] = []
    read_topics = {
        (kind.split_topic(state.split), state.cluster, state.incarnation)
        for state in known.values()
        if state.split not in forget
    }
    for split in upstream.splits.values():
        state = known.get(split.split)
        if state is not None and split.split not in forget and identity_status(state, split) == OK:
            keeps[split.split] = state
        elif (
            state is None
            and split.split not in forgotten
            and (kind.split_topic(split.split), split.cluster, split.incarnation) in read_topics
        ):
            added[split.split] = beginning(split)
        else:
            unstarted.append(split)
    started = yield from startup_states(kind, connector, options, unstarted)
    fresh = {**added, **started}
    return Discovery(assigned=tuple(sorted(upstream.splits)), states={**keeps, **fresh}, fresh=fresh)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What moving a split does to the rows, in words and counted. Not ``is_exact``: as many at most."""

    text: str
    duplicates: int = 0
    gaps: int = 0
    is_exact: bool = True


def counted(duplicates: int, gaps: int, *, is_exact: bool = True, why: str = "") -> Verdict:
    """The verdict NONE, ``DUPLICATES n``, ``GAP n`` or both; with ``at most`` and the reason where it is not exact."""
    if duplicates <= 0 and gaps <= 0:
        return Verdict(text="NONE", is_exact=is_exact)
    most = "" if is_exact else "at most "
    parts = [f"{word} {most}{number}" for word, number in (("GAP", gaps), ("DUPLICATES", duplicates)) if number > 0]
    text = ", ".join(parts)
    if not is_exact and why:
        text += f" ({why})"
    return Verdict(text=text, duplicates=max(0, duplicates), gaps=max(0, gaps), is_exact=is_exact)


def verdict(
    kind: Connector,
    split: str,
    new: SplitState | None,
    upstream: Upstream,
    positions: Positions,
    read_topics: Collection[str],
) -> Verdict:
    """What moving a split to ``new`` will do to the rows: counted by the offsets that the log holds, or UNKNOWN (why).

    A gap is what lies between the newest record that was read and ``new`` and was never read; a duplicate is what was
    read and lies at ``new`` or after it. ``read_topics`` are those of the splits that have a position.
    """
    old, seen = positions.states.get(split), upstream.splits.get(split)
    if new is None:
        return Verdict(text=ORPHAN if seen is None else "NONE" if old is None else "UNKNOWN (forgotten)")
    if old is not None:
        identity = identity_status(old, seen) if seen is not None else OK
        if identity == OTHER_CLUSTER:
            return Verdict(text="UNKNOWN (other cluster)")
        if identity == RECREATED:
            return Verdict(text="UNKNOWN (topic was re-created)")
    topic = kind.split_topic(split)
    why = upstream.sparse.get(topic) or ("its offsets have holes" if split in positions.sparse else "")
    life = _life(positions.lives.get(split, ()), seen or new)
    if life is not None:
        duplicates = covered(life.spans, new.offset)
        gaps = uncovered(life.spans, life.reached, new.offset)
        if not positions.is_complete and new.offset < life.spans[0][0]:
            duplicates += life.spans[0][0] - new.offset
            why = why or "the log's oldest commits are gone"
        return counted(duplicates, gaps, is_exact=not why, why=why)
    if old is not None:
        moved = new.offset - old.offset
        is_read = split in positions.read_splits
        return counted(-moved if is_read else 0, moved, is_exact=not why, why=why)
    if not positions.read_splits:
        return Verdict(text="NONE")
    if topic not in read_topics:
        return Verdict(text="UNKNOWN (other topic)")
    if seen is not None:
        return counted(0, new.offset - seen.start, is_exact=not why, why=why)
    return Verdict(text="NONE")


def _life(lives: tuple[ReadLife, ...], of: UpstreamSplit | SplitState) -> ReadLife | None:
    """What was read of this very life of the split; what is unknown counts as equal."""
    for life in reversed(lives):
        is_cluster = not life.cluster or not of.cluster or life.cluster == of.cluster
        if is_cluster and (not life.incarnation or not of.incarnation or life.incarnation == of.incarnation):
            return life
    return None


def preview_splits(
    kind: Connector,
    upstream: Upstream,
    positions: Positions,
    after: Mapping[str, SplitState | None],
    *,
    left: Upstream | None = None,
) -> tuple[SplitPreview, ...]:
    """The per-split table of a preview: every split known before or after.

    In ``after`` None means that the split is not read any more; one that is not in it stays as it is, or nobody knows.
    ``left`` is the upstream that the source moves away from: what it holds beyond an old position stays unread.
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
            )
        )
    return tuple(rows)


def _left_behind(old: SplitState | None, seen: UpstreamSplit, why: str) -> SplitPreview:
    """A split that the source moves away from, with the records that it leaves unread there."""
    unread = seen.end - max(old.offset, seen.start) if old is not None and not seen.is_endless else 0
    most = "at most " if why else ""
    return SplitPreview(
        split=seen.split,
        old=old.offset if old else None,
        new=None,
        start=seen.start,
        end=seen.end,
        verdict=f"GAP {most}{unread} (left unread)" if unread > 0 else ORPHAN,
        gaps=max(0, unread),
        is_exact=not why,
    )


def split_order(split: str) -> tuple[str, int, str]:
    """Sorts ``orders:2`` before ``orders:10``."""
    topic, _, partition = split.rpartition(":")
    return (topic, int(partition), "") if partition.isdigit() else (split, 0, split)
