"""Decodes upstream records to rows of a source's log, by FORMAT and ENCODE.

A record that cannot be decoded becomes a row with an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from rw_sql.connectors.formats import TIMESTAMP_MODE, TIMESTAMPTZ_MODE, encode_value
from rw_sql.connectors.registry import included_offset
from rw_sql.connectors.support.csv_separator import separator_of
from rw_sql.connectors.support.wide_offsets import offset_text, plain_offset
from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.model.definitions import (
    INDEX_COLUMN,
    connector_of,
    encode_options,
    has_changes,
    has_index,
    has_schema,
    has_unchanged,
    has_wide_offsets,
    include_name,
    include_type,
    key_encode,
    log_columns,
    source_watermark,
)
from rw_sql.runtime.decoding.change_formats.rows import OP, ROW, UNCHANGED, change_rows
from rw_sql.runtime.decoding.change_formats.values import ValueRules
from rw_sql.runtime.decoding.plain_values import read_csv, read_json
from rw_sql.runtime.decoding.registry.events import FAULT
from rw_sql.runtime.decoding.registry.records import schema_records
from rw_sql.runtime.support.deferred_columns import DeferredColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from rw_sql.syntax.statements import CreateSource, IncludeColumn

SPLIT = "_rw_split"
OFFSET = "_rw_offset"
RUN = "_rw_run"
BATCH = "_rw_batch"
SINCE = "_rw_since"
ERROR = "_rw_error"
RAW = "_rw_raw"
BUCKET = "_rw_bucket"
_NAME_OR_TIMESTAMP = re.compile(r"(`[^`]*`)|\bTIMESTAMP\b")
_FRAMED = "_rw_framed"
_FRAMED_KEY = "_rw_framed_key"


def log_schema(statement: CreateSource) -> StructType:
    """The schema of a source's log."""
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in log_columns(statement))
    schema = StructType.fromDDL(_exact(ddl))
    if not isinstance(schema, StructType):
        raise TypeError("the columns are not a struct")
    return schema


def _exact(ddl: str) -> str:
    """Replaces TIMESTAMP in a text of Spark's DDL by TIMESTAMP_LTZ. If ``spark.sql.timestampType`` is TIMESTAMP_NTZ,
    TIMESTAMP would be a time without a zone."""
    return _NAME_OR_TIMESTAMP.sub(lambda found: found[1] or "TIMESTAMP_LTZ", ddl)


def log_statistics(statement: CreateSource) -> tuple[str, ...]:
    """The columns of a log that always have statistics in the log's files, even if the log has very many columns.

    rw_sql uses these statistics, for example, to count decode errors and to order files by the watermark's column.
    """
    watermark = source_watermark(statement)
    # The setting is a list of unquoted names, in which a dot would separate the parts of a path.
    is_plain = watermark is not None and re.fullmatch(r"\w+", watermark[0]) is not None
    return (SPLIT, OFFSET, RUN, SINCE, ERROR, *(watermark[:1] if watermark is not None and is_plain else ()))


@dataclass(frozen=True, slots=True)
class _Written:
    """The expressions for the columns of a log that do not depend on the run, for records with certain columns. In the
    log, the columns ``first`` come first. Then follow RUN, BATCH, SINCE, the first two of the columns ``last``, BUCKET,
    and the rest of ``last``."""

    recipe: DeferredColumns
    first: tuple[Column, ...]
    last: tuple[Column, ...]


_MOST_WRITTEN = 256
# The expressions are cached for each definition until the JVM ends, so that the next run after a move need not build
# them again.
_written: WeakKeyDictionary[SparkContext, dict[tuple[CreateSource, int, tuple[str, ...]], _Written]] = (
    WeakKeyDictionary()
)


@dataclass(slots=True)
class Decoder:
    """Converts the upstream records of one source to rows of its log. All batches of a run share one decoder.

    ``added`` is the number of columns that were added at the end of the source's columns. In formats without field
    names, such as CSV, a record that is older than an added column has no field for this column.
    """

    statement: CreateSource
    run: int
    added: int = 0
    _is_to_do: _Written | None = field(default=None, init=False)
    _of_run: Column | None = field(default=None, init=False)
    _of_bucket: tuple[int, Column] | None = field(default=None, init=False)
    _of_splits: tuple[Mapping[str, int], Column] | None = field(default=None, init=False)

    def rows(self, records: DataFrame, *, batch: int, bucket: int, since: Mapping[str, int] | None = None) -> DataFrame:
        """Returns the rows of the log for ``records``, which have the columns of :meth:`Connector.read_stream`.

        ``since`` maps each split to the epoch of the statement that last set its position. If ``since`` is None, the
        column SINCE is NULL.
        """
        if self._is_to_do is None:
            self._is_to_do = self._known(records)
        if self._of_run is None:
            self._of_run = self._by_reference(self.run).alias(RUN)
        if self._of_bucket is None or self._of_bucket[0] != bucket:
            self._of_bucket = (bucket, f.lit(bucket).cast("int").alias(BUCKET))
        since = since or {}
        if self._of_splits is None or self._of_splits[0] != since:
            self._of_splits = (since, _since(since, self._by_reference).alias(SINCE))
        recipe, first, last = self._is_to_do.recipe, self._is_to_do.first, self._is_to_do.last
        return recipe.of(records).select(
            *first,
            self._of_run,
            self._by_reference(batch).alias(BATCH),
            self._of_splits[1],
            *last[:2],
            self._of_bucket[1],
            *last[2:],
        )

    def _by_reference(self, value: int) -> Column:
        """Returns an expression for a constant. The constant is not part of the code that Spark generates, but is
        passed to this code. If it were a literal, Spark would have to compile the code again for each new value."""
        zero = f"length({OFFSET}) % 1" if has_wide_offsets(self.statement) else f"CAST({OFFSET} AS BIGINT) % 1"
        return f.expr(f"get(array(CAST({value} AS BIGINT)), CAST({zero} AS INT))")

    def _known(self, records: DataFrame) -> _Written:
        known = _written.setdefault(records.sparkSession.sparkContext, {})
        key = (self.statement, self.added, tuple(records.columns))
        written = known.get(key)
        if written is None:
            if len(known) >= _MOST_WRITTEN:
                known.clear()
            written = known[key] = self._write(DeferredColumns(key[2]))
        return written

    def _write(self, records: DeferredColumns) -> _Written:
        statement = self.statement
        has_op, is_wide = has_changes(statement), has_wide_offsets(statement)
        if encode_of(statement) == "JSON" and has_schema(statement):
            framed = f.col("value")
            records = records.withColumn(_FRAMED, framed).withColumn("value", _without_frame(framed))
            if has_op and key_encode(statement) == "JSON" and not any(each.kind == "key" for each in statement.include):
                records = records.withColumn(_FRAMED_KEY, f.col("key"))
                records = records.withColumn("key", _without_frame(f.col("key")))
        if ROW in records.columns:  # The connector's reader returns rows, not bytes.
            recipe, error = records, f.col(FAULT)
        elif has_op:
            recipe, error = change_rows(records, statement)
        else:
            recipe, error = _decode_rows(records, statement, self.added)
        values = [f.col(ROW).getField(column.name) for column in statement.columns]
        of_headers = _header_error(statement)
        if of_headers is not None:
            values = [f.when(of_headers.isNull(), value) for value in values]
            error = f.coalesce(error, of_headers)
        first = (
            *(value.alias(column.name) for value, column in zip(values, statement.columns, strict=True)),
            *included(statement),
            f.col(SPLIT),
            f.col(OFFSET).cast("string" if is_wide else "long").alias(OFFSET),
        )
        whole = f.col(_FRAMED if _FRAMED in recipe.columns else "value")
        raw = f.coalesce(whole, _FRAMED_KEY if _FRAMED_KEY in recipe.columns else "key") if has_op else whole
        op = f.col(OP) if of_headers is None else f.when(error.isNull(), f.col(OP))
        hidden = [op.alias(OP)] if has_op else []
        if has_unchanged(statement):
            hidden.insert(0, f.when(error.isNull(), f.col(UNCHANGED)).alias(UNCHANGED))
        if has_index(statement):
            hidden.append(f.col(INDEX_COLUMN[0]))
        last = (error.alias(ERROR), f.when(error.isNotNull(), raw).alias(RAW), *hidden)
        return _Written(recipe, first, last)


def decode(
    records: DataFrame,
    statement: CreateSource,
    options: Mapping[str, str] | None = None,
    *,
    run: int,
    batch: int,
    bucket: int,
    added: int = 0,
) -> DataFrame:
    """Decodes a single batch of records to rows of the log. See :class:`Decoder` for the parameters. ``options`` are
    the source's options, with the values of secrets.

    If the schemas of the records are in a schema registry, Spark reads the records twice: first to collect the ids of
    the schemas, and then to decode the records.
    """
    schemas = schema_records(statement, options or {})
    if schemas is not None:
        records = schemas.rows(records, schemas.heads_of(records))
    return Decoder(statement, run, added).rows(records, batch=batch, bucket=bucket)


def _decode_rows(records: DeferredColumns, statement: CreateSource, added: int) -> tuple[DeferredColumns, Column]:
    """Decodes records that are rows and not changes. Returns the records with the column ``_rw_row``, and a column with
    the error of each record (NULL if the record has a row)."""
    match encode_of(statement):
        case "JSON" | "NATIVE":
            return read_json(records, statement.columns, json_rules(encode_options(statement)))
        case "CSV":
            return _decode_csv(records, statement, added)
        case "BYTES":
            only = statement.columns[0].name
            return records.withColumn(ROW, f.struct(f.col("value").alias(only))), f.lit(None).cast("string")
        case other:
            raise SqlError(
                NOT_SUPPORTED, f"ENCODE {other} is not supported yet", hint="use ENCODE JSON, CSV, BYTES or PARQUET"
            )


def encode_of(statement: CreateSource) -> str:
    """The encoding of a source's records, which is the word after ENCODE. Without FORMAT … ENCODE, the result is
    NATIVE."""
    return statement.format.encode if statement.format else "NATIVE"


def _without_frame(value: Column) -> Column:
    """Removes Confluent's frame from a value. The frame consists of the five bytes that a writer with a schema registry
    puts before the JSON.

    The frame begins with a zero byte, with which no JSON begins. A value without a frame is returned unchanged.
    """
    return f.when(f.substring(value, 1, 1) == f.lit(b"\0"), f.substring(value, 6, 2**31 - 1)).otherwise(value)


def _decode_csv(records: DeferredColumns, statement: CreateSource, added: int) -> tuple[DeferredColumns, Column]:
    given, count = encode_options(statement), len(statement.columns)
    # If there is a header, the reader has reordered the fields, even in older files.
    has_header = given.get("without_header", "false").lower() != "true"
    # For each added column: the number of columns before it.
    widths = [] if has_header else list(range(count - 1, count - added - 1, -1))
    return read_csv(records, statement.columns, separator_of(given), widths)


def _since(epochs: Mapping[str, int], by_reference: Callable[[int], Column]) -> Column:
    """Returns, for each row, the epoch of the statement that last set the position of the row's split. This epoch is
    usually the same for all splits."""
    by_epoch: dict[int, list[str]] = {}
    for split, epoch in epochs.items():
        by_epoch.setdefault(epoch, []).append(split)
    if not by_epoch:
        return f.lit(None).cast("long")
    (most, _), *others = sorted(by_epoch.items(), key=lambda item: -len(item[1]))
    found = by_reference(most)
    for epoch, splits in others:
        found = f.when(f.col(SPLIT).isin(splits), by_reference(epoch)).otherwise(found)
    return found


def json_rules(options: Mapping[str, str]) -> ValueRules:
    """Returns the value rules of ENCODE JSON with the options ``options``."""
    return ValueRules(
        timestamptz=encode_value("PLAIN", "JSON", options, TIMESTAMPTZ_MODE),
        timestamp=encode_value("PLAIN", "JSON", options, TIMESTAMP_MODE),
    )


def stored_offset(kind: DataType, offset: int) -> int | str:
    """Returns an offset in the form in which a log stores it. ``kind`` is the type of the column OFFSET in the log."""
    return offset_text(offset) if isinstance(kind, StringType) else offset


def offset_bound(frame: DataFrame, offset: int) -> Column:
    """Returns an offset as a column that can be compared with the column OFFSET of ``frame``."""
    return f.lit(stored_offset(frame.schema[OFFSET].dataType, offset))


def included(statement: CreateSource) -> tuple[Column, ...]:
    """The INCLUDE columns of a source, computed from the columns of its records."""
    connector = connector_of(statement) or ""
    shown = included_offset(connector)
    is_wide = has_wide_offsets(statement)
    offset = f.col(shown) if shown else f.expr(plain_offset(OFFSET)) if is_wide else f.col(OFFSET)
    return tuple(
        _included(column, offset).cast(_exact(include_type(column))).alias(include_name(connector, column))
        for column in statement.include
    )


def _included(column: IncludeColumn, offset: Column) -> Column:
    match column.kind:
        case "key":
            return f.col("key")
        case "partition" | "topic":
            return f.col("partition")
        case "offset":
            return offset
        case "timestamp":
            return f.col("timestamp")
        case "file":
            return f.col(SPLIT)
        case "subject" | "message_id_data":
            return f.col(column.kind)
        case "payload":
            return f.make_valid_utf8(f.col("value").cast("string"))
        case "header" if column.inner is None:
            return f.col("headers")
        case "header" if _is_header_text(column):
            text = _header(column.inner).cast("string")
            return f.when(f.is_valid_utf8(text), text)
        case "header":
            return _header(column.inner)
        case other:
            raise SqlError(NOT_SUPPORTED, f"INCLUDE {other} is not supported yet", hint=f"omit INCLUDE {other}")


def _is_header_text(column: IncludeColumn) -> bool:
    """True if an INCLUDE column contains the value of one header, as text."""
    kind = column.inner_type
    return column.kind == "header" and column.inner is not None and kind is not None and kind.name != "BYTEA"


def _header(name: str | None) -> Column:
    """Returns the bytes of a record's first header with the name ``name``; NULL if the record has no such header."""
    named = f.filter(f.col("headers"), lambda header: header["key"] == f.lit(name))
    return f.get(named, f.lit(0)).getField("value")


def _header_error(statement: CreateSource) -> Column | None:
    """Returns a column with an error for each record whose header is included as text but is not UTF-8. Returns None if
    the source includes no header as text.

    No table may contain a string that is not UTF-8, because the library delta-rs cannot read a file with such a string.
    """
    faults = [
        f.when(~f.is_valid_utf8(_header(column.inner).cast("string")), f.lit(f'header "{column.inner}" is not UTF-8'))
        for column in statement.include
        if _is_header_text(column)
    ]
    return f.coalesce(*faults) if faults else None
