"""Decodes a source's batches with Arrow instead of Spark, if Arrow can decode the source's records.

A large batch of JSON needs most of its CPU time for decoding, and most of the remaining time for writing. For such a
batch, Spark still reads the records and runs the tasks. Arrow decodes the records and writes the rows within these
tasks, in Spark's Python processes. A small batch is decoded in this process, because Spark would spend most of the time
on planning.

:mod:`rw_sql.runtime.decoding.json_blocks` decides for each record whether Arrow can decode it. In a large batch, Spark
decodes the records that Arrow cannot decode. If Arrow cannot decode a record of a small batch, Spark decodes the whole
batch. The rows therefore equal those that Spark alone would decode.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakSet

import pyarrow as pa
from deltalake import Schema
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StructField, StructType

from rw_sql.connectors.registry import included_offset
from rw_sql.model.definitions import (
    connector_of,
    encode_options,
    has_changes,
    has_index,
    has_schema,
    has_wide_offsets,
    include_name,
)
from rw_sql.runtime.decoding.block_files import VALUE, BlockFiles
from rw_sql.runtime.decoding.decoder import (
    BATCH,
    BUCKET,
    ERROR,
    OFFSET,
    RAW,
    RUN,
    SINCE,
    SPLIT,
    encode_of,
    included,
    json_rules,
    log_schema,
)
from rw_sql.runtime.decoding.json_blocks import BlockReader
from rw_sql.runtime.decoding.json_text import END
from rw_sql.runtime.delta.job_output import SMALL_ROWS
from rw_sql.runtime.delta.row_counts import MiscountError, RowCount
from rw_sql.runtime.delta.staged_files import Reported, save_frame
from rw_sql.runtime.support.failures import cause_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame

    from rw_sql.runtime.delta.row_counts import Expected
    from rw_sql.runtime.delta.staged_files import SparkSave
    from rw_sql.runtime.support.warehouse import Warehouse
    from rw_sql.syntax.statements import CreateSource, DataType

logger = logging.getLogger(__name__)

LARGE_ROWS, _FEW_COLUMNS = 100_000, 6
"""A batch of more than ``LARGE_ROWS`` records is large. If a record has at least twice ``_FEW_COLUMNS`` values, a
smaller batch may also be large; see :func:`is_large`. Arrow decodes only large batches in Spark's Python processes. For
other batches, starting these processes would take longer than Arrow saves."""

_REST_BATCHES = 20
"""If Arrow could decode less than half of the records of a large batch, Spark decodes about this number of the
following large batches without trying Arrow. If Arrow could not decode a record of a small batch, Spark decodes this
number of the following small batches."""

_TYPES = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "SMALLINT": pa.int16(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "CHARACTER VARYING": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
}
"""Maps each SQL type that Arrow can read from JSON to Arrow's type. For these types, Arrow follows the rules in
``docs/reference/formats.md``."""

_TYPES_IN_PARTS = {name: kind for name, kind in _TYPES.items() if not pa.types.is_temporal(kind)}
"""The part of ``_TYPES`` that Arrow can also read inside structures and arrays."""

_INCLUDED = {"key": "key", "partition": "partition", "topic": "partition", "timestamp": "timestamp"}
"""Maps each word of the INCLUDE clause, except ``offset`` and ``file``, to the column of the fetched records that
contains the word's value."""

_INCLUDED_IN_SMALL = {**_INCLUDED, "offset": OFFSET, "file": SPLIT}
_INCLUDES = {*_INCLUDED_IN_SMALL}
_SUFFIX = f',"{END}":true}}\n'
_CODECS = {"snappy", "gzip", "zstd", "none", "lz4", "brotli"}
_NO_PYTHON = re.compile(
    r"ModuleNotFoundError|ImportError|AttributeError|Cannot run program|PACKAGE_NOT_INSTALLED"
    r"|UNSUPPORTED_PACKAGE_VERSION|PYTHON_VERSION_MISMATCH|Error from python worker|Python worker (?:failed|exited)"
)

_without: WeakSet[SparkContext] = WeakSet()
"""The Spark contexts whose Python processes cannot run Arrow."""


@dataclass(slots=True)
class ArrowBatches:
    """Decodes the batches of one source with Arrow. For large batches, Arrow also writes the rows to Parquet files.

    ``is_shared`` is true if Spark's Python processes can write to the warehouse. These processes cannot write to a
    warehouse in an object store. In an object store, Spark therefore decodes all large batches.
    """

    statement: CreateSource
    reader: BlockReader
    run: int
    is_shared: bool = True
    _rest: int = field(default=0, init=False)
    _small_rest: int = field(default=0, init=False)

    @staticmethod
    def of(warehouse: Warehouse, statement: CreateSource, run: int) -> ArrowBatches | None:
        """The decoder for a source; None if Spark must decode all batches because of the source's definition, such as
        its format or a column's type."""
        connector = connector_of(statement) or ""
        if encode_of(statement) != "JSON" or included_offset(connector):
            return None
        if has_schema(statement) or has_changes(statement) or has_index(statement) or has_wide_offsets(statement):
            return None
        if any(column.kind not in _INCLUDES for column in statement.include):
            return None
        names = [column.name for column in statement.columns]
        kinds = [_arrow_type(column.data_type, _TYPES) for column in statement.columns]
        if not kinds or None in kinds or len({name.lower() for name in names}) < len(names):
            return None
        every = {*names, *(name for kind in kinds if kind is not None for name in _field_names(kind))}
        if len({name.lower() for name in every}) < len(every) or not all(map(_is_plain, every)):
            return None
        if json_rules(encode_options(statement)).timestamptz == "utc_without_suffix":
            return None  # In this mode, a string with a time zone is an error, but Arrow would accept it.
        schema = pa.schema(list(zip(names, kinds, strict=True)))
        return ArrowBatches(statement, BlockReader(schema, END, _SUFFIX), run, is_shared=warehouse.is_local)

    def rows(
        self, records: pa.Table, schema: pa.Schema, *, batch: int, bucket: int, since: Mapping[str, int]
    ) -> pa.Table | None:
        """The log's rows, with the columns of ``schema``, for a small batch that this process has fetched.

        Returns None if Spark must decode the batch, because Arrow cannot decode all of its records, or because Arrow
        has failed on one of the last ``_REST_BATCHES`` small batches.
        """
        if self._small_rest:
            self._small_rest -= 1
            return None
        try:
            decoded, known = self.reader.read(_texts(records))
            if known.all():
                return self._with_log_columns(decoded, records, schema, batch=batch, bucket=bucket, since=since)
        except pa.ArrowInvalid:
            pass  # An INCLUDE column has a value that Arrow does not convert, for example a key that is not UTF-8.
        self._small_rest = _REST_BATCHES
        return None

    def _with_log_columns(
        self,
        decoded: pa.Table,
        records: pa.Table,
        schema: pa.Schema,
        *,
        batch: int,
        bucket: int,
        since: Mapping[str, int],
    ) -> pa.Table:
        connector = connector_of(self.statement) or ""
        from_records = {SPLIT: SPLIT, OFFSET: OFFSET} | {
            include_name(connector, column): _INCLUDED_IN_SMALL[column.kind] for column in self.statement.include
        }
        constants = {RUN: self.run, BATCH: batch, BUCKET: bucket}
        columns = []
        for wanted in schema:
            if wanted.name in decoded.column_names:
                values = decoded.column(wanted.name)
            elif wanted.name in from_records:
                values = records.column(from_records[wanted.name])
            elif wanted.name == SINCE:
                values = pa.array([since.get(split) for split in records.column(SPLIT).to_pylist()], pa.int64())
            elif wanted.name in constants:
                values = pa.repeat(pa.scalar(constants[wanted.name], wanted.type), records.num_rows)
            else:
                values = pa.nulls(records.num_rows, wanted.type)
            columns.append(values.cast(wanted.type))
        return pa.table(columns, schema=schema)

    def takes(self, frame: DataFrame, expected: int) -> bool:
        """True if Arrow should decode a batch of about ``expected`` records in Spark's Python processes. Must be called
        only once per batch, because each call for a large batch counts towards ``_REST_BATCHES``."""
        if not self.is_shared or not is_large(expected, self.reader.schema):
            return False
        if frame.sparkSession.sparkContext in _without:
            return False
        self._rest -= self._rest > 0
        return not self._rest

    def save(
        self,
        warehouse: Warehouse,
        folder: str,
        by_spark: SparkSave,
        *,
        schema: pa.Schema,
        records: DataFrame,
        rows_of: Callable[[DataFrame], DataFrame],
        batch: int,
        since: Mapping[str, int],
        renamed: Mapping[str, str] | None = None,
    ) -> Reported | None:
        """Decodes ``records`` and saves the rows as Parquet files in the new folder ``folder``. ``schema`` contains the
        table's columns. If a column has different names in the table and in the log, ``renamed`` maps its name in the
        table to its name in the log.

        For records that Arrow does not decode, ``rows_of`` makes the table's rows with Spark, and ``by_spark`` saves
        these rows. If Spark's Python processes cannot run Arrow, returns None and leaves no files. Raises MiscountError
        if the driver does not find a file that a task reports, or if the number of records that Spark reads differs
        from the number that Arrow has left undecoded.
        """
        spark, parts = records.sparkSession, f"{folder}.parts"
        warehouse.remove(parts)
        warehouse.make_folders(folder, parts)
        connector = connector_of(self.statement) or ""
        stored = pa.schema([column for column in schema if column.name != BUCKET])
        kept = tuple(sorted({SPLIT, OFFSET, *self._included_columns()}))
        files = BlockFiles(
            folder=parts.removeprefix("file://"),
            reader=self.reader,
            schema=stored,
            kept=kept,
            computed=tuple(include_name(connector, column) for column in self.statement.include),
            constants={RUN: self.run, BATCH: batch, ERROR: None, RAW: None},
            split=SPLIT,
            by_split=(SINCE, since),
            compression=_codec(str(spark.conf.get("spark.sql.parquet.compression.codec", "snappy"))),
            renamed=renamed or {},
        )
        try:
            columns = [*map(f.col, kept), *included(self.statement)]
            named = (column.alias(f"_rw_{at}") for at, column in enumerate(columns))
            written = files.write(records.select(_text(f.col(VALUE)), *named))
        except (PySparkException, Py4JError) as error:
            if not _NO_PYTHON.search(str(error)):
                raise
            _without.add(spark.sparkContext)
            logger.warning("Spark's Python processes cannot run Arrow, so Spark decodes: %s", cause_line(str(error)))
            warehouse.remove(parts)
            warehouse.remove(folder)
            return None
        names = [name for each in written for name in (*each.rows, *each.others)]
        there = set(warehouse.list_names(parts))
        if not there.issuperset(names):
            raise MiscountError(
                f"Spark's tasks report {len(names)} files, of which the driver does not find "
                f"{len(set(names) - there)} in {parts}: every executor must see this folder as the driver does"
            )
        for name in (name for each in written for name in each.rows):
            warehouse.files.mv(f"{parts}/{name}", f"{folder}/{name}")
        made = Reported(
            rows=sum(each.row_count for each in written),
            files=sum(len(each.rows) for each in written),
            read=sum(each.row_count + each.other_count for each in written),
        )
        others = [f"{parts}/{name}" for each in written for name in each.others]
        if others:
            left = sum(each.other_count for each in written)
            self._rest = _REST_BATCHES if made.rows < left else 0
            rest = _saved_beside(warehouse, folder, rows_of(_read_again(records, kept, others)), by_spark)
            if rest.read not in (None, left):
                raise MiscountError(f"Arrow left {left} records to Spark, which has read {rest.read}")
            made = Reported(rows=made.rows + rest.rows, files=made.files + rest.files, read=made.read)
        warehouse.remove(parts)
        return made

    def decoded(
        self,
        warehouse: Warehouse,
        folder: str,
        *,
        records: DataFrame,
        rows_of: Callable[[DataFrame], DataFrame],
        expected: Expected,
    ) -> DataFrame | None:
        """Decodes ``records`` into Parquet files in ``folder``, and returns a DataFrame that reads the log's rows from
        these files. The earlier content of ``folder`` is deleted. Returns None if Spark's Python processes cannot run
        Arrow.

        Raises MiscountError if the number of rows differs from ``expected``.
        """
        warehouse.remove(folder)
        kinds = log_schema(self.statement)
        schema = pa.schema(Schema.from_json(kinds.json()).to_arrow())
        made = self.save(
            warehouse, folder, save_frame, schema=schema, records=records, rows_of=rows_of, batch=0, since={}
        )
        if made is None:
            return None
        expected.require(RowCount(written=made.rows, read=made.read))
        stored = StructType([column for column in kinds.fields if column.name != BUCKET])
        bucket = f.lit(None).cast("int").alias(BUCKET)
        return records.sparkSession.read.schema(stored).parquet(folder).withColumn(BUCKET, bucket).select(*kinds.names)

    def _included_columns(self) -> set[str]:
        return {_INCLUDED[column.kind] for column in self.statement.include if column.kind in _INCLUDED}


def is_large(records: int, schema: pa.Schema) -> bool:
    """True if a batch has so many records that decoding them in Spark's Python processes saves more time than starting
    these processes costs. ``schema`` contains the columns of the batch."""
    values = sum(map(_values_in, schema.types))
    return records > SMALL_ROWS and records * max(1, values // _FEW_COLUMNS) > LARGE_ROWS


def _arrow_type(kind: DataType, scalars: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """Returns Arrow's type for a column of the SQL type ``kind``; None if Arrow cannot read such a column. ``scalars``
    maps the names of the readable simple types to Arrow's types. A simple type has neither fields nor elements."""
    if kind.element is not None:
        element = _arrow_type(kind.element, _TYPES_IN_PARTS)
        return None if element is None else pa.list_(element)
    if kind.fields:
        fields = {field.name: _arrow_type(field.data_type, _TYPES_IN_PARTS) for field in kind.fields}
        is_read = None not in fields.values() and len(fields) == len(kind.fields)
        return pa.struct(fields) if is_read else None
    return None if kind.value is not None else scalars.get(kind.name)


def _values_in(kind: pa.DataType) -> int:
    """The number of simple values in one value of the type ``kind``. Each array counts as if it had one element."""
    if pa.types.is_list(kind):
        return _values_in(kind.value_type)
    return sum(_values_in(field.type) for field in kind) if pa.types.is_struct(kind) else 1


def _field_names(kind: pa.DataType) -> Iterator[str]:
    """The names of the fields of all structures in the type ``kind``."""
    if pa.types.is_list(kind):
        yield from _field_names(kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield field.name
            yield from _field_names(field.type)


def _is_plain(name: str) -> bool:
    return re.fullmatch("[A-Za-z0-9_]+", name) is not None


def _codec(name: str) -> str:
    return name.lower() if name.lower() in _CODECS else "snappy"


def _text(raw: Column) -> Column:
    """If a record ends with a closing brace, inserts the member ``END`` before this brace. Any other record remains
    unchanged."""
    cut = f.concat(f.substring(raw, f.lit(1), f.octet_length(raw) - 1), f.lit(_SUFFIX.encode()))
    return f.when(f.endswith(raw, f.lit(b"}")), cut).otherwise(raw).alias("_rw_text")


def _texts(records: pa.Table) -> pa.Array:
    """Does the same as :func:`_text`, but for records that this process has in memory."""
    suffix = _SUFFIX.encode()
    return pa.array(
        (
            value[:-1] + suffix if value is not None and value.endswith(b"}") else value
            for value in records.column(VALUE).to_pylist()
        ),
        pa.binary(),
    )


def _read_again(records: DataFrame, kept: tuple[str, ...], files: list[str]) -> DataFrame:
    """Reads the undecoded records, which the tasks have written to ``files``. The result has the columns of
    ``records``. Columns other than the record's value and those in ``kept`` are NULL; no code reads them."""
    known = {column.name: column for column in records.schema.fields}
    schema = StructType([StructField(VALUE, BinaryType()), *(known[name] for name in kept)])
    frame = records.sparkSession.read.schema(schema).parquet(*files)
    return frame.select(
        *(
            f.col(name) if name in schema.names else f.lit(None).cast(column.dataType).alias(name)
            for name, column in known.items()
        )
    )


def _saved_beside(warehouse: Warehouse, folder: str, rows: DataFrame, by_spark: SparkSave) -> Reported:
    """Saves rows with Spark in a temporary folder, and then moves the files into ``folder``, which already has
    files."""
    beside = f"{folder}.others"
    warehouse.remove(beside)
    reported = by_spark(rows, beside)
    for name in warehouse.list_names(beside):
        warehouse.files.mv(f"{beside}/{name}", f"{folder}/{name}")
    warehouse.remove(beside)
    return reported
