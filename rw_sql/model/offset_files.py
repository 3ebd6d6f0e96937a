"""Reads and writes offsets in the text formats of rw_sql and other tools. The module works on texts and accesses no
files.

The content of a text determines its format:

- ``map``: rw_sql's own format, ``{"orders:0": 1200, "orders:1": null}``; a value can also be a split state as JSON
- ``connect``: Kafka Connect's offsets document of a sink connector (KIP-875)
- ``csv``: the output of ``kafka-consumer-groups --reset-offsets --export``, with three or four columns
- ``rpk``: the lines ``TOPIC PARTITION OFFSET`` of ``rpk group seek --to-file``
- ``spark``: ``{"orders": {"0": 1200}}`` as in ``startingOffsets`` and in a checkpoint; -2 is earliest, -1 latest

Every offset is the offset of the next record to read. If a format cannot express a fact, such as the cluster or the id
of a topic, this fact is unknown after reading.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import INVALID_OFFSETS_FILE, SqlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

FORMS = ("map", "connect", "csv", "rpk", "spark")
"""The formats of texts with offsets."""

EARLIEST = "earliest"
LATEST = "latest"

_BOUNDS = {-2: EARLIEST, -1: LATEST}
_KNOWN_STATE_KEYS = {"offset", "cluster", "incarnation"}
_HINTS = {
    "map": 'a map of splits looks like {"orders:0": 1200, "orders:1": null}',
    "connect": 'Kafka Connect\'s document looks like {"offsets": [{"partition": {"kafka_topic": "orders", '
    '"kafka_partition": 0}, "offset": {"kafka_offset": 1200}}]}',
    "csv": "the lines of kafka-consumer-groups are topic,partition,offset or group,topic,partition,offset",
    "rpk": "the lines of rpk are TOPIC PARTITION OFFSET",
    "spark": 'Spark\'s offsets look like {"orders": {"0": 1200, "1": -2}}',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenOffset:
    """The entry for one split in a file. ``state`` is a number as text, or a split state as JSON. If both ``state`` and
    ``bound`` are None, the entry resets the split.

    If ``bound`` is ``earliest`` or ``latest``, ``state`` is None, and the position is the beginning or the end of the
    split in the upstream.
    """

    split: str
    state: str | None
    bound: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsText:
    """The content of a file: its format, and one entry per split in the order of the file."""

    form: str
    entries: tuple[WrittenOffset, ...]


def read_offsets(text: str, path: str) -> OffsetsText:
    """Reads offsets in any of the formats. ``path`` is the file's name in messages.

    Raises SqlError INVALID_OFFSETS_FILE, without a span, if the format is unknown, if the text contains no split, or if
    a split occurs twice.
    """
    plain = text.removeprefix("\ufeff")
    if not plain.strip():
        raise _refuse(path, "is empty", "map")
    form, entries = _read_json(plain, path) if plain.lstrip()[0] in "{[" else _read_lines(plain, path)
    if not entries:
        raise _refuse(path, "names no split", form)
    seen: set[str] = set()
    for entry in entries:
        if entry.split in seen:
            raise _refuse(path, f'names "{entry.split}" more than once', form)
        seen.add(entry.split)
    return OffsetsText(form=form, entries=tuple(entries))


def write_offsets(form: str, offsets: Mapping[str, int], *, group: str | None = None) -> str:
    """Returns the text for offsets in the format ``form``, in the order of ``offsets``. Each offset is the offset of
    the next record to read. The text ends with a newline.

    If ``group`` is given, the format ``csv`` gets a column with this group. Raises ValueError for an unknown format
    and, in all formats except ``map``, for a split whose id is not ``topic:partition``.
    """
    if form == "map":
        return json.dumps(dict(offsets), indent=2, ensure_ascii=False) + "\n"
    parts = [(*_topic_partition(split), offset) for split, offset in offsets.items()]
    match form:
        case "connect":
            document = {
                "offsets": [
                    {
                        "partition": {"kafka_topic": topic, "kafka_partition": partition},
                        "offset": {"kafka_offset": offset},
                    }
                    for topic, partition, offset in parts
                ]
            }
            return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        case "csv":
            made = io.StringIO()
            csv.writer(made, lineterminator="\n").writerows((*((group,) if group else ()), *part) for part in parts)
            return made.getvalue()
        case "rpk":
            return "".join(f"{topic} {partition} {offset}\n" for topic, partition, offset in parts)
        case "spark":
            topics: dict[str, dict[str, int]] = {}
            for topic, partition, offset in parts:
                topics.setdefault(topic, {})[str(partition)] = offset
            return json.dumps(topics, separators=(",", ":"), ensure_ascii=False) + "\n"
        case _:
            raise ValueError(f"there is no form {form!r} of offsets; there are {', '.join(FORMS)}")


def _refuse(path: str, message: str, form: str) -> SqlError:
    return SqlError(INVALID_OFFSETS_FILE, f"offsets file {path!r} {message}", hint=_HINTS[form])


def _topic_partition(split: str) -> tuple[str, int]:
    topic, colon, partition = split.rpartition(":")
    if not colon or not (partition.isascii() and partition.isdecimal()):
        raise ValueError(f'split "{split}" is not a partition of a topic: only a map can name it')
    return topic, int(partition)


def _read_json(text: str, path: str) -> tuple[str, list[WrittenOffset]]:
    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise _refuse(path, f'names "{name}" more than once', "map")
            names.add(name)
        return dict(pairs)

    try:
        document = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        reason = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise _refuse(path, reason, "map") from error
    except RecursionError as error:
        raise _refuse(path, "is nested too deeply", "map") from error
    if not isinstance(document, dict):
        raise _refuse(path, "does not contain a JSON object", "map")
    if isinstance(document.get("offsets"), list):
        return "connect", list(_connect_entries(document, path))
    if document and all(_is_topic(value) for value in document.values()):
        return "spark", list(_spark_entries(document, path))
    return "map", list(_map_entries(document, path))


def _is_topic(value: object) -> bool:
    """True if ``value`` is Spark's map from the partitions of a topic to offsets. False if it is an rw_sql split
    state."""
    return isinstance(value, dict) and not value.keys() & _KNOWN_STATE_KEYS


def _map_entries(document: Mapping[str, object], path: str) -> Iterable[WrittenOffset]:
    for split, value in document.items():
        match value:
            case None:
                state = None
            case dict():
                state = json.dumps(value)
            case int() if not isinstance(value, bool):
                state = str(value)
            case str():
                state = value
            case _:
                raise _refuse(
                    path, f'gives split "{split}" the offset {json.dumps(value)}, which is not a whole number', "map"
                )
        yield WrittenOffset(split=split, state=state)


def _spark_entries(document: Mapping[str, object], path: str) -> Iterable[WrittenOffset]:
    for topic, partitions in document.items():
        if not isinstance(partitions, dict):
            raise _refuse(path, f'gives topic "{topic}" no partitions', "spark")
        for partition, offset in partitions.items():
            split = f"{topic}:{_partition(partition, path, 'spark')}"
            if isinstance(offset, bool) or not isinstance(offset, int):
                what = f'gives split "{split}" the offset {json.dumps(offset)}, which is not a whole number'
                raise _refuse(path, what, "spark")
            bound = _BOUNDS.get(offset)
            yield WrittenOffset(split=split, state=None if bound else str(offset), bound=bound)


def _connect_entries(document: Mapping[str, object], path: str) -> Iterable[WrittenOffset]:
    listed = document["offsets"]
    if not isinstance(listed, list):
        raise _refuse(path, "does not list offsets", "connect")
    for number, entry in enumerate(listed, 1):
        match entry:
            case {"partition": {"kafka_topic": str(topic), "kafka_partition": partition}, "offset": None}:
                state = None
            case {
                "partition": {"kafka_topic": str(topic), "kafka_partition": partition},
                "offset": {"kafka_offset": offset},
            }:
                state = str(_whole(offset, path, "connect", f"entry {number}"))
            case _:
                raise _refuse(
                    path, f"has an entry {number} that is not a topic, partition and offset of Kafka", "connect"
                )
        yield WrittenOffset(split=f"{topic}:{_partition(partition, path, 'connect')}", state=state)


def _read_lines(text: str, path: str) -> tuple[str, list[WrittenOffset]]:
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    is_csv = "," in lines[0][1]
    form = "csv" if is_csv else "rpk"
    split_line: Callable[[str], list[str]] = _csv_fields if is_csv else str.split
    groups: set[str] = set()
    entries = []
    for number, line in lines:
        fields = split_line(line)
        if is_csv and len(fields) == 4:
            groups.add(fields.pop(0))
        if len(fields) != 3:
            raise _refuse(path, f"has {len(fields)} fields in line {number}", form)
        topic, partition, offset = fields
        where = f"line {number}"
        split = f"{topic}:{_partition(partition, path, form)}"
        entries.append(WrittenOffset(split=split, state=str(_whole(offset, path, form, where))))
    if len(groups) > 1:
        listed = ", ".join(sorted(groups))
        error = _refuse(path, f"contains the offsets of several groups: {listed}", form)
        error.hint = f"keep the lines of one of them: grep '^{sorted(groups)[0]},' FILE"
        raise error
    return form, entries


def _csv_fields(line: str) -> list[str]:
    return [field.strip() for field in next(csv.reader([line], skipinitialspace=True))]


def _partition(value: object, path: str, form: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal() and len(text) < 11):
        raise _refuse(path, f"has {text!r} in the place of a partition's number", form)
    return int(text)


def _whole(value: object, path: str, form: str, where: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise _refuse(path, f"gives {text!r} as the offset in {where}, which is not a whole number", form)
    return int(text)
