"""Decodes the records of a large batch with Arrow, and writes the rows to Parquet files. Both steps run in Python
inside Spark's tasks.

Spark reads the records and passes them to Python. Each task writes files of its own, as Spark's writer does. The rows
do not return to Spark. A task writes the records that :mod:`rw_sql.runtime.decoding.json_blocks` cannot decode to files
of their own. Later, Spark reads these files and decodes the records.
"""

from __future__ import annotations

import os
import sys
import uuid
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rw_sql.runtime.decoding import json_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame

    from rw_sql.runtime.decoding.json_blocks import BlockReader

VALUE = "value"

_HIDDEN = ("_rw_split", "_rw_offset")
"""The hidden columns of the rows whose values are copied from the columns of the records with the same names."""

_GROUP_BYTES = 32 * 1024 * 1024
"""When the rows in memory have at least this number of bytes, they are written to the file as one row group."""

_FILE_ROWS = 250_000
"""The maximum number of rows in a file. The same limit applies to the files that Spark writes
(``spark.sql.files.maxRecordsPerFile`` in :mod:`rw_sql.runtime.spark.job_settings`)."""

_PART_BYTES = 8 * 1024 * 1024
"""The approximate number of bytes of text in a part of a batch. Each part is decoded separately."""

_RESULT = "rows ARRAY<STRING>, row_count BIGINT, others ARRAY<STRING>, other_count BIGINT"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFiles:
    """The files that a task has written. ``rows`` are the names of the files with rows, and ``row_count`` is the number
    of these rows. ``others`` are the names of the files with undecoded records, and ``other_count`` is the number of
    these records."""

    rows: tuple[str, ...]
    row_count: int
    others: tuple[str, ...]
    other_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFiles:
    """Writes the records that a task receives. A record that Arrow decodes is written as a row. Any other record is
    written unchanged.

    The first column of a batch contains the text of each record (see ``BlockReader``). Next are the columns of the
    records that ``kept`` names. The last columns of the batch are those that ``computed`` names, whose values Spark has
    computed. The columns of a batch are identified by their order, not by their names. ``schema`` contains the columns
    of the files with rows. ``constants`` maps columns to values that are the same in all rows. ``by_split`` names a
    column and maps each split to the column's value. ``split`` is the column in ``kept`` that contains the split. A
    column of ``schema`` is NULL if neither the reader, ``kept``, ``computed``, ``constants`` nor ``by_split`` provides
    it. ``renamed`` maps a name in the files to the name of the same column in the other attributes, if the two names
    differ.
    """

    folder: str
    reader: BlockReader
    schema: pa.Schema
    kept: tuple[str, ...]
    computed: tuple[str, ...]
    constants: Mapping[str, object]
    split: str
    by_split: tuple[str, Mapping[str, int]]
    compression: str
    renamed: Mapping[str, str] = field(default_factory=dict)

    def write(self, records: DataFrame) -> list[TaskFiles]:
        """Writes the records of a frame to files. Each task writes its rows and its undecoded records to separate
        files."""
        from pyspark import cloudpickle

        by_value: Any = cloudpickle.register_pickle_by_value
        for module in (json_blocks, sys.modules[__name__]):
            by_value(module)
        files = self

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield _written(files, batches)

        return [
            TaskFiles(rows=tuple(row[0]), row_count=row[1], others=tuple(row[2]), other_count=row[3])
            for row in records.mapInArrow(write, _RESULT).collect()
        ]


def _written(files: BlockFiles, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    os.makedirs(files.folder, exist_ok=True)
    rows, others = _Files(files), _Files(files)
    is_worth_it = True
    for batch in chain.from_iterable(map(_parts, batches)):
        texts = batch.column(0)
        known = np.zeros(len(texts), dtype=bool)
        if is_worth_it:
            decoded, known = files.reader.read(texts)
            # If Arrow decodes less than half of a part, the task decodes no further parts: Spark has to read most of
            # their records again anyway.
            is_worth_it = 2 * known.sum() >= len(known)
            rows.add(_rows(files, decoded, batch if known.all() else batch.filter(pa.array(known))))
        if not known.all():
            others.add(_others(files, batch.filter(pa.array(~known))))
    made = [rows.close(), rows.count, others.close(), others.count]
    kinds = [pa.list_(pa.string()), pa.int64(), pa.list_(pa.string()), pa.int64()]
    names = ["rows", "row_count", "others", "other_count"]
    return pa.RecordBatch.from_arrays([pa.array([value], kind) for value, kind in zip(made, kinds, strict=True)], names)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    size = max(1, batch.num_rows * _PART_BYTES // max(_PART_BYTES, batch.column(0).nbytes))
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)


def _rows(files: BlockFiles, decoded: pa.Table, batch: pa.RecordBatch) -> pa.Table:
    count, columns = batch.num_rows, []
    column, epochs = files.by_split
    # Only hidden columns are taken over by name, because any other column of the rows may have the same name as an
    # unrelated column of the records.
    given = (*(name if name in _HIDDEN else "" for name in files.kept), *files.computed)
    for wanted in files.schema:
        name = files.renamed.get(wanted.name, wanted.name)
        if name in files.reader.schema.names:
            values: Any = decoded.column(name)
        elif name in files.constants:
            values = pa.repeat(pa.scalar(files.constants[name], wanted.type), count)
        elif name == column:
            splits = batch.column(1 + files.kept.index(files.split))
            named = pa.array(list(epochs), splits.type)
            values = pa.array(epochs.values(), pa.int64()).take(pc.index_in(splits, named))
        elif name in given:
            values = batch.column(1 + given.index(name))
        else:
            values = pa.nulls(count, wanted.type)
        columns.append(values if values.type == wanted.type else values.cast(wanted.type))
    return pa.table(columns, schema=files.schema)


def _others(files: BlockFiles, batch: pa.RecordBatch) -> pa.Table:
    suffix = files.reader.suffix.encode()
    texts = [
        text[: -len(suffix)] + b"}" if text is not None and text.endswith(suffix) else text
        for text in batch.column(0).to_pylist()
    ]
    kept = batch.columns[1 : 1 + len(files.kept)]
    return pa.table([pa.array(texts, pa.binary()), *kept], names=[VALUE, *files.kept])


@dataclass(slots=True)
class _Files:
    """The files of one task with rows, or the files of one task with undecoded records. A file is created when its
    first row group is written."""

    files: BlockFiles
    names: list[str] = field(default_factory=list)
    count: int = 0
    _waiting: list[pa.Table] = field(default_factory=list)
    _bytes: int = 0
    _room: int = 0
    """The number of rows that can still be added to the current file."""
    _writer: Any = None

    def add(self, rows: pa.Table) -> None:
        while rows.num_rows:
            if not self._room:
                self._end_file()
                self._room = _FILE_ROWS
            part, rows = rows.slice(0, self._room), rows.slice(self._room)
            self.count += part.num_rows
            self._room -= part.num_rows
            self._waiting.append(part)
            self._bytes += part.nbytes
            if self._bytes >= _GROUP_BYTES:
                self._flush()

    def close(self) -> list[str]:
        """Completes the last file, and returns the names of all files."""
        self._end_file()
        return self.names

    def _end_file(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _flush(self) -> None:
        if not self._waiting:
            return
        group = pa.concat_tables(self._waiting)
        self._waiting, self._bytes = [], 0
        if self._writer is None:
            self.names.append(f"part-{uuid.uuid4().hex}.parquet")
            path = f"{self.files.folder}/{self.names[-1]}"
            self._writer = pq.ParquetWriter(path, group.schema, compression=self.files.compression, store_schema=False)
        self._writer.write_table(group, row_group_size=group.num_rows)
