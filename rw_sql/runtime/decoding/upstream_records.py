"""Reads given ranges of records from the upstream of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.ranged import Encoding, RangedConnector
from rw_sql.spark_jars import installed_jars
from rw_sql.syntax import canonical_type, exact_spark_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import Connector
    from rw_sql.syntax.statements import CreateSource, CreateTable


def offsets_per_record(kind: Connector) -> int:
    """The approximate number of offsets that one record of the connector occupies."""
    return kind.offsets_per_record if isinstance(kind, RangedConnector) else 1


def record_count(kind: Connector, options: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]) -> int:
    """The approximate number of records in a batch that reads ``ranges``."""
    if isinstance(kind, RangedConnector):
        return kind.record_count(options, ranges)
    return sum(end - start for start, end in ranges.values())


def has_small_batches(kind: Connector) -> bool:
    """True if, for the given connector, a range of few offsets contains few records. This process may then read such a
    range without Spark."""
    return not isinstance(kind, RangedConnector) or kind.has_small_batches


def packages_of(kind: Connector, statement: CreateSource) -> tuple[str, ...]:
    """The jars that the connector and the encoding of a source need to read the source's records."""
    is_avro = statement.format is not None and statement.format.encode == "AVRO"
    return (*kind.spark_packages(), *((installed_jars().avro,) if is_avro else ()))


def packages_on_executors(kind: object, statement: CreateSource | CreateTable) -> tuple[str, ...]:
    """The Python packages that executors import to read and decode the records of a source or table."""
    is_protobuf = statement.format is not None and statement.format.encode == "PROTOBUF"
    own = tuple(getattr(kind, "executor_packages", ()))  # Not every connector extends PlainConnector.
    return (*own, *(("google.protobuf", "pyarrow") if is_protobuf else ()))


def encoding_of(statement: CreateSource) -> Encoding:
    """The encoding in a source's FORMAT … ENCODE clause; JSON if there is no such clause."""
    clause = statement.format
    row = ", ".join(f"`{column.name}` {exact_spark_type(column.data_type)}" for column in statement.columns)
    if clause is None:
        return Encoding(encode="JSON", row=row)
    options = {option.key: getattr(option.value, "text", "") for option in clause.options}
    return Encoding(encode=clause.encode, options=options, row=row)


def read_records(
    kind: Connector,
    spark: SparkSession,
    options: Mapping[str, str],
    ranges: Mapping[str, tuple[int, int]],
    statement: CreateSource,
    lives: Mapping[str, str | None] | None = None,
) -> DataFrame:
    """The records in ``ranges``, with the columns of ``Connector.read_stream``.

    If ``lives`` is given, it maps each split to its expected incarnation (Kafka: topic id).
    """
    columns = {column.name: canonical_type(column.data_type) for column in statement.columns}
    with_headers = any(column.kind == "header" for column in statement.include)
    if isinstance(kind, RangedConnector):
        encoding = encoding_of(statement)
        return kind.read_batch(
            spark, options, ranges, with_headers=with_headers, columns=columns, encoding=encoding, lives=lives
        )
    return kind.read_batch(spark, options, ranges, with_headers=with_headers, columns=columns)
