"""Reads ranges of files as a Spark Python data source. The driver decides which files a batch reads.

Spark's workers receive this module by value, because rw_sql is not necessarily installed there. They also receive by
value those modules of ``files`` and ``support`` that :class:`FileReader` needs.
"""

from __future__ import annotations

import io
import json
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rw_sql.connectors.files import compression as file_compression
from rw_sql.connectors.files import rows as file_rows
from rw_sql.connectors.files import store as file_store
from rw_sql.connectors.files.store import FileStore
from rw_sql.connectors.support import arrow_schemas, incarnations
from rw_sql.connectors.support import fitting as value_fitting
from rw_sql.connectors.support.csv_separator import separator_of
from rw_sql.connectors.support.data_sources import register_source
from rw_sql.connectors.support.local_frames import local_frame, noted_as_large
from rw_sql.connectors.support.private_files import private_file
from rw_sql.connectors.support.records.record_columns import RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.files.store import FoundFile
    from rw_sql.connectors.ranged import Encoding

BYTES_PER_TASK = 16 * 1024 * 1024
_BYTES_PER_FILE = 32 * 1024
_AHEAD = 16
_FEW_BYTES = 512 * 1024
_FEW_FILES = 100
_MOST_HELD_BYTES = 32 * 1024 * 1024
"""The maximum size in bytes of records that the driver itself reads. The size of the files does not limit the size of
their records, because a small compressed file may contain any number of equal records."""
_RECORDS = f"{RECORDS}, _rw_index bigint"

Piece = tuple[str, int, int, "str | None"]
"""A file's path, start and end offset, and expected incarnation."""


class FileReader(DataSourceReader):
    """Reads pieces of files on the executors.

    The arguments of the store may contain access keys. Therefore, they are in a file that only the driver's user can
    read.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        config = json.loads(Path(options["config"]).read_text(encoding="utf-8"))
        self._store = FileStore(**config["store"])
        self._encode: str = config["encode"]
        self._columns: list[str] = config["columns"]
        self._delimiter: str = config["delimiter"]
        self._has_header: bool = config["has_header"]
        self._compression: str | None = config["compression"]
        self._is_strict: bool = config["is_strict"]
        self._pieces: list[Piece] = [
            (path, start, end, life) for path, start, end, life in json.loads(options["pieces"])
        ]
        self._tasks = max(1, int(options["tasks"]))
        self._schema = arrow_schemas.arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        # Spark requires at least one partition.
        parts = dealt(self._pieces, self._tasks, lambda path: not self._compression_of(path))
        return [InputPartition(part) for part in parts] or [InputPartition([])]

    def _compression_of(self, path: str) -> str | None:
        """The compression of a file of lines; None for no compression and for Parquet. A compressed file is always read
        from its beginning."""
        if self._encode == "PARQUET":
            return None
        found = file_compression.compression_of(path) if self._compression is None else self._compression
        return found or None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        filesystem = self._store.filesystem()
        for (path, start, end, life), found, file in self._opened(filesystem, partition.value):
            try:
                with file:
                    yield from self._records(filesystem, file, found, start, end)
            except ValueError as error:
                raise OSError(f"{path}: {error}") from error
            if self._store.is_local or found.size > file_rows.CHUNK:
                # If the file changed while it was read, the data may be a mixture of two versions.
                _require_same(path, self._store.find(path).incarnation, life or found.incarnation)

    def _opened(self, filesystem: Any, pieces: list[Piece]) -> Iterator[tuple[Piece, FoundFile, Any]]:
        if self._store.is_local:
            for piece in pieces:
                yield piece, *self._open(filesystem, piece)
            return
        # Small files are fetched in advance, because a store takes tens of milliseconds to respond.
        with ThreadPoolExecutor(_AHEAD) as pool:
            waiting: deque[tuple[Piece, Future[tuple[FoundFile, Any]]]] = deque()
            for piece in pieces:
                waiting.append((piece, pool.submit(self._open, filesystem, piece)))
                if len(waiting) == _AHEAD:
                    first, opening = waiting.popleft()
                    yield first, *opening.result()
            for first, opening in waiting:
                yield first, *opening.result()

    def _open(self, filesystem: Any, piece: Piece) -> tuple[FoundFile, Any]:
        path, _, _, life = piece
        full, size = self._store.full_path(path), file_store.incarnation_size(life)
        if self._store.is_local or size is None or size > file_rows.CHUNK:
            found = self._store.find(path)
            _require_same(path, found.incarnation, life)
            self._require_stored_bytes(found)
            if self._store.is_local or found.size > file_rows.CHUNK:
                return found, filesystem.open(full, "rb")
            life = found.incarnation
        size = file_store.incarnation_size(life)
        # One byte more than the known size is requested. If this byte exists, the file was replaced, and the rest of a
        # large file need not be read.
        try:
            data = filesystem.cat_file(full, start=0, end=size + 1) if size else filesystem.cat_file(full)
        except Exception:
            self._require_stored_bytes(self._store.find(path))
            raise
        # The version is requested after the data, because the file may have been replaced since its version was
        # determined.
        found = self._store.find(path)
        _require_same(path, found.incarnation, life)
        self._require_stored_bytes(found)
        if len(data) != found.size:
            raise OSError(
                f"RECREATED {path}: the file was replaced: it has {found.size} bytes, and {len(data)} were read"
            )
        return found, io.BytesIO(data)

    def _require_stored_bytes(self, found: FoundFile) -> None:
        """Raises OSError if the bytes that the store's client returns differ from the bytes that the store holds."""
        compression = self._compression_of(found.path)
        fault = file_store.fault_of_encoding(self._store, found, compression, is_lines=self._encode != "PARQUET")
        if fault is not None:
            raise OSError(fault)

    def _records(self, filesystem: Any, file: Any, found: FoundFile, start: int, end: int) -> Iterator[pa.RecordBatch]:
        last = (-1, 0)
        if self._encode == "PARQUET":
            row = self._schema.field("_rw_row").type
            for places, rows, faults in file_rows.parquet_rows(
                file, found.size, start, end, row, is_strict=self._is_strict
            ):
                indexes, last = file_rows.ranks(places, last)
                yield self._batch(found, places, indexes, pa.nulls(len(places), pa.binary()), rows, faults)
            return
        compression = self._compression_of(found.path)

        def opened() -> Any:
            file.seek(0)
            return file_compression.decompressed(file, compression) if compression else file

        order, width = self._order(opened)
        found_lines = (
            file_rows.compressed_lines(opened, found.size, start, end)
            if compression
            else file_rows.lines(file, start, end)
        )
        for at, (places, texts) in enumerate(found_lines):
            if self._has_header and at == 0 and len(places) and places[0] == 0 and start == 0:
                places, texts = places[1:], texts[1:]
            if order is not None:
                texts = file_rows.reordered(texts, order, width, self._delimiter)
            if texts:
                indexes, last = file_rows.ranks(places, last)
                yield self._batch(found, places, indexes, pa.array(texts, pa.binary()))

    def _order(self, opened: Any) -> tuple[list[int | None] | None, int]:
        """The result of :func:`column_order` for a file's header line, and the number of fields in the header. Returns
        None and 0 if the files have no header line."""
        if not self._has_header:
            return None, 0
        header = file_rows.header_of(opened())
        if b"\r" in header and file_rows.fields_of(header, self._delimiter.encode()) is None:
            raise ValueError("its first line contains a carriage return: lines end with \\n or \\r\\n")
        order = file_rows.column_order(header, self._columns, self._delimiter)
        if self._is_strict and order is not None and None in order:
            raise ValueError(f"it has no column {self._columns[order.index(None)]}")
        return order, file_rows.width_of(header, self._delimiter)

    def _batch(
        self,
        found: FoundFile,
        places: NDArray[np.int64],
        indexes: NDArray[np.int64],
        values: pa.Array,
        rows: pa.Array | None = None,
        faults: pa.Array | None = None,
    ) -> pa.RecordBatch:
        count = len(places)
        at = None if found.modified_ms is None else found.modified_ms * 1000
        made: dict[str, pa.Array] = {
            "_rw_split": pa.repeat(pa.scalar(found.path), count),
            "_rw_offset": pa.array(places),
            "_rw_index": pa.array(indexes),
            "value": values,
            "timestamp": pa.repeat(pa.scalar(at, pa.timestamp("us", tz="UTC")), count),
        }
        if rows is not None:
            made |= {"_rw_row": rows, "_rw_fault": faults}
        return pa.RecordBatch.from_arrays(
            [
                made[field.name].cast(field.type) if field.name in made else pa.nulls(count, field.type)
                for field in self._schema
            ],
            schema=self._schema,
        )


class FileDataSource(DataSource):
    """The data source of ``spark.read.format("rw_sql_files")``."""

    @classmethod
    def name(cls) -> str:
        return "rw_sql_files"

    def schema(self) -> str:
        return _schema(self.options["row"])

    def reader(self, schema: StructType) -> DataSourceReader:
        return FileReader(self.options, schema)


def _schema(row: str) -> str:
    return f"{_RECORDS}, _rw_row struct<{row}>, _rw_fault string" if row else _RECORDS


def _require_same(path: str, now: str, known: str | None) -> None:
    if known is not None and not incarnations.is_same_incarnation(now, known):
        raise OSError(f"RECREATED {path}: the file was replaced or changed: its version was {known} and is {now}")


def dealt(pieces: Sequence[Piece], tasks: int, is_cuttable: Callable[[str], bool]) -> list[list[Piece]]:
    """Groups the pieces, in their order, into at most ``tasks`` parts of about the same size.

    A long piece may be divided among several parts if ``is_cuttable`` returns True for its file. Opening a file takes
    time. Therefore, _BYTES_PER_FILE is added to the size of each piece. There is at most one part per BYTES_PER_TASK of
    the total size.
    """
    weights = [end - start + _BYTES_PER_FILE for _, start, end, _ in pieces]
    count = min(tasks, -(-sum(weights) // BYTES_PER_TASK)) or 1
    share = -(-sum(weights) // count)
    parts: list[list[Piece]] = [[]]
    room = share
    for (path, start, end, life), weight in zip(pieces, weights, strict=True):
        at = start
        while weight > room and end - at > room > BYTES_PER_TASK // 4 and is_cuttable(path):
            parts[-1].append((path, at, at + room, life))
            at, weight, room = at + room, weight - room, share
            parts.append([])
        if room < _BYTES_PER_FILE and len(parts) < count:
            parts.append([])
            room = share
        parts[-1].append((path, at, end, life))
        room -= weight
    return [part for part in parts if part]


def read_batch(
    spark: SparkSession,
    store: FileStore,
    pieces: Sequence[Piece],
    *,
    encoding: Encoding,
    columns: Sequence[str],
    compression: str | None,
    is_strict: bool = False,
) -> DataFrame:
    """Reads the records of pieces of files.

    ``compression`` is the name of a compression in :mod:`rw_sql.connectors.files.compression`. If it is empty, the
    files are not compressed. If it is None, the name of each file determines its compression. If ``is_strict`` is true,
    a column that is missing in a file's header or schema is an error.
    """
    given = encoding.options
    config: dict[str, Any] = {
        "store": asdict(store),
        "encode": encoding.encode,
        "columns": list(columns),
        "delimiter": separator_of(given),
        "has_header": encoding.encode == "CSV" and given.get("without_header", "false").lower() != "true",
        "compression": compression,
        "is_strict": is_strict,
    }
    options = {
        "config": str(private_file(json.dumps(config, sort_keys=True))),
        "pieces": json.dumps([list(piece) for piece in pieces], separators=(",", ":")),
        "row": encoding.row if encoding.encode == "PARQUET" else "",
        "tasks": str(spark.sparkContext.defaultParallelism),
    }
    if sum(end - start for _, start, end, _ in pieces) <= _FEW_BYTES and len(pieces) <= _FEW_FILES:
        # Spark would start two processes for the plan and a third for the rows. The start of these processes takes a
        # second. Reading the rows in this process takes a hundredth of this time.
        found = _read_here(spark, options, pieces)
        return found if found is not None else noted_as_large(_read_by_tasks(spark, options))
    return _read_by_tasks(spark, options)


def _read_by_tasks(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    _register(spark)
    return spark.read.format("rw_sql_files").options(**options).load()


def _read_here(spark: SparkSession, options: dict[str, str], pieces: Sequence[Piece]) -> DataFrame | None:
    """Reads the records in this process. Returns None if the records need more than _MOST_HELD_BYTES of memory."""
    wanted = StructType.fromDDL(_schema(options["row"]))
    if not isinstance(wanted, StructType):
        raise TypeError("a list of columns is a struct")
    reader = FileReader(options, wanted)
    batches: list[pa.RecordBatch] = []
    held = 0
    for batch in reader.read(InputPartition(list(pieces))):
        batches.append(batch)
        held += batch.nbytes
        if held > _MOST_HELD_BYTES:
            return None
    return local_frame(spark, pa.Table.from_batches(batches, schema=arrow_schemas.arrow_schema(wanted)))


def _register(spark: SparkSession) -> None:
    import sys

    from pyspark import cloudpickle

    by_value: Any = cloudpickle.register_pickle_by_value
    for module in (
        arrow_schemas,
        incarnations,
        file_compression,
        value_fitting,
        file_rows,
        file_store,
        sys.modules[__name__],
    ):
        by_value(module)
    register_source(spark, FileDataSource)
