"""Handwritten checkpoints in the file format of Spark 4.2, and the changes that a running query makes to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.checkpoints.files import checksum_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

QUERY = "35f20518-8d17-4f7d-a78f-14faf0c2d96c"
TABLE_ID = "15d7a7ab-34b6-42cc-944d-184788ce0320"


def kafka(**topics: Sequence[int]) -> str:
    """A Kafka source's offset, which maps each topic to the next offsets of its partitions, in the order that Spark
    uses."""
    return _written(
        {
            topic: {str(number): offsets[number] for number in reversed(range(len(offsets)))}
            for topic, offsets in topics.items()
        }
    )


def delta(version: int, *, index: int = -1, is_starting: bool = False) -> str:
    """A Delta source's offset."""
    return _written(
        {
            "sourceVersion": 1,
            "reservoirId": TABLE_ID,
            "reservoirVersion": version,
            "index": index,
            "isStartingVersion": is_starting,
        }
    )


def files(log_offset: int) -> str:
    """A file source's offset."""
    return _written({"logOffset": log_offset})


def make_checkpoint(
    path: Path,
    *batches: Sequence[str],
    names: Sequence[str] = (),
    watermark_ms: int = 0,
    operators: Sequence[str] = (),
    uncommitted: int = 0,
) -> Path:
    """A checkpoint with one entry per batch. Each entry has one line per source. If ``names`` are given, the offset log
    has version 2.

    The last ``uncommitted`` batches are only planned.
    """
    put(path, "metadata", json.dumps({"id": QUERY}, separators=(",", ":")))
    for number, lines in enumerate(batches):
        plan_batch(path, number, lines, names)
        if number < len(batches) - uncommitted:
            commit_batch(path, number, watermark_ms)
    for number, operator in enumerate(operators):
        body = {"operatorInfo": {"operatorId": number, "operatorName": operator}, "stateStoreInfo": []}
        put(path, f"state/{number}/_metadata/metadata", f"v1\n{_written(body)}")
    return path


def plan_batch(path: Path, number: int, lines: Sequence[str], names: Sequence[str] = ()) -> None:
    """Plans a batch, as the query does before it reads."""
    metadata = _written({"batchWatermarkMs": 0, "batchTimestampMs": 1795266746703, "conf": {"a": "b:c"}})
    named = [f"{name}:{line}" for name, line in zip(names, lines, strict=True)] if names else list(lines)
    put(path, f"offsets/{number}", "\n".join([f"v{2 if names else 1}", metadata, *named]))


def commit_batch(path: Path, number: int, watermark_ms: int = 0) -> None:
    """Commits a batch, as the query does once its rows are written."""
    put(path, f"commits/{number}", f"v1\n{_written({'nextBatchWatermarkMs': watermark_ms})}")


def list_files(path: Path, number: int, *listed: Path, source: str = "0") -> None:
    """Writes the list of files that the file source read in one batch."""
    entries = [_written({"path": f"file://{file}", "timestamp": 1, "batchId": number}) for file in listed]
    put(path, f"sources/{source}/{number}", "\n".join(["v1", *entries]))


def make_table(path: Path, *rows: int, table_id: str = TABLE_ID) -> Path:
    """A Delta table's log. Each number in ``rows`` becomes a version that adds this number of rows or, if the number is
    negative, replaces rows."""
    for version, count in enumerate(rows):
        actions: list[Mapping[str, object]] = [{"commitInfo": {"timestamp": 1_000_000 * version}}]
        if version == 0:
            actions.append({"metaData": {"id": table_id}})
        if count < 0:
            actions.append({"remove": {"path": "a", "dataChange": True}})
        actions.append({"add": {"path": "a", "dataChange": True, "stats": _written({"numRecords": abs(count)})}})
        file = path / "_delta_log" / f"{version:020d}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(_written(action) for action in actions), encoding="utf-8")
    return path


def put(path: Path, name: str, text: str) -> None:
    """Writes a file, and the checksum file that Hadoop keeps beside it."""
    file = path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.with_name(f".{file.name}.crc").write_bytes(checksum_of(text.encode()))


def tree(path: Path) -> dict[str, bytes]:
    """All files of a checkpoint except those of its journal."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and "_rw_sql" not in file.parts
    }


def checksums_hold(path: Path) -> bool:
    """True if every checksum matches its file; Hadoop refuses to read a file with a wrong checksum."""
    return all(
        file.with_name(file.name[1:-4]).read_bytes() is not None
        and checksum_of(file.with_name(file.name[1:-4]).read_bytes()) == file.read_bytes()
        for file in path.rglob(".*.crc")
    )


def _written(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
