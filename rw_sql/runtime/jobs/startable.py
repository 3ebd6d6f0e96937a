"""Checks whether a source's reader can start or continue at its positions; otherwise raises an error with the
remedy."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rw_sql.connectors.changes import ChangeConnector
from rw_sql.connectors.support.records.range_stream import LostRecordsError
from rw_sql.connectors.support.wide_offsets import MOST_COUNTED
from rw_sql.model.split_status import (
    AHEAD,
    EXPIRED,
    ORPHAN,
    OTHER_CLUSTER,
    RECREATED,
    is_emptied,
    is_finished,
    split_status,
)
from rw_sql.runtime.support.failures import StalledError
from rw_sql.syntax.lexing.identifiers import literal, sql_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rw_sql.connectors.base import Connector, SplitState, Upstream, UpstreamSplit
    from rw_sql.connectors.sink import SinkLook

DISCOVERING = "DISCOVERING"
"""The first word of the stall reason of a reader whose splits have not been listed yet."""


def require_usable(look: Upstream | SinkLook) -> None:
    """Raises StalledError if the upstream or target does not respond, or if the client refuses the value of an option.
    If the client refuses a value, the error lasts until a statement or the secret's backend changes the value."""
    if look.refused_key is not None:
        raise StalledError(f"{look.error}: {look.hint}", is_lasting=True)
    if look.error is not None:
        raise StalledError(f"UNREACHABLE {look.error}")


def require_splits(splits: tuple[str, ...], upstream: Upstream) -> None:
    """Raises StalledError if the upstream does not respond, lacks an object that the source names, or has no known
    splits yet."""
    require_usable(upstream)
    if upstream.missing:
        raise StalledError(f"MISSING {upstream.part} {', '.join(upstream.missing)}")
    if not splits:
        raise StalledError(f"{DISCOVERING} the splits are not known yet")


def require_same(
    name: str,
    splits: tuple[str, ...],
    states: Mapping[str, SplitState],
    upstream: Upstream,
    kind: Connector | None = None,
) -> None:
    """Raises StalledError, with a remedy, if the positions belong to another upstream.

    This function does not compare the positions with the upstream's bounds, because the known positions of a running
    reader may be outdated.
    """
    by_status = _by_status(splits, states, upstream)
    for status in (OTHER_CLUSTER, RECREATED, ORPHAN):
        if found := by_status.get(status):
            why = "" if status == ORPHAN else _why_another(kind, states[found[0]], upstream.splits[found[0]])
            raise StalledError(f"{status} {_few(found)}: {why}RESET SOURCE SPLITS {sql_name(name)}", is_final=True)


def require_incarnations(name: str, known: Mapping[str, str | None], now: Mapping[str, str | None]) -> None:
    """Raises StalledError if a part of an upstream, such as a topic, was replaced or has disappeared after a batch was
    read from this part.

    ``known`` maps each part to the incarnation that the reader knows, and ``now`` maps each existing part to its
    present incarnation. The error for a missing part is not final, because the part may exist again soon. For example,
    a broker that has just started may not have loaded its topics yet, or a deleted topic may be created again. Unknown
    incarnations (None) count as equal, as in :func:`rw_sql.model.split_status.identity_status`.
    """
    for part, life in known.items():
        if life is not None and part not in now:
            raise StalledError(f"MISSING {part}: it does not exist now")
        if life is not None and now[part] not in (None, life):
            raise StalledError(f"{RECREATED} {part}: RESET SOURCE SPLITS {sql_name(name)}", is_final=True)


def _why_another(kind: Connector | ChangeConnector | None, state: SplitState, seen: UpstreamSplit) -> str:
    """For a change data capture source, returns the part of the error message that states the present identity of the
    database. Returns the empty string for other sources."""
    if not isinstance(kind, ChangeConnector):
        return ""
    return f"{kind.explain_other(state, seen)}: the source's tables are read again after "


def require_readable(
    name: str,
    splits: tuple[str, ...],
    states: Mapping[str, SplitState],
    upstream: Upstream,
    kind: Connector | None = None,
) -> None:
    """Raises StalledError, with a remedy, if a reader cannot start at the positions ``states``. ``kind`` is the
    source's connector."""
    require_splits(splits, upstream)
    require_same(name, splits, states, upstream, kind)
    by_status = _by_status(splits, states, upstream)
    for status, where in ((EXPIRED, "EARLIEST"), (AHEAD, "LATEST")):
        found = by_status.get(status)
        if not found:
            continue
        if isinstance(kind, ChangeConnector):
            raise _passed(name, kind, status, found, states, upstream)
        lost = sum(upstream.splits[split].start - states[split].offset for split in found)
        counted = f", {lost} records" if status == EXPIRED and lost < MOST_COUNTED else ""
        raise StalledError(
            f"{status} {_few(found)}{counted}: {_move(name, where, found, splits)}",
            is_final=True,
        )


@contextmanager
def expired_splits(
    name: str,
    splits: tuple[str, ...],
    states: Mapping[str, SplitState],
    upstream: Upstream,
    kind: Connector | None = None,
) -> Iterator[None]:
    """A context manager in which a reader opens its stream. If the stream raises LostRecordsError for a split that may
    have lost unread records, raises StalledError with a remedy. If a split is empty now, its bounds do not show whether
    it has lost records.

    The remedy also moves all other splits that are empty now and were not read completely, because they may have lost
    unread records too. Moving an empty split repeats no records. ``kind`` is the source's connector.
    """
    try:
        yield
    except LostRecordsError as error:
        empty = {split for split in splits if (seen := upstream.splits.get(split)) is not None and is_emptied(seen)}
        lost = {split for split in empty if states[split].offset > upstream.splits[split].start}
        lost = {split for split in lost if not is_finished(kind, states[split])}
        found = [split for split in splits if split == error.split or split in lost]
        raise StalledError(
            f"{EXPIRED} {_few(found)}, unread records may be lost: {_move(name, 'EARLIEST', found, splits)}",
            is_final=error.is_certain,
            is_lasting=True,
        ) from error


def _move(name: str, where: str, found: list[str], splits: tuple[str, ...]) -> str:
    """Returns the statements that move the splits ``found``. The other splits keep their positions, because moving them
    would repeat records."""
    only = f" FOR SPLITS ({', '.join(literal(split) for split in found)})" if len(found) < len(splits) else ""
    return (
        f"PAUSE SOURCE {sql_name(name)}; INJECT SOURCE OFFSETS {sql_name(name)} TO {where}{only}; "
        f"RESUME SOURCE {sql_name(name)}"
    )


def _passed(
    name: str,
    kind: ChangeConnector,
    status: str,
    found: list[str],
    states: Mapping[str, SplitState],
    upstream: Upstream,
) -> StalledError:
    """Returns the error for a change data capture source whose position is too old for the server, or whose position is
    after the end of the server's log."""
    split = found[0]
    there = upstream.splits[split].start if status == EXPIRED else upstream.splits[split].end
    what = kind.passed_text if status == EXPIRED else "the server's log ends at"
    again = f"RESET SOURCE SPLITS {sql_name(name)} ALLOW GAPS WITH (FORGET_OFFSETS = true)"
    return StalledError(
        f"{status} {split} at {kind.show_position(states[split].offset)}: {what} {kind.show_position(there)}; "
        f"the changes between the two cannot be read, so the source's tables must be read again: "
        f"PAUSE SOURCE {sql_name(name)}; {again}; RESUME SOURCE {sql_name(name)}",
        is_final=True,
    )


def _by_status(splits: tuple[str, ...], states: Mapping[str, SplitState], upstream: Upstream) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for split in splits:
        found.setdefault(split_status(states.get(split), upstream.splits.get(split)), []).append(split)
    return found


def _few(splits: list[str]) -> str:
    return ", ".join(splits[:8])
