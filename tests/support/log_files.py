"""Commits of a log with several files, which have no order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

BUCKET = "_rw_bucket"


def commit_files(
    path: str,
    schema: pa.Schema,
    files: Iterable[tuple[int, Sequence[Mapping[str, object]]]],
    random: Random,
    metadata: str | None = None,
) -> None:
    """Commits files, each with its hour and its rows. The order of the files and the order of their times are random.
    Creates the log if it does not exist. ``schema`` includes the hour. ``metadata`` is the commit's
    ``userMetadata``."""
    if not Path(path).exists():
        DeltaTable.create(path, Schema.from_arrow(schema), partition_by=[BUCKET])
    table = DeltaTable(path)
    stored = pa.schema([column for column in schema if column.name != BUCKET])
    adds: list[Any] = []
    for number, (hour, rows) in enumerate(files):
        name = f"{BUCKET}={hour}/part-{table.version() + 1}-{number}.parquet"
        file = Path(path) / name
        file.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist([*rows], stored), file)
        size, stats = file.stat().st_size, json.dumps({"numRecords": len(rows)})
        adds.append(AddAction(name, size, {BUCKET: str(hour)}, random.randint(1, 1_000), True, stats))
    random.shuffle(adds)
    properties = CommitProperties(
        custom_metadata=None if metadata is None else {"userMetadata": metadata}, max_commit_retries=0
    )
    table.create_write_transaction(adds, "append", table.schema(), [BUCKET], commit_properties=properties)
