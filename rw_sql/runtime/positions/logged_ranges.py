"""Determines the offsets that a source's log contains, as ranges that are computed from the commits of the log's table.

A file beside the checkpoints stores the ranges, which therefore survive the clean-up of commits. Code that reads the
file adds the ranges of the commits after the file's version. If the file does not exist, the computation begins at the
oldest existing commit.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from rw_sql.model.offset_ranges import LogPiece, ReadIncarnation, with_piece, with_read
from rw_sql.runtime.delta.delta_log import (
    added_rows,
    commit_path,
    commit_versions,
    commits,
    committed_ms,
    job_commit,
    latest_version,
    read_actions,
    restored_version,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rw_sql.metastore.records import MaterializedViewRecord, SourceRecord
    from rw_sql.runtime.delta.delta_log import JobCommit
    from rw_sql.runtime.support.warehouse import Warehouse

_FORM = 2
_UNKNOWN_READING = (-1, 0, None)
"""The version, the epoch and the term that are assumed for a piece from a file of an earlier version of rw_sql. Such a
file does not contain these values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRanges:
    """The ranges that were read according to the commits up to ``version``. For each split, the ranges are listed by
    the split's incarnations, oldest first. ``sparse`` are the splits from which fewer records than offsets were read.
    ``is_complete`` is true if no commit is missing. ``pieces`` are the ranges of each split, listed separately for each
    run, in log order. ``trimmed`` is the newest hourly bucket that was dropped from the log; None if no bucket was
    dropped. The rows of this and all older buckets were read and later deleted. ``trimmed_ms`` is the time of the
    newest commit that dropped buckets, in milliseconds since 1970; None if it is unknown."""

    version: int = -1
    lives: Mapping[str, tuple[ReadIncarnation, ...]] = field(default_factory=dict)
    sparse: frozenset[str] = frozenset()
    is_complete: bool = True
    pieces: Mapping[str, tuple[LogPiece, ...]] = field(default_factory=dict)
    trimmed: int | None = None
    trimmed_ms: int | None = None


_lock = threading.Lock()
_folded: dict[str, ReadRanges] = {}
# For each file of ranges, by path: the log's version to which the ranges in the file belong.
_written: dict[str, int] = {}


def read_ranges(warehouse: Warehouse, source: SourceRecord | MaterializedViewRecord) -> ReadRanges:
    """The ranges that a source's log contains now, or that a view's direct readers have read."""
    table = warehouse.data(source.id, source.generation)
    version = latest_version(warehouse, table)
    with _lock:
        known = _folded.get(table)
        if known is None or known.version > version or not _is_continued(warehouse, table, known, version):
            known = _stored(warehouse, source, known, version)
        if known.version < version:
            known = _fold(warehouse, table, known, version, partial(_cleaned, warehouse, source))
        _folded[table] = known
        return known


def note_ranges(warehouse: Warehouse, source: SourceRecord | MaterializedViewRecord) -> None:
    """Writes the ranges to the file of ranges, unless the file is up to date.

    Incomplete ranges do not replace complete ranges in the file, because only the file may still contain the offsets of
    the missing commits.
    """
    found = read_ranges(warehouse, source)
    path = warehouse.read_ranges(source.id, source.generation)
    # For a source with 100,000 splits, reading the file takes a second.
    if _written.get(path) == found.version and warehouse.exists(path):
        return
    noted = _noted(warehouse, source, found.version)
    is_newer = found.version > noted.version and (found.is_complete or not noted.is_complete or noted.version < 0)
    if is_newer or (found.is_complete and not noted.is_complete):
        warehouse.write_text(path, _to_json(found))
    _written[path] = found.version


def note_cleaned_ranges(warehouse: Warehouse, source: SourceRecord | MaterializedViewRecord, version: int) -> None:
    """Stores the ranges of the commits up to a version in a separate file. Must be called before these commits are
    cleaned up.

    After a RESTORE to an older version, the computation of ranges begins with this file.
    """
    known = _cleaned(warehouse, source)
    if known.version < version:
        table = warehouse.data(source.id, source.generation)
        found = _fold(warehouse, table, known, version, partial(_cleaned, warehouse, source))
        path = warehouse.cleaned_ranges(source.id, source.generation)
        warehouse.write_text(path, _to_json(found), is_durable=True)


def _stored(
    warehouse: Warehouse, source: SourceRecord | MaterializedViewRecord, known: ReadRanges | None, newest: int
) -> ReadRanges:
    """Returns the ranges to which the log's later commits must be added. The candidates are the ranges in the two
    files, and then ``known``. The result is the first candidate that is complete and is followed by the existing
    commits without a gap.

    Another process may have cleaned up the commits after ``known``. Before the clean-up, that process has stored the
    ranges of these commits. If no candidate meets the condition, the result is the candidate with the newest version.
    """
    table = warehouse.data(source.id, source.generation)

    def read() -> Iterator[ReadRanges]:
        yield _noted(warehouse, source, newest)
        yield _cleaned(warehouse, source)
        if known is not None:
            yield known

    found: list[ReadRanges] = []
    for ranges in read():
        if ranges.version <= newest:
            if ranges.is_complete and _is_continued(warehouse, table, ranges, newest):
                return ranges
            found.append(ranges)
    return max(found, key=lambda ranges: ranges.version)


def _is_continued(warehouse: Warehouse, table: str, known: ReadRanges, newest: int) -> bool:
    """True if the log still has the commit after ``known``, or if there is no later commit."""
    return known.version == newest or warehouse.exists(commit_path(table, known.version + 1))


def _noted(warehouse: Warehouse, source: SourceRecord | MaterializedViewRecord, newest: int) -> ReadRanges:
    """The ranges in the file that :func:`note_ranges` writes; empty ranges if the file is ahead of the log."""
    found = _read(warehouse, warehouse.read_ranges(source.id, source.generation))
    return found if found.version <= newest else ReadRanges()


def _cleaned(warehouse: Warehouse, source: SourceRecord | MaterializedViewRecord) -> ReadRanges:
    """The ranges of the commits that were cleaned up, from the file that :func:`note_cleaned_ranges` writes."""
    return _read(warehouse, warehouse.cleaned_ranges(source.id, source.generation))


def _read(warehouse: Warehouse, path: str) -> ReadRanges:
    try:
        body = warehouse.read_json(path)
    except FileNotFoundError:
        return ReadRanges()
    return ReadRanges() if body is None or body["form"] != _FORM else _from_json(body)


def _fold(
    warehouse: Warehouse, table: str, known: ReadRanges, newest: int, cleaned: Callable[[], ReadRanges]
) -> ReadRanges:
    """Adds the ranges of later commits to ``known``.

    ``cleaned`` returns the ranges of the commits that were cleaned up. To compute the ranges up to a version before the
    newest of these commits, this function cannot use them, because they may include commits that a RESTORE has
    reverted.
    """
    folding = _Folding.of(known)
    versions = range(known.version + 1, newest + 1)
    if versions and not _is_continued(warehouse, table, known, newest):
        folding.is_complete = False
        oldest = min((at for at in commit_versions(warehouse, table) if at in versions), default=newest + 1)
        versions = range(oldest, newest + 1)
    counted = known.version
    for version in versions:
        if version <= counted:
            continue
        actions = read_actions(warehouse, table, version)
        back_to = restored_version(actions)
        if back_to is None:
            folding.add(version, actions)
        else:
            found = cleaned()
            if version <= found.version <= newest:  # these commits are noted, but not deleted yet
                folding, counted = _Folding.of(found), found.version
                continue
            before = found if found.version <= back_to else ReadRanges()
            folding = _Folding.of(_fold(warehouse, table, before, back_to, cleaned))
    return folding.ranges(newest)


@dataclass(slots=True, kw_only=True)
class _Folding:
    """Ranges that grow by one commit at a time. The fields have the same meaning as in :class:`ReadRanges`."""

    lives: dict[str, tuple[ReadIncarnation, ...]]
    sparse: set[str]
    is_complete: bool
    pieces: dict[str, tuple[LogPiece, ...]]
    trimmed: int | None
    trimmed_ms: int | None

    @staticmethod
    def of(known: ReadRanges) -> _Folding:
        return _Folding(
            lives=dict(known.lives),
            sparse=set(known.sparse),
            is_complete=known.is_complete,
            pieces=dict(known.pieces),
            trimmed=known.trimmed,
            trimmed_ms=known.trimmed_ms,
        )

    def add(self, version: int, actions: list[dict[str, Any]]) -> None:
        """Adds a commit that is not a RESTORE."""
        if _newest_bucket(actions, "remove", None) is not None:
            self.trimmed = _newest_bucket(actions, "remove", self.trimmed)
            self.trimmed_ms = committed_ms(actions)
        commit = job_commit(actions)
        if commit is not None and commit.ranges:
            _add(self.lives, commit)
            _add_pieces(self.pieces, commit, version)
            self.sparse |= _sparse_splits(commit, actions)

    def ranges(self, version: int) -> ReadRanges:
        return ReadRanges(
            version=version,
            lives=self.lives,
            sparse=frozenset(self.sparse),
            is_complete=self.is_complete,
            pieces=self.pieces,
            trimmed=self.trimmed,
            trimmed_ms=self.trimmed_ms,
        )


def held_pieces(warehouse: Warehouse, source: SourceRecord) -> Mapping[str, tuple[LogPiece, ...]]:
    """Returns, for each split, the ranges of offsets in a source's log, each with the run that wrote the rows of the
    range. The result contains only ranges whose rows certainly still exist in the log.

    If retention has dropped old hourly buckets, the commits are read one by one, because the stored ranges may include
    the offsets of deleted rows.
    """
    return held_log(warehouse, source)[1]


def held_log(warehouse: Warehouse, source: SourceRecord) -> tuple[int, Mapping[str, tuple[LogPiece, ...]]]:
    """Does the same as :func:`held_pieces`, and also returns the version of the log that contains the rows."""
    found = read_ranges(warehouse, source)
    if found.trimmed is None:
        return found.version, found.pieces
    kept: list[tuple[int, JobCommit]] = []
    for version, actions in commits(warehouse, warehouse.data(source.id, source.generation)):
        if version > found.version:
            continue
        bucket = _newest_bucket(actions, "add", None)
        if bucket is not None and bucket <= found.trimmed:
            break
        if restored_version(actions) is not None:
            break
        commit = job_commit(actions)
        # A commit without rows has no bucket, so it cannot show that its offsets are deleted.
        if commit is not None and commit.ranges and bucket is not None:
            kept.append((version, commit))
    pieces: dict[str, tuple[LogPiece, ...]] = {}
    for version, commit in reversed(kept):
        _add_pieces(pieces, commit, version)
    return found.version, pieces


def _add(lives: dict[str, tuple[ReadIncarnation, ...]], commit: JobCommit) -> None:
    for split, (start, end) in commit.ranges.items():
        if end > start:
            cluster, incarnation = commit.identity_of(split)
            lives[split] = with_read(lives.get(split, ()), start, end, cluster=cluster, incarnation=incarnation)


def _add_pieces(pieces: dict[str, tuple[LogPiece, ...]], commit: JobCommit, version: int) -> None:
    for split, (start, end) in commit.ranges.items():
        cluster, incarnation = commit.identity_of(split)
        read = LogPiece(
            first_run=commit.run,
            last_run=commit.run,
            start=start,
            end=end,
            cluster=cluster,
            incarnation=incarnation,
            version=version,
            epoch=commit.epoch,
            term=commit.terms.get(split),
        )
        if end > start:
            pieces[split] = with_piece(pieces.get(split, ()), read)


def _newest_bucket(actions: list[dict[str, Any]], kind: str, known: int | None) -> int | None:
    """Returns the newest bucket among the files that a commit adds (``kind`` is ``add``) or removes (``remove``), if
    this bucket is newer than ``known``; otherwise ``known``."""
    newest = known
    for action in actions:
        of_file = action.get(kind)
        if of_file is None or not of_file.get("dataChange", True):
            continue
        bucket = (of_file.get("partitionValues") or {}).get("_rw_bucket")
        if bucket is not None and (newest is None or int(bucket) > newest):
            newest = int(bucket)
    return newest


def _sparse_splits(commit: JobCommit, actions: list[dict[str, Any]]) -> set[str]:
    """Returns the splits of a commit in which some offsets may have no record.

    If the commit has fewer rows than offsets, the result contains all splits of the commit, because the commit does not
    show which offsets have no record.
    """
    moved = {split for split, (start, end) in commit.ranges.items() if end > start}
    rows = added_rows(actions)
    return moved if rows is None or rows < sum(end - start for start, end in commit.ranges.values()) else set()


def _to_json(found: ReadRanges) -> str:
    ids: dict[tuple[str | None, str | None], int] = {}
    splits = {}
    for split, lives in found.lives.items():
        splits[split] = [
            [ids.setdefault((life.cluster, life.incarnation), len(ids)), life.reached, [list(s) for s in life.spans]]
            for life in lives
        ]
    pieces = {
        split: [
            [
                ids.setdefault((piece.cluster, piece.incarnation), len(ids)),
                piece.first_run,
                piece.last_run,
                piece.start,
                piece.end,
            ]
            for piece in of_split
        ]
        for split, of_split in found.pieces.items()
    }
    readings: dict[tuple[int, int, int | None], int] = {}
    piece_readings = {
        split: [readings.setdefault((piece.version, piece.epoch, piece.term), len(readings)) for piece in of_split]
        for split, of_split in found.pieces.items()
    }
    body = {
        "form": _FORM,
        "version": found.version,
        "is_complete": found.is_complete,
        "sparse": sorted(found.sparse),
        "trimmed": found.trimmed,
        "trimmed_ms": found.trimmed_ms,
        "pieces": pieces,
        "piece_readings": piece_readings,
        "readings": [list(reading) for reading in readings],
        "lives": [list(life) for life in ids],
        "splits": splits,
    }
    return json.dumps(body, separators=(",", ":"))


def _from_json(body: Mapping[str, Any]) -> ReadRanges:
    lives, readings, of_pieces = body["lives"], body.get("readings", []), body.get("piece_readings", {})
    return ReadRanges(
        version=body["version"],
        trimmed=body["trimmed"],
        trimmed_ms=body.get("trimmed_ms"),
        pieces={
            split: tuple(
                LogPiece(
                    first_run=first,
                    last_run=last,
                    start=start,
                    end=end,
                    cluster=lives[life][0],
                    incarnation=lives[life][1],
                    version=version,
                    epoch=epoch,
                    term=term,
                )
                for (life, first, last, start, end), (version, epoch, term) in zip(
                    found,
                    [readings[at] for at in of_pieces[split]] if of_pieces else [_UNKNOWN_READING] * len(found),
                    strict=True,
                )
            )
            for split, found in body["pieces"].items()
        },
        is_complete=body["is_complete"],
        sparse=frozenset(body["sparse"]),
        lives={
            split: tuple(
                ReadIncarnation(
                    spans=tuple((start, end) for start, end in spans),
                    reached=reached,
                    cluster=lives[life][0],
                    incarnation=lives[life][1],
                )
                for life, reached, spans in found
            )
            for split, found in body["splits"].items()
        },
    )
