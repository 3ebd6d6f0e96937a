"""Makes a warehouse old: all stored data gets a time that is an hour or a week earlier, without any wait.

The times in the file system, in Delta logs and in the catalog move back, but the clock does not change. Therefore, all
code in Delta Lake, delta-rs and rw_sql that depends on the age of a file or of a commit behaves as after a pause of
this length.
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from rw_sql.metastore import Metastore
from rw_sql.runtime.support.processes import is_process_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HOUR, WEEK = 3600.0, 7 * 24 * 3600.0

PAUSES: Mapping[str, float] = {"at once": 0.0, "an hour later": HOUR, "a week later": WEEK + HOUR}
"""The delays between the end of one process and the start of the next, in seconds. The longest delay is more than a
week, because a log keeps rows for a week for a reader that makes no progress."""

_GONE_SECONDS = 60.0
_LOG_FILE = re.compile(r"\d{20}\.(json|crc)")
_OF_A_COMMIT = re.compile(
    r'(?<!\\)"(timestamp|modificationTime|deletionTimestamp|lastUpdated|inCommitTimestamp|inCommitTimestampOpt)":(\d{13})'
)
_OF_OURS = re.compile(r'"(\w+_ms)": ?(\d{13})\b')
_OF_A_CHECKPOINT = (("add", "modificationTime"), ("remove", "deletionTimestamp"), ("txn", "lastUpdated"))


def grow_old(warehouse: Path, seconds: float) -> None:
    """Moves all stored times of a warehouse back by ``seconds``.

    No process may be running the warehouse's jobs. Other processes may commit statements meanwhile.
    """
    milliseconds = int(seconds * 1000)
    for table in sorted(warehouse.glob("rw_catalog/*")):
        if (table / "_delta_log").is_dir():
            _age_rows(table, milliseconds)
    for log in warehouse.rglob("_delta_log"):
        _age_log(log, milliseconds)
    for pattern in ("checkpoints/*/*/*.json", "checkpoints/upkeep-*/*.json"):
        for file in warehouse.glob(pattern):
            _rewrite(file, _OF_OURS, milliseconds)
    for file in warehouse.glob("checkpoints/downtime*.json"):
        periods = json.loads(file.read_text(encoding="utf-8"))
        moved = json.dumps([[at - milliseconds for at in period] for period in periods])
        _replace(file, partial(Path.write_text, data=moved, encoding="utf-8"))
    age_files(warehouse, seconds)


def age_files(folder: Path, seconds: float) -> None:
    """Moves the modification times of a folder's files back. Delta Lake uses these as the times of a table's commits.

    This is safe while other processes read and write the files.
    """
    seen: set[int] = set()
    for path in sorted(folder.rglob("*"), reverse=True):
        try:
            stat = path.stat()
            if stat.st_ino not in seen:  # copies of checkpoints are links to their files
                seen.add(stat.st_ino)
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns - int(seconds * 1e9)))
        except FileNotFoundError:
            continue


@dataclass(slots=True)
class Pauses:
    """The delay between the end of one process and the start of the next, drawn by a seed."""

    seed: int = 0
    drawn: list[str] = field(default_factory=list)
    _draw: random.Random = field(init=False)
    _left: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    def pass_over(self, warehouse: Path) -> str:
        """Lets time pass after the last process has ended, and returns the delay in words. The first process starts at
        once."""
        if not (warehouse / "rw_catalog" / "operations").is_dir():
            return next(iter(PAUSES))
        # The values are drawn like cards, so three consecutive draws contain each value once.
        self._left = self._left or self._draw.sample(list(PAUSES), len(PAUSES))
        name = self._left.pop()
        if PAUSES[name]:
            wait_until_left(warehouse)
            grow_old(warehouse, PAUSES[name])
        self.drawn.append(name)
        return name


def wait_until_left(warehouse: Path) -> None:
    """Returns once the process that owned a warehouse has ended, and once its JVM, which ends later, has ended too."""
    lease = Metastore.open(str(warehouse)).jobs.lease()
    if lease is None or (lease.is_released and lease.python_pid == os.getpid()):
        return
    never, deadline = threading.Event(), time.monotonic() + _GONE_SECONDS
    while is_process_alive(lease.python_pid, lease.python_start) or is_process_alive(lease.jvm_pid, lease.jvm_start):
        assert time.monotonic() < deadline, f"the owner of {warehouse} is still there after {_GONE_SECONDS:g} s"
        never.wait(0.02)


def _age_rows(table: Path, milliseconds: int) -> None:
    """Replaces the rows of a table of the catalog by the same rows with all times moved back. If another process
    commits between the read and the write, the function starts again, so that the rows of the other process are not
    lost.
    """
    while True:
        try:
            return _replace_rows(DeltaTable(str(table)), milliseconds)
        except CommitFailedError:
            continue


def _replace_rows(table: DeltaTable, milliseconds: int) -> None:
    rows = table.to_pyarrow_table()
    columns, is_changed = [], False
    for named in rows.schema:
        column = rows[named.name]
        if named.name.endswith("_ms") and pa.types.is_integer(named.type) and named.name != "duration_ms":
            column = pc.if_else(pc.greater(column, milliseconds), pc.subtract(column, milliseconds), column)
        elif pa.types.is_string(named.type):
            texts = [text if text is None else _shifted(text, _OF_OURS, milliseconds) for text in column.to_pylist()]
            column = pa.chunked_array([pa.array(texts, named.type)])
        is_changed = is_changed or not column.equals(rows[named.name])
        columns.append(column)
    if is_changed:
        write_deltalake(
            table,
            pa.table(columns, schema=rows.schema),
            mode="overwrite",
            commit_properties=CommitProperties(max_commit_retries=0),
        )


def _age_log(log: Path, milliseconds: int) -> None:
    for file in log.iterdir():
        if _LOG_FILE.fullmatch(file.name):
            _rewrite(file, _OF_A_COMMIT, milliseconds)
        elif file.name.endswith(".checkpoint.parquet") and not file.name.startswith("."):
            _replace(file, partial(_age_checkpoint, file, milliseconds))


def _age_checkpoint(file: Path, milliseconds: int, to: Path) -> None:
    actions = pq.ParquetFile(file).read()
    for kind, name in _OF_A_CHECKPOINT:
        at = actions.schema.get_field_index(kind)
        if at < 0 or actions.schema.field(at).type.get_field_index(name) < 0:
            continue
        whole = actions.column(at).combine_chunks()
        children = [whole.field(child) for child in range(whole.type.num_fields)]
        number = whole.type.get_field_index(name)
        children[number] = pc.subtract(children[number], milliseconds)
        moved = pa.StructArray.from_arrays(children, fields=list(whole.type), mask=whole.is_null())
        actions = actions.set_column(at, actions.schema.field(at), moved)
    pq.write_table(actions, to)


def _rewrite(file: Path, times: re.Pattern[str], milliseconds: int) -> None:
    text = file.read_text(encoding="utf-8")
    moved = _shifted(text, times, milliseconds)
    if moved != text:
        _replace(file, lambda unfinished: unfinished.write_text(moved, encoding="utf-8"))


def _replace(file: Path, write: Callable[[Path], object]) -> None:
    """Replaces a file and keeps its modification time. Removes Hadoop's checksum file beside the file, because this
    checksum is that of the old file."""
    stat = file.stat()
    unfinished = file.with_name(f".{file.name}.unfinished")
    write(unfinished)
    os.utime(unfinished, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    unfinished.replace(file)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _shifted(text: str, times: re.Pattern[str], milliseconds: int) -> str:
    return times.sub(lambda found: f'"{found[1]}":{int(found[2]) - milliseconds}', text)
