"""Describes the backfill of a view's input: the view reads records that the upstream had before the view was created.
The commit that creates the view fixes the ranges of these records.

From each source, a view sees the *history* and the *live* rows. The history is every offset in ``[start, end)`` of each
split, exactly once. The live rows are all rows that are added to the source's log after its version ``log_version``.
``end`` is the position of the split at this version, so the live rows continue where the history ends. For this reason,
the content of a view does not depend on whether a statement moves the source before the backfill or during it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rw_sql.model.offset_ranges import same_incarnation, total, without

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rw_sql.model.offset_ranges import LogPiece, Spans

_FORM = 1
_UNKNOWN = -1
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,17})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitHistory:
    """The history of one split: offsets ``[start, end)`` of one incarnation of the split, without the ranges in
    ``gone``.

    If ``start`` is after the position of the source's reader, ``end`` equals ``start``, and rows with offsets below
    ``start`` are not live. ``since`` is the epoch of the statement that set the split's position. Rows of a run that
    continued from a position of an earlier epoch are never live. If ``is_guarded`` is true, a row of a run that
    continued from the position of the epoch ``since`` is live only if its offset is at least ``start``. ``term`` is the
    term of the position ``end`` (see :class:`~rw_sql.connectors.base.SplitState`).
    """

    split: str
    start: int
    end: int
    cluster: str | None = None
    incarnation: str | None = None
    since: int = 0
    is_guarded: bool = False
    gone: Spans = ()
    term: int | None = None

    @property
    def wanted(self) -> Spans:
        """The offsets to backfill."""
        return without(((self.start, self.end),), self.gone) if self.end > self.start else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The history of one input. Rows that were added after version ``log_version`` of the source's log are live."""

    source_id: int
    log_version: int
    splits: tuple[SplitHistory, ...]

    @property
    def live_version(self) -> int:
        """The first version of the source's log that the view reads after its backfill.

        The result is at least 1, because version 0 of a log has no rows, and Spark's stream cannot start at version 0.
        """
        return max(1, self.log_version + 1)

    @property
    def offsets(self) -> int:
        """The number of offsets to backfill."""
        return sum(total(split.wanted) for split in self.splits)

    @property
    def guarded(self) -> tuple[SplitHistory, ...]:
        """Returns the splits for which the log may have rows that were added after ``log_version`` and are not live."""
        return tuple(split for split in self.splits if split.is_guarded)

    def to_text(self) -> str:
        """The compact text that the catalog stores. The text groups the splits that have the same incarnation and
        epoch. It contains their names as ranges of numbers, and repeated values in run-length encoding."""
        groups: dict[tuple[Any, ...], list[SplitHistory]] = {}
        for split in self.splits:
            prefix, _ = _numbered(split.split)
            key = (split.cluster, split.incarnation, split.since, split.is_guarded, prefix)
            groups.setdefault(key, []).append(split)
        body = {
            "form": _FORM,
            "source": self.source_id,
            "version": self.log_version,
            "groups": [_group(key, members) for key, members in groups.items()],
        }
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_text(text: str) -> History:
        """Parses the text that :meth:`to_text` wrote."""
        return _parsed(text)


@lru_cache(maxsize=256)
def _parsed(text: str) -> History:
    body = json.loads(text)
    if body["form"] != _FORM:
        raise ValueError(f"not a history of this version: form {body['form']}")
    splits: list[SplitHistory] = []
    for group in body["groups"]:
        names = [f"{group['prefix']}{number}" for number in _opened(group["numbers"])]
        gone = group.get("gone", {})
        starts, lengths = _spread(group["starts"]), _spread(group["lengths"])
        terms = _spread(group.get("terms", [[_UNKNOWN, len(names)]]))
        for split, start, length, term in zip(names, starts, lengths, terms, strict=True):
            splits.append(
                SplitHistory(
                    split=split,
                    start=start,
                    end=start + length,
                    cluster=group["cluster"],
                    incarnation=group["incarnation"],
                    since=group["since"],
                    is_guarded=group.get("guarded", False),
                    gone=tuple((low, high) for low, high in gone.get(split, ())),
                    term=None if term == _UNKNOWN else term,
                )
            )
    return History(source_id=body["source"], log_version=body["version"], splits=tuple(splits))


def _numbered(split: str) -> tuple[str, int | str]:
    match = _NUMBERED.fullmatch(split)
    return (split, "") if match is None else (match[1], int(match[2]))


def _group(key: tuple[Any, ...], members: list[SplitHistory]) -> dict[str, Any]:
    cluster, incarnation, since, is_guarded, prefix = key
    members = sorted(members, key=lambda split: _numbered(split.split)[1])
    group: dict[str, Any] = {"cluster": cluster, "incarnation": incarnation, "since": since}
    if is_guarded:
        group["guarded"] = True
    group["prefix"] = prefix
    group["numbers"] = _closed([_numbered(split.split)[1] for split in members])
    group["starts"] = _counted([split.start for split in members])
    group["lengths"] = _counted([split.end - split.start for split in members])
    if gone := {split.split: split.gone for split in members if split.gone}:
        group["gone"] = gone
    if any(split.term is not None for split in members):
        group["terms"] = _counted([_UNKNOWN if split.term is None else split.term for split in members])
    return group


def _closed(numbers: Sequence[int | str]) -> list[int | str | list[int]]:
    """Encodes ascending numbers: a sequence of consecutive numbers becomes [first, last].

    A string among the numbers, which is the name of a split without a number, is not changed.
    """
    found: list[int | str | list[int]] = []
    for number in numbers:
        last = found[-1] if found else None
        if isinstance(number, int) and isinstance(last, list) and last[1] == number - 1:
            last[1] = number
        elif isinstance(number, int) and isinstance(last, int) and last == number - 1:
            found[-1] = [last, number]
        else:
            found.append(number)
    return found


def _opened(numbers: Iterable[int | str | list[int]]) -> list[int | str]:
    found: list[int | str] = []
    for number in numbers:
        if isinstance(number, list):
            found.extend(range(number[0], number[1] + 1))
        else:
            found.append(number)
    return found


def _counted(values: Sequence[int]) -> list[int | list[int]]:
    """Run-length encodes values: a value that occurs several times in succession becomes [value, times]."""
    found: list[int | list[int]] = []
    for value in values:
        last = found[-1] if found else None
        if isinstance(last, list) and last[0] == value:
            last[1] += 1
        elif last == value and found:
            found[-1] = [value, 2]
        else:
            found.append(value)
    return found


def _spread(values: Iterable[int | list[int]]) -> list[int]:
    found: list[int] = []
    for value in values:
        found.extend([value[0]] * value[1] if isinstance(value, list) else [value])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillChunk:
    """A part of a history: the offsets ``[start, end)`` of a split.

    If the backfill reads the offsets from the log, ``runs`` are the first and the last run that wrote them to the log.
    If ``runs`` is empty, the backfill reads the offsets from the upstream. Then ``term`` is a term (Kafka: leader
    epoch) in which the upstream had the records of the history at these offsets; None if unknown.
    """

    split: str
    start: int
    end: int
    runs: tuple[int, int] | None = None
    term: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPlan:
    """The chunks of a history that the backfill must still read, separately for the log and the upstream. Chunks do not
    overlap."""

    from_log: tuple[BackfillChunk, ...] = ()
    from_upstream: tuple[BackfillChunk, ...] = ()


def plan_portions(
    history: History,
    pieces: Mapping[str, tuple[LogPiece, ...]],
    done: Mapping[str, Spans],
    *,
    replaced: Mapping[str, Spans] | None = None,
    readings: Mapping[str, tuple[LogPiece, ...]] | None = None,
) -> HistoryPlan:
    """The chunks of a history that the backfill must still read. ``done`` are the offsets that it has read.

    The backfill reads an offset from the log if the log contains it, and otherwise from the upstream. The log may
    contain several rows for an offset. Then the backfill reads the newest of the rows that the log contained when the
    view was created. It does not read earlier rows, because the upstream may have lost their records. Later rows are
    live. The backfill does not read offsets in ``replaced`` (see :func:`reread_ranges`). ``readings`` are all pieces
    that the log has ever had, if some rows of the log have been deleted; otherwise, ``readings`` is None.
    """
    from_log: list[BackfillChunk] = []
    from_upstream: list[BackfillChunk] = []
    for split in history.splits:
        left = without(_left(split, done), (replaced or {}).get(split.split, ()))
        before, later = _parted(history, split, pieces)
        for piece in (*reversed(before), *reversed(later)):
            if not left:
                break
            rest = without(left, ((piece.start, piece.end),))
            from_log += [
                BackfillChunk(split=split.split, start=start, end=end, runs=(piece.first_run, piece.last_run))
                for start, end in without(left, rest)
            ]
            left = rest
        if left:
            read = before if readings is None else _parted(history, split, readings)[0]
            from_upstream += [
                BackfillChunk(split=split.split, start=start, end=end, term=term)
                for start, end, term in _in_terms(split, read, left)
            ]
    return HistoryPlan(from_log=tuple(from_log), from_upstream=tuple(from_upstream))


def reread_ranges(
    history: History, pieces: Mapping[str, tuple[LogPiece, ...]], done: Mapping[str, Spans]
) -> tuple[BackfillChunk, ...]:
    """Returns the offsets of a history that are not in ``done``, and that the source has read again since the view was
    created, in a greater term than that of the history.

    The rows of the second reading are live. If the upstream has lost the records of the history at these offsets, the
    live rows replace these records. Otherwise, the live rows repeat these records, as the preview of the statement that
    moved the source back has shown. Each range has the ``term`` in which the upstream had the records of the history.
    Ranges can overlap.
    """
    found: list[BackfillChunk] = []
    for split in history.splits:
        before, later = _parted(history, split, pieces)
        live = [piece for piece in later if not split.is_guarded or piece.epoch >= split.since]
        if not live:
            continue
        for start, end, term in _in_terms(split, before, _left(split, done)):
            found += [
                BackfillChunk(split=split.split, start=max(start, piece.start), end=min(end, piece.end), term=term)
                for piece in live
                if term is not None and (piece.term or 0) > term and piece.start < end and start < piece.end
            ]
    return tuple(found)


def _left(split: SplitHistory, done: Mapping[str, Spans]) -> Spans:
    return without(split.wanted, done.get(split.split, ()))


def _parted(
    history: History, split: SplitHistory, pieces: Mapping[str, tuple[LogPiece, ...]]
) -> tuple[tuple[LogPiece, ...], tuple[LogPiece, ...]]:
    """The pieces of a split's incarnation, as a pair: the pieces that the log had when the view was created, and the
    pieces that were added later."""
    own = [
        piece
        for piece in pieces.get(split.split, ())
        if same_incarnation(piece.cluster, piece.incarnation, split.cluster, split.incarnation)
    ]
    return (
        tuple(piece for piece in own if piece.version <= history.log_version),
        tuple(piece for piece in own if piece.version > history.log_version),
    )


def _in_terms(
    split: SplitHistory, pieces: tuple[LogPiece, ...], spans: Spans
) -> tuple[tuple[int, int, int | None], ...]:
    """Divides ``spans`` into parts in ascending order. Each part has a term in which the upstream had the records of
    the history at the part's offsets."""
    parts: list[tuple[int, int, int | None]] = []
    for piece in reversed(pieces):
        rest = without(spans, ((piece.start, piece.end),))
        term = split.term if piece.term is None else piece.term
        parts += [(start, end, term) for start, end in without(spans, rest)]
        spans = rest
    parts += [(start, end, split.term) for start, end in spans]
    joined: list[tuple[int, int, int | None]] = []
    for start, end, term in sorted(parts, key=lambda part: part[0]):
        if joined and joined[-1][1:] == (start, term):
            start = joined.pop()[0]
        joined.append((start, end, term))
    return tuple(joined)


def next_chunk(portions: Sequence[BackfillChunk], most: int) -> tuple[BackfillChunk, ...]:
    """The chunks that the next batch of the backfill reads: at most ``most`` offsets in total, distributed evenly among
    the splits.

    For each split, the result has offsets only from that chunk of the split that has the lowest offsets.
    """
    first: dict[str, BackfillChunk] = {}
    for portion in portions:
        known = first.get(portion.split)
        if known is None or portion.start < known.start:
            first[portion.split] = portion
    chosen: list[BackfillChunk] = []
    # Handles small chunks first, so that the larger chunks get the rest of a small chunk's share.
    by_size = sorted(first.values(), key=lambda portion: (portion.end - portion.start, portion.split))
    for at, portion in enumerate(by_size):
        share = max(1, most // (len(by_size) - at)) if most > 0 else 0
        taken = min(portion.end - portion.start, share, most)
        if taken <= 0:
            break
        most -= taken
        chosen.append(replace(portion, end=portion.start + taken))
    return tuple(chosen)
