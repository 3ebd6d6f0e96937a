"""Reads and moves the offsets of the supported kinds of sources: Kafka, Delta and files.

A position is always the **next item to read**: a Kafka offset, a version of a Delta table, or the number of a file list
of a file source. (Spark's ``logOffset`` is the number of the last list that was read, so the number of the next list is
one higher.)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

KAFKA = "kafka"
DELTA = "delta"
FILE = "file"
OTHER = "other"

VERSION = "version"
LIST = "list"

MAX_POSITION = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePosition:
    """One source of a checkpoint. The fields are the source's name (in a ``v1`` log, the source's index), the source's
    kind, and the positions of its splits.

    ``text`` is the source's offset in Spark's form, or None if the source has no offset yet. ``detail`` is a text about
    facts that positions cannot express, such as how many files of a Delta version were read; it is empty if there are
    no such facts. ``table`` is the id of the Delta table that the source reads; None for other kinds of sources.
    ``is_in_snapshot`` is True if the source is still reading the initial snapshot of that table.
    """

    name: str
    kind: str
    text: str | None
    splits: Mapping[str, int]
    detail: str = ""
    table: str | None = None
    is_in_snapshot: bool = False


def read_position(name: str, text: str | None) -> SourcePosition:
    """The position of the source ``name``, whose offset is ``text``. A source of an unknown kind gets the kind OTHER
    and no splits."""
    try:
        value = json.loads(text) if text is not None else None
    except json.JSONDecodeError:
        value = None
    if isinstance(value, dict) and "reservoirVersion" in value and "reservoirId" in value:
        return _delta(name, text, value)
    if isinstance(value, dict) and set(value) == {"logOffset"} and isinstance(value["logOffset"], int):
        return SourcePosition(name=name, kind=FILE, text=text, splits={LIST: value["logOffset"] + 1})
    if isinstance(value, dict) and _is_kafka(value):
        splits = {f"{topic}:{number}": offset for topic, numbers in value.items() for number, offset in numbers.items()}
        return SourcePosition(name=name, kind=KAFKA, text=text, splits=splits)
    return SourcePosition(name=name, kind=OTHER, text=text, splits={})


def _is_kafka(value: Mapping[str, Any]) -> bool:
    return bool(value) and all(
        isinstance(numbers, dict)
        and all(
            number.isascii() and number.isdecimal() and isinstance(offset, int) and not isinstance(offset, bool)
            for number, offset in numbers.items()
        )
        for numbers in value.values()
    )


def _delta(name: str, text: str | None, value: dict[str, Any]) -> SourcePosition:
    version, index = int(value["reservoirVersion"]), int(value.get("index", -1))
    is_snapshot = bool(value.get("isStartingVersion"))
    detail = ""
    if is_snapshot:
        detail = f"reads all of version {version}" + (f", {index + 1} files done" if index >= 0 else "")
    elif index >= 0:
        detail = f"{index + 1} files of version {version} done"
    return SourcePosition(
        name=name,
        kind=DELTA,
        text=text,
        splits={VERSION: version},
        detail=detail,
        table=str(value["reservoirId"]),
        is_in_snapshot=is_snapshot,
    )


def move_kafka(text: str | None, moved: Mapping[str, int], *, is_exactly: bool = False) -> str:
    """Returns Spark's offset of a Kafka source with the positions in ``moved``. If ``is_exactly`` is true, the result
    contains only the splits in ``moved``. Otherwise, the other splits keep their positions."""
    topics: dict[str, dict[str, int]] = json.loads(text) if text is not None else {}
    left = dict(moved)
    made: dict[str, dict[str, int]] = {}
    for topic, numbers in topics.items():
        for number, offset in numbers.items():
            split = f"{topic}:{number}"
            if is_exactly and split not in moved:
                continue
            made.setdefault(topic, {})[number] = left.pop(split, offset)
    for split, offset in left.items():
        topic, _, number = split.rpartition(":")
        made.setdefault(topic, {})[number] = offset
    return _written(made)


def move_delta(text: str, version: int) -> str:
    """Returns Spark's offset of a Delta source at the beginning of ``version`` of the same table."""
    value: dict[str, Any] = json.loads(text)
    return _written({**value, "sourceVersion": 1, "reservoirVersion": version, "index": -1, "isStartingVersion": False})


def move_files(next_list: int) -> str | None:
    """Returns Spark's offset of a file source whose next list is ``next_list``. Returns None for list 0, because a
    source that has read nothing has no offset."""
    return _written({"logOffset": next_list - 1}) if next_list > 0 else None


def _written(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
