"""Decodes Protobuf messages to rows with the ``protobuf`` library. Small batches are decoded in this process, and all
other batches in Spark's Python processes.

The id in a record refers to a schema of the schema registry. This schema is used only to find the record's message
type: all messages are read with the source's schema.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rw_sql.connectors.formats import AS_JSONB, LOCATION, MESSAGE
from rw_sql.connectors.schemas.protobuf import Messages, NoMessageError
from rw_sql.model.definitions import encode_options, has_changes, stored_schema
from rw_sql.runtime.decoding.change_formats.rows import ROW
from rw_sql.runtime.decoding.json_text import NO_VALUE
from rw_sql.runtime.decoding.registry.events import FAULT, row_type, upsert_rows
from rw_sql.runtime.support.deferred_columns import DeferredColumns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame

    from rw_sql.connectors.schemas.protobuf import WrittenTypes
    from rw_sql.syntax.statements import CreateSource

_SENT = (__name__, "rw_sql.connectors.schemas.protobuf", "rw_sql.errors")
_RUN = 1_000
"""The maximum number of values per Arrow array. While an array is built, all of its rows are in memory as Python
objects."""


def _send_by_value() -> None:
    """Makes Spark send the code of this module, and of the modules that it needs for decoding, to Spark's Python
    processes. The package rw_sql may not be installed there."""
    import sys

    from pyspark import cloudpickle

    by_value: Any = cloudpickle.register_pickle_by_value
    for name in _SENT:
        by_value(sys.modules[name])


@dataclass(frozen=True, slots=True)
class ProtobufRows:
    """Reads the messages of one source. ``kind`` is the Arrow type of the source's rows.

    ``types`` maps the head (first bytes) of each known writer's records to the writer's message types; None if records
    have no frame.
    """

    messages: Messages
    columns: tuple[str, ...]
    is_framed: bool
    kind: pa.DataType
    types: Mapping[bytes, WrittenTypes] | None = None

    @staticmethod
    def of(statement: CreateSource) -> ProtobufRows | None:
        """Returns the reader of a source's messages; None if the source's records are not Protobuf messages."""
        stored = stored_schema(statement)
        if stored is None or statement.format is None or statement.format.encode != "PROTOBUF":
            return None
        from pyspark.sql.types import StructType

        from rw_sql.connectors.support.arrow_schemas import arrow_type

        given = encode_options(statement)
        as_jsonb = frozenset(name.strip() for name in given.get(AS_JSONB, "").split(",") if name.strip())
        schema = StructType.fromDDL(f"r {row_type(statement.columns)}")
        if not isinstance(schema, StructType):
            raise TypeError("a row type must be a struct")
        return ProtobufRows(
            Messages(stored, given[MESSAGE], as_jsonb),
            tuple(column.name for column in statement.columns),
            LOCATION not in given,
            arrow_type(schema["r"].dataType),
        )

    def read(self, records: pa.Table) -> pa.Table:
        """Decodes records in this process, and adds ``_rw_row`` and ``_rw_fault`` to the records."""
        made = [self._arrays(batch) for batch in records.to_batches(max_chunksize=_RUN)]
        rows = pa.chunked_array([rows for rows, _ in made], self.kind)
        faults = pa.chunked_array([faults for _, faults in made], pa.string())
        return records.append_column(ROW, rows).append_column(FAULT, faults)

    def read_in_spark(self, records: DataFrame) -> DataFrame:
        """Decodes a DataFrame of records, and adds ``_rw_row`` and ``_rw_fault`` to the records."""
        from pyspark.sql.types import StringType, StructField, StructType

        from rw_sql.connectors.support.arrow_schemas import spark_type_of

        schema = StructType([
            *records.schema.fields, StructField(ROW, spark_type_of(self.kind)), StructField(FAULT, StringType()),
        ])  # fmt: skip

        # Omits the descriptors that this process has built, because they cannot be sent to another process.
        fresh = replace(self, messages=replace(self.messages))

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for start in range(0, batch.num_rows, _RUN):
                    part = batch.slice(start, _RUN)
                    rows, faults = fresh._arrays(part)
                    names = [*part.schema.names, ROW, FAULT]
                    yield pa.RecordBatch.from_arrays([*part.columns, rows, faults], names=names)

        _send_by_value()
        return records.mapInArrow(read, schema)

    def _arrays(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        read = self.messages.reader(self.columns, is_framed=self.is_framed, types=self.types)
        rows: list[dict[str, Any] | None] = []
        faults: list[str | None] = []
        for value in batch.column("value").to_pylist():
            try:
                if value is None:
                    raise NoMessageError(NO_VALUE)
                rows.append(read(value))
                faults.append(None)
            except NoMessageError as error:
                rows.append(None)
                faults.append(str(error))
        return pa.array(rows, self.kind), pa.array(faults, pa.string())


def message_rows(records: DataFrame, statement: CreateSource) -> DataFrame:
    """Extracts the changes from decoded records, if the source has a change format (:func:`upsert_rows`). Returns the
    records of other sources unchanged."""
    if not has_changes(statement):
        return records
    # Without a frame, a message whose fields all have their default values consists of no bytes.
    is_empty_value = LOCATION in encode_options(statement)
    deferred = DeferredColumns(tuple(records.columns))
    return upsert_rows(deferred, statement, None, is_empty_value=is_empty_value).of(records)
