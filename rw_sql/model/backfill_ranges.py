"""The history of a view's input: what was upstream before the view, fixed by the commit that made the view.

A view's rows of a source are its *history*, each offset of ``[start, end)`` of every split once, and all live rows:
those that the log got after ``log_version`` from where the splits then stood. So it does not matter what the log went
through before, nor what becomes of the source while the history is still being read.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rw_sql.model.offset_ranges import total, without

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rw_sql.model.offset_ranges import LogPiece, Spans

_FORM = 1
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,17})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitHistory:
    """One split of an input: its history is ``[start, end)`` of this life, but for ``gone``.

    ``start`` may lie beyond where the reader stood: ``end`` is then the same, and rows below it are not live.
    ``since`` is the epoch of the statement that had set the split's position. ``is_guarded``: of rows that follow from
    that statement only those at or above ``start`` are live, and of rows that follow from an earlier one none.
    """

    split: str
    start: int
    end: int
    cluster: str | None = None
    incarnation: str | None = None
    since: int = 0
    is_guarded: bool = False
    gone: Spans = ()

    @property
    def wanted(self) -> Spans:
        """The offsets of its history."""
        return without(((self.start, self.end),), self.gone) if self.end > self.start else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The history of one input. ``log_version`` is the version of the source's log after which rows are live."""

    source_id: int
    log_version: int
    splits: tuple[SplitHistory, ...]

    @property
    def live_version(self) -> int:
        """The first version of the log whose rows are live; its first commit has none, and no stream begins there."""
        return max(1, self.log_version + 1)

    @property
    def offsets(self) -> int:
        """How many offsets it has."""
        return sum(total(split.wanted) for split in self.splits)

    @property
    def guarded(self) -> tuple[SplitHistory, ...]:
        """The splits of which not all rows after ``log_version`` are live."""
        return tuple(split for split in self.splits if split.is_guarded)

    def to_text(self) -> str:
        """The text that the catalog keeps: splits that share a life and an epoch name them once, their names are
        ranges of numbers, and a value that follows itself is counted."""
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
        """The history behind a text."""
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
        for split, start, length in zip(names, _spread(group["starts"]), _spread(group["lengths"]), strict=True):
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
    return group


def _closed(numbers: Sequence[int | str]) -> list[int | str | list[int]]:
    """Ascending numbers, runs of them as [first, last]; a name without a number is the empty text."""
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
    """Values in their order, one that follows itself as [value, times]."""
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
    """Part of a history: offsets ``[start, end)`` of a split, in the rows of these runs of the log, or upstream."""

    split: str
    start: int
    end: int
    runs: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPlan:
    """Where what is left of a history is read. No offset is in two portions."""

    from_log: tuple[BackfillChunk, ...] = ()
    from_upstream: tuple[BackfillChunk, ...] = ()


def same_life(
    cluster: str | None, incarnation: str | None, other_cluster: str | None, other_incarnation: str | None
) -> bool:
    """Whether two lives of a split are the same; what is unknown counts as equal."""
    pairs = ((cluster, other_cluster), (incarnation, other_incarnation))
    return not any(known and wanted and known != wanted for known, wanted in pairs)


def plan_portions(
    history: History, pieces: Mapping[str, tuple[LogPiece, ...]], done: Mapping[str, Spans]
) -> HistoryPlan:
    """Where each offset of a history that is not ``done`` is read: from the log where it is, else upstream."""
    from_log: list[BackfillChunk] = []
    from_upstream: list[BackfillChunk] = []
    for split in history.splits:
        left = without(split.wanted, done.get(split.split, ()))
        for piece in pieces.get(split.split, ()):
            if not left:
                break
            if not same_life(piece.cluster, piece.incarnation, split.cluster, split.incarnation):
                continue
            rest = without(left, ((piece.start, piece.end),))
            from_log += [
                BackfillChunk(split=split.split, start=start, end=end, runs=(piece.first_run, piece.last_run))
                for start, end in without(left, rest)
            ]
            left = rest
        from_upstream += [BackfillChunk(split=split.split, start=start, end=end) for start, end in left]
    return HistoryPlan(from_log=tuple(from_log), from_upstream=tuple(from_upstream))


def next_chunk(portions: Sequence[BackfillChunk], most: int) -> tuple[BackfillChunk, ...]:
    """The next portions to read together: at most ``most`` offsets of all, dealt evenly to the splits, and of a split
    only one run of offsets, the lowest."""
    first: dict[str, BackfillChunk] = {}
    for portion in portions:
        known = first.get(portion.split)
        if known is None or portion.start < known.start:
            first[portion.split] = portion
    chosen: list[BackfillChunk] = []
    # Small ones first, so that what they leave of their share goes to the others.
    by_size = sorted(first.values(), key=lambda portion: (portion.end - portion.start, portion.split))
    for at, portion in enumerate(by_size):
        share = max(1, most // (len(by_size) - at)) if most > 0 else 0
        taken = min(portion.end - portion.start, share, most)
        if taken <= 0:
            break
        most -= taken
        chosen.append(
            BackfillChunk(split=portion.split, start=portion.start, end=portion.start + taken, runs=portion.runs)
        )
    return tuple(chosen)
