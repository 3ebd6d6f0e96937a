"""Functions that INJECT SOURCE OFFSETS and INJECT CHECKPOINT OFFSETS share."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rw_sql.errors import INVALID_DEFINITION, SqlError, first_names
from rw_sql.model.offset_files import read_offsets
from rw_sql.model.offset_ranges import same_incarnation
from rw_sql.model.timestamps import interval_milliseconds, timestamp_milliseconds
from rw_sql.syntax.statements import InjectFromFile, InjectToTimestamp, InjectValues

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.connectors.base import UpstreamSplit
    from rw_sql.model.offset_files import OffsetsText
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import (
        InjectBack,
        InjectCheckpointOffsets,
        InjectSourceOffsets,
    )

KeyT = TypeVar("KeyT")
"""The key that identifies a split."""

_MOST_NAMED = 8


def require_offsets_written(statement: InjectSourceOffsets | InjectCheckpointOffsets) -> None:
    """Raises SqlError if the statement has CONVENTION although its target contains no offsets."""
    target = statement.target
    if statement.convention != "next" and not isinstance(target, InjectValues | InjectFromFile):
        raise SqlError(
            INVALID_DEFINITION,
            "CONVENTION applies only to offsets that are written in the statement or a file",
            span=target.span,
            hint="omit CONVENTION",
        )


def require_no_split_list(statement: InjectSourceOffsets | InjectCheckpointOffsets) -> None:
    """Raises SqlError for FOR SPLITS together with VALUES, because VALUES already names the splits."""
    if statement.splits:
        raise SqlError(
            INVALID_DEFINITION,
            "FOR SPLITS cannot be combined with VALUES",
            span=statement.splits[0].span,
            hint="omit FOR SPLITS: VALUES already names the splits",
        )


def offsets_in_file(inspector: Inspector, target: InjectFromFile) -> OffsetsText:
    """The offsets in a file. If the file cannot be read, raises SqlError, which points at the target."""
    try:
        text = inspector.file_text(target.path)
        return read_offsets(text, target.path)
    except SqlError as error:
        error.span = error.span or target.span
        error.hint = error.hint or "give a path or URI that this process can read"
        raise


def moment_of(inspector: Inspector, target: InjectToTimestamp | InjectBack) -> int:
    """The point in time to which the target TO TIMESTAMP or BACK BY refers, in milliseconds since 1970."""
    if isinstance(target, InjectToTimestamp):
        return timestamp_milliseconds(target.timestamp, target.span)
    now = inspector.clock()
    return now - interval_milliseconds(target.interval, target.span)


def at_most(offsets: Mapping[KeyT, int], ends: Mapping[KeyT, int]) -> tuple[dict[KeyT, int], list[KeyT]]:
    """Replaces each offset that is after the end of its split with that end. Returns the resulting offsets, and the
    splits whose offsets were replaced.

    An offset may be after the end because the upstream has grown between the request for the ends and the request for
    the offsets. The caller has checked that the upstream has grown. The ends are valid positions, and continuing there
    skips no record.
    """
    beyond = [key for key, offset in offsets.items() if key in ends and offset > ends[key]]
    return {**offsets, **{key: ends[key] for key in beyond}}, beyond


def grown_ends(
    inspector: Inspector,
    connector: str,
    options: PlannedOptions,
    offsets: Mapping[str, int],
    seen: Mapping[str, UpstreamSplit],
) -> dict[str, int]:
    """Contacts the upstream again if an offset is after the end of its split. For each split whose present end is at or
    after its offset in ``offsets``, returns its earlier end, from ``seen``. For any other split, such as a split of a
    topic that was created again, an offset after the end is an error."""
    if not any(split in seen and offset > seen[split].end for split, offset in offsets.items()):
        return {}
    now = inspector.upstreams.look_again(connector, options).splits
    return {
        split: before.end
        for split, before in seen.items()
        if split in offsets
        and (found := now.get(split)) is not None
        and not (before.is_empty or before.is_endless)
        and same_incarnation(found.cluster, found.incarnation, before.cluster, before.incarnation)
        and found.end >= offsets[split]
    }


def grown_notices(splits: Iterable[str]) -> list[str]:
    """Returns a notice about splits whose offset was after the end that the upstream had reported earlier."""
    listed = first_names(splits, _MOST_NAMED)
    said = "the upstream has grown since its ends were read; these splits are set to the ends that it had then"
    return [f"{said}: {listed}"] if listed else []


def members_notices(group: str, members: int) -> list[str]:
    """Returns a notice if the consumer group has active members, because active members can still change the group's
    offsets."""
    return (
        [f'consumer group "{group}" has {members} active members, so its offsets may still change'] if members else []
    )
