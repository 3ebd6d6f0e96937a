"""Reads a checkpoint: the last committed batch, and the position of each split of each source."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.checkpoints.journal import UNFINISHED, FileChange, read_journal
from rw_sql.checkpoints.offset_log import OffsetEntry, read_entry
from rw_sql.checkpoints.positions import FILE, LIST, SourcePosition, read_position
from rw_sql.errors import NOT_A_CHECKPOINT, SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.checkpoints.files import CheckpointFiles
    from rw_sql.checkpoints.journal import JournalEntry

_OPERATOR_WORDS = {
    "stateStoreSave": "aggregation",
    "sessionWindowStateStoreSaveExec": "session windows",
    "dedupe": "deduplication",
    "dedupeWithinWatermark": "deduplication",
    "symmetricHashJoin": "stream-stream join",
    "globalLimit": "limit",
}
_VIEW_CHECKPOINT = re.compile(r"(?P<warehouse>.+)/checkpoints/[a-z]+-\d+(/[^/]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A split and the name that statements use for it, such as ``orders:0`` or ``version``.

    If several sources have a split with the same name, the name includes the source: ``1/orders:0``.
    """

    id: str
    source: str
    local: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state of a checkpoint at the time it was read.

    ``batch`` is the number of the last committed batch, and ``entry`` is the entry of this batch in the offset log.
    ``previous`` is the entry of the batch before ``batch``; None if there is no such entry. ``planned`` is the number
    of the last planned batch. If ``planned`` is higher than ``batch``, the query may already have written some rows of
    the planned batch. ``stamp`` changes whenever a query plans or commits a batch. ``unfinished`` is a rewrite by
    rw_sql that was interrupted; None if there is no such rewrite.
    """

    path: str
    query_id: str
    batch: int
    planned: int
    entry: OffsetEntry
    previous: OffsetEntry | None
    watermark_ms: int
    operators: tuple[str, ...]
    sources: tuple[SourcePosition, ...]
    stamp: str
    owner: str | None = None
    unfinished: JournalEntry | None = None

    @property
    def splits(self) -> tuple[Split, ...]:
        """All splits, in the order of the sources."""
        return splits_of(self.sources)

    def source(self, name: str) -> SourcePosition:
        """The source with the given name."""
        return next(source for source in self.sources if source.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """A planned rewrite. ``files`` contains the old and the new content of each file to change. The plan is valid only
    while the checkpoint's stamp equals ``stamp``."""

    batch: int
    stamp: str
    files: tuple[FileChange, ...]
    statement: str
    reason: str | None = None


def changes_of(checkpoint: Checkpoint, moved: Mapping[str, str | None]) -> tuple[FileChange, ...]:
    """Returns the files that a rewrite changes, each with its old and new content. These files can be the offset log's
    entries of the last committed batch and of the batch before it; an entry that would stay the same is omitted.
    ``moved`` maps sources to their new offsets in Spark's form."""
    changes = []
    for batch, entry in ((checkpoint.batch - 1, checkpoint.previous), (checkpoint.batch, checkpoint.entry)):
        if entry is not None:
            before, after = entry.render(), entry.with_offsets(moved).render()
            if before != after:
                changes.append(FileChange(name=f"offsets/{batch}", before=before, after=after))
    return tuple(changes)


def splits_of(sources: tuple[SourcePosition, ...]) -> tuple[Split, ...]:
    """The splits of the given sources, each with its shortest unique name."""
    counts: dict[str, int] = {}
    for source in sources:
        for local in source.splits:
            counts[local] = counts.get(local, 0) + 1
    return tuple(
        Split(
            id=local if counts[local] == 1 else f"{source.name}/{local}",
            source=source.name,
            local=local,
            position=position,
        )
        for source in sources
        for local, position in sorted(source.splits.items(), key=lambda item: _order(item[0]))
    )


def _order(split: str) -> tuple[str, int]:
    topic, _, number = split.rpartition(":")
    return (topic, int(number)) if number.isdecimal() else (split, 0)


def read_checkpoint(files: CheckpointFiles) -> Checkpoint:
    """Reads a checkpoint. Raises SqlError NOT_A_CHECKPOINT if there is no checkpoint, if the query has not committed a
    batch yet, or if the checkpoint cannot be parsed."""
    names = files.stamps("")
    if "offsets" not in names or "metadata" not in names:
        missing = "metadata" if "offsets" in names else "offsets"
        raise SqlError(
            NOT_A_CHECKPOINT,
            f"{files.location!r} is not the checkpoint of a streaming query: it contains no {missing!r}",
            hint="give the folder that the job names in option checkpointLocation",
        )
    planned = files.batches("offsets")
    committed = files.batches("commits")
    if not planned or not committed:
        raise SqlError(
            NOT_A_CHECKPOINT,
            f"the job of {files.location!r} has not committed a batch yet",
            hint="give startingOffsets to the job, which has read nothing yet",
        )
    batch = committed[-1]
    entry, previous = _entry(files, batch), _entry(files, batch - 1) if batch - 1 in planned else None
    try:
        sources = tuple(read_position(name, text) for name, text in zip(entry.names, entry.offsets, strict=True))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _not_understood(files, f"offsets/{batch}", error) from error
    sources = tuple(_told_by_files(files, source) for source in sources)
    return Checkpoint(
        path=files.location,
        query_id=_query_id(files),
        batch=batch,
        planned=planned[-1],
        entry=entry,
        previous=previous,
        watermark_ms=_watermark(files, batch) or entry.watermark_ms,
        operators=_operators(files),
        sources=sources,
        stamp=stamp_of(files),
        owner=_owner(files),
        unfinished=next((found for found in read_journal(files) if found.state in UNFINISHED), None),
    )


def stamp_of(files: CheckpointFiles) -> str:
    """Returns a digest of the files that change when the query runs: the planned batches, the committed batches, and
    the file lists of the query's sources."""
    digest = hashlib.sha256()
    folders = ["offsets", "commits", *(f"sources/{name}" for name in sorted(files.stamps("sources")))]
    for folder in folders:
        for name, stamp in sorted(files.stamps(folder).items()):
            digest.update(f"{folder}/{name} {stamp}\n".encode())
    return digest.hexdigest()


def _entry(files: CheckpointFiles, batch: int) -> OffsetEntry:
    name = f"offsets/{batch}"
    try:
        return read_entry(files.read(name))
    except FileNotFoundError as error:
        raise SqlError(
            NOT_A_CHECKPOINT,
            f"{files.location!r} has a committed batch {batch} without its offsets",
            hint="restore the checkpoint from a backup; copy a checkpoint only while its job is stopped",
        ) from error
    except ValueError as error:
        raise _not_understood(files, name, error) from error


def _not_understood(files: CheckpointFiles, name: str, error: Exception) -> SqlError:
    return SqlError(
        NOT_A_CHECKPOINT,
        f"{files.path(name)!r} is not an entry of an offset log: {error}",
        hint="rw_sql reads the formats v1 and v2 of Spark's offset log",
    )


def _told_by_files(files: CheckpointFiles, source: SourcePosition) -> SourcePosition:
    """If a source without an offset has file lists in its folder of the checkpoint, returns the source as a file source
    at list 0. Otherwise, returns the source unchanged."""
    if source.text is None and any(FILE_LIST in text for text in _lists(files, source.name)):
        return SourcePosition(name=source.name, kind=FILE, text=None, splits={LIST: 0})
    return source


FILE_LIST = '"batchId"'


def _lists(files: CheckpointFiles, name: str) -> list[str]:
    numbers = files.batches(f"sources/{name}")
    return [files.read(f"sources/{name}/{numbers[0]}")] if numbers else []


def _query_id(files: CheckpointFiles) -> str:
    try:
        return str(json.loads(files.read("metadata"))["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise SqlError(
            NOT_A_CHECKPOINT,
            f"{files.path('metadata')!r} does not name a query",
            hint="give the folder that the job names in option checkpointLocation",
        ) from error


def _watermark(files: CheckpointFiles, batch: int) -> int:
    lines = files.read(f"commits/{batch}").split("\n")
    try:
        value = json.loads(lines[1]).get("nextBatchWatermarkMs", 0) if len(lines) > 1 else 0
    except (ValueError, AttributeError):
        return 0
    return value if isinstance(value, int) else 0


def _operators(files: CheckpointFiles) -> tuple[str, ...]:
    """The names of the stateful operators. An operator without metadata gets the name ``state``: versions of Spark
    before 3.5 write no metadata of operators."""
    found: dict[str, None] = {}
    for operator in sorted(files.stamps("state"), key=lambda name: (len(name), name)):
        for name in (f"state/{operator}/_metadata/metadata", f"state/{operator}/_metadata/v2/0"):
            try:
                body: Mapping[str, Mapping[str, str]] = json.loads(files.read(name).partition("\n")[2])
                word = body["operatorInfo"]["operatorName"]
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                continue
            found[_OPERATOR_WORDS.get(word, word)] = None
            break
        else:
            found["state"] = None
    return tuple(found)


def _owner(files: CheckpointFiles) -> str | None:
    """The rw_sql warehouse whose job writes the checkpoint; None if no job of rw_sql writes the checkpoint."""
    match = _VIEW_CHECKPOINT.fullmatch(files.root)
    if match is None:
        return None
    return match["warehouse"] if files.system.isdir(f"{match['warehouse']}/rw_catalog") else None
