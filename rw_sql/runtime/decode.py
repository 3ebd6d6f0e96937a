"""From upstream records to a source's columns: FORMAT and ENCODE. One that fails to decode becomes a row too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.plan.definitions import (
    HIDDEN_COLUMNS,
    connector_of,
    include_name,
    include_type,
    source_columns,
    source_watermark,
)
from rw_sql.syntax import spark_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from rw_sql.syntax.statements import CreateSource, IncludeColumn

SPLIT = "_rw_split"
OFFSET = "_rw_offset"
RUN = "_rw_run"
SINCE = "_rw_since"
ERROR = "_rw_error"
RAW = "_rw_raw"
BUCKET = "_rw_bucket"

_CORRUPT = "_rw_corrupt"


def log_schema(statement: CreateSource) -> StructType:
    """The schema of a source's log."""
    columns = (*source_columns(statement), *HIDDEN_COLUMNS)
    schema = StructType.fromDDL(", ".join(f"`{name}` {kind}" for name, kind in columns))
    if not isinstance(schema, StructType):
        raise TypeError("a list of columns is a struct")
    return schema


def log_statistics(statement: CreateSource) -> tuple[str, ...]:
    """The columns of a log of which its files keep statistics, however many columns a source has.

    Decode errors are counted by them, and files are put in the order of the watermark's column by them.
    """
    watermark = source_watermark(statement)
    return (SPLIT, OFFSET, RUN, SINCE, ERROR, *(() if watermark is None else watermark[:1]))


def decode(
    records: DataFrame, statement: CreateSource, *, run: int, bucket: int, since: Mapping[str, int] | None = None
) -> DataFrame:
    """The log's rows for upstream records (columns as :meth:`Connector.read_stream` gives them).

    ``since`` are the epochs of the statements that set the splits' positions; without it the column is NULL.
    """
    encode = statement.format.encode if statement.format else "JSON"
    connector = connector_of(statement) or ""
    match encode:
        case _ if "_rw_row" in records.columns:  # its reader gives rows, not bytes
            decoded, error = records, f.col("_rw_fault")
        case "JSON" | "NATIVE":
            decoded, error = _decode_text(records, statement, "json")
        case "CSV":
            decoded, error = _decode_text(records, statement, "csv")
        case "BYTES":
            only = statement.columns[0].name
            decoded, error = (
                records.withColumn("_rw_row", f.struct(f.col("value").alias(only))),
                f.lit(None).cast("string"),
            )
        case other:
            raise SqlError(
                NOT_SUPPORTED, f"ENCODE {other} is not supported yet", hint="JSON, CSV, BYTES and PARQUET are"
            )
    values = [f.col("_rw_row").getField(column.name).alias(column.name) for column in statement.columns]
    included = [
        _included(column).cast(include_type(column)).alias(include_name(connector, column))
        for column in statement.include
    ]
    return decoded.select(
        *values,
        *included,
        f.col(SPLIT),
        f.col(OFFSET).cast("long").alias(OFFSET),
        f.lit(run).cast("long").alias(RUN),
        _since(since or {}).cast("long").alias(SINCE),
        error.alias(ERROR),
        f.when(error.isNotNull(), f.col("value")).alias(RAW),
        f.lit(bucket).cast("int").alias(BUCKET),
    )


def _since(epochs: Mapping[str, int]) -> Column:
    """The epoch of each row's split: mostly all splits have the same."""
    by_epoch: dict[int, list[str]] = {}
    for split, epoch in epochs.items():
        by_epoch.setdefault(epoch, []).append(split)
    if not by_epoch:
        return f.lit(None)
    (most, _), *others = sorted(by_epoch.items(), key=lambda item: -len(item[1]))
    found = f.lit(most)
    for epoch, splits in others:
        found = f.when(f.col(SPLIT).isin(splits), f.lit(epoch)).otherwise(found)
    return found


def _decode_text(records: DataFrame, statement: CreateSource, how: str) -> tuple[DataFrame, Column]:
    columns = [f"`{column.name}` {spark_type(column.data_type)}" for column in statement.columns]
    schema = ", ".join([*columns, f"`{_CORRUPT}` STRING"])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **_decoder_options(statement, how)}
    read = f.from_json if how == "json" else f.from_csv
    text = f.col("value").cast("string")
    decoded = records.withColumn("_rw_row", read(text, schema, options))
    error = (
        f.when(f.col("value").isNull(), f.lit("the record has no value"))
        .when(f.col("_rw_row").isNull(), f.lit(f"the value is not {how.upper()}"))
        .when(
            f.col("_rw_row").getField(_CORRUPT).isNotNull(),
            f.lit(f"the value is not {how.upper()} of the declared columns"),
        )
    )
    return decoded, error


def _decoder_options(statement: CreateSource, how: str) -> dict[str, str]:
    given = {
        option.key: getattr(option.value, "text", "")
        for option in (statement.format.options if statement.format else ())
    }
    if how != "csv":
        return {}
    return {"sep": given.get("delimiter", ","), "header": "false"}


def _included(column: IncludeColumn) -> Column:
    match column.kind:
        case "key":
            return f.col("key")
        case "partition":
            return f.col("partition")
        case "offset":
            return f.col(OFFSET)
        case "timestamp":
            return f.col("timestamp")
        case "file":
            return f.col(SPLIT)
        case "header" if column.inner is None:
            return f.col("headers")
        case "header":
            named = f.filter(f.col("headers"), lambda header: header["key"] == f.lit(column.inner))
            return f.get(named, f.lit(0)).getField("value")
        case other:
            raise SqlError(NOT_SUPPORTED, f"INCLUDE {other} is not supported yet")
