"""Reads Avro records in Confluent's frame as rows. The module uses Spark's own Avro reader.

The id in a record identifies the schema of its writer. Avro's schema resolution converts the record from this schema to
the source's schema. A record that cannot be read gets NULL in place of a row, together with the reason.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from rw_sql.connectors.schemas import avro
from rw_sql.connectors.schemas.logical_types import logical_of
from rw_sql.runtime.decoding.json_text import NO_VALUE, once
from rw_sql.runtime.decoding.registry.avro_decimals import FitCheck, narrow_decimal, wide_decimal
from rw_sql.runtime.decoding.registry.connect_values import time_text
from rw_sql.runtime.decoding.registry.writers import HEAD_BYTES, Writer, WriterIdentity, Writers
from rw_sql.runtime.spark.jvm import set_default_property

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column

    from rw_sql.runtime.support.deferred_columns import StepsT


OK = "_rw_ok"
"""The name of a field that is added to the reader's schema, with the default ``true``.

If Spark cannot read a record, Spark returns a record in which all fields are NULL, including this field.
"""

_MOST_BYTES = 2**31 - 1

_EXACT_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""With these options, the JSON that ``to_json`` returns loses no information. By default, Spark omits microseconds, and
fields that are NULL."""

_LIMITS = {"bytes.maxLength": 2**27, "string.maxLength": 2**27, "collectionItems.maxLength": 10_000_000}
"""The maximum lengths of values that Avro accepts within a record, in bytes or in items. The keys are the last parts of
the names of system properties.

Avro allocates memory for a value's length before it reads the value. Without limits, a broken record could therefore
crash the JVM. A JVM reads these properties only when it first decodes an Avro record.
"""


@dataclass(slots=True)
class AvroReader:
    """Reads the Avro records in one binary column.

    ``writers.reader`` is the source's schema in normal form, already reduced to the needed fields. ``map_mode`` is
    ``map`` or ``jsonb``. If the schema is not a record type, ``single`` is the name of the column that gets the value;
    otherwise, it is None. If the schema is that of Debezium's events, ``event_keys`` are the columns of the primary
    key, and the row ``before`` is read with only these columns; otherwise, ``event_keys`` is None. The columns that
    :meth:`read` adds have names that begin with ``into``.
    """

    writers: Writers
    column: str
    into: str
    map_mode: str = "map"
    single: str | None = None
    event_keys: tuple[str, ...] | None = None
    _made: dict[tuple[WriterIdentity, ...], tuple[tuple[str, Column], ...]] = field(default_factory=dict)

    @property
    def row(self) -> str:
        """The name of the column with the rows. The row is NULL for a record that cannot be read."""
        return f"{self.into}_row"

    @property
    def fault(self) -> str:
        """The name of the column with the reasons why records cannot be read. The reason is NULL for a record that can
        be read."""
        return f"{self.into}_fault"

    @property
    def head(self) -> str:
        """The name of the column with the heads (:data:`HEAD_BYTES`) of the records."""
        return f"{self.into}_head"

    def read(self, records: StepsT, writers: Sequence[Writer]) -> StepsT:
        """Adds the rows and faults to the records. A record whose schema is not one of ``writers`` counts as a record
        with an unknown schema."""
        key = tuple(writer.identity for writer in writers)
        steps = self._made.get(key)
        if steps is None:
            steps = self._made[key] = tuple(self._steps(writers))
        for name, column in steps:
            records = records.withColumn(name, column)
        return records

    def _steps(self, writers: Sequence[Writer]) -> list[tuple[str, Column]]:
        value, head = f.col(self.column), f.col(self.head)
        steps = [(self.head, once(f.substring(self.column, 1, HEAD_BYTES)))]
        payload = f.substring(self.column, HEAD_BYTES + 1, _MOST_BYTES)
        readable = [writer for writer in writers if writer.refusal is None]
        rows = []
        for at, reading in enumerate(dict.fromkeys(writer.reading for writer in readable)):
            schema = json.loads(reading)
            if self.event_keys is not None:
                schema = avro.with_old_keys(schema, self.event_keys)
            options = {
                "avroSchema": json.dumps(_read_schema(schema) if self.single is None else _plain(schema)),
                "mode": "PERMISSIVE",
                "datetimeRebaseMode": "CORRECTED",
            }
            read: Any = f
            for writer in readable:
                if writer.reading == reading:
                    read = read.when(head == f.lit(writer.head), _from_avro(payload, writer.text, options))
            name = f"{self.into}_{at}"
            steps.append((name, once(read)))
            fits = FitCheck(avro.definitions(schema)).of(schema)
            is_read = f.col(name)[OK] if self.single is None else f.col(name).isNotNull()
            is_row = is_read if fits is None else is_read & fits(f.col(name))
            if self.single is None:
                rows.append(f.when(is_row, self._converted(f.col(name), schema)))
            else:
                alone = self._value(f.col(name), schema, {}).alias(self.single)
                rows.append(f.when(is_row, f.struct(alone)))
        if not rows:
            kind = f.lit(None)
            steps.append((self.row, kind))
        else:
            steps.append((self.row, once(f.coalesce(*rows)) if len(rows) > 1 else once(rows[0])))
        number = f.conv(f.hex(f.substring(self.column, 2, 4)), 16, 10)
        told: Any = f.when(value.isNull(), f.lit(NO_VALUE))
        told = told.when(f.octet_length(self.column) == 0, f.lit("the record is empty"))
        told = told.when(f.substring(self.column, 1, 1) != f.lit(b"\0"), f.lit("failed to match the magic byte 0"))
        told = told.when(f.octet_length(self.column) < HEAD_BYTES, f.lit("failed to read the 4-byte schema ID"))
        for writer in writers:
            if writer.refusal is not None:
                told = told.when(head == f.lit(writer.head), f.lit(writer.refusal))
        known = [writer.head for writer in readable]
        is_known = head.isin(*(f.lit(each) for each in known)) if known else f.lit(False)
        told = told.when(~is_known, f.concat(f.lit("schema "), number, f.lit(" is not in the registry")))
        no_row = f.concat(
            f.lit("the bytes are not a record of schema "), number, f.lit(" that the source's schema can read")
        )
        steps.append((self.fault, once(told.when(f.col(self.row).isNull(), no_row))))
        return steps

    def _converted(self, row: Column, schema: avro.Schema) -> Column:
        named = avro.definitions(schema)
        fields = schema["fields"]
        return f.struct(*(self._value(row[e["name"]], e["type"], named).alias(e["name"]) for e in fields))

    def _value(self, value: Column, schema: avro.Schema, named: Mapping[str, avro.Schema]) -> Column:
        """Converts a value to its column's type. Returns the value unchanged if Spark already reads it as that type."""
        convert = self._conversion(schema, named)
        return value if convert is None else convert(value)

    def _conversion(self, schema: avro.Schema, named: Mapping[str, avro.Schema]) -> Callable[[Column], Column] | None:
        if isinstance(schema, str):
            return self._conversion(named[schema], named) if schema in named else None
        if isinstance(schema, list):
            return self._union(schema, named)
        match schema["type"]:
            case "record":
                fields = schema["fields"]
                inner = {e["name"]: self._conversion(e["type"], named) for e in fields}
                if not any(inner.values()):
                    return None
                return lambda value: f.when(
                    value.isNotNull(),
                    f.struct(
                        *(
                            (value[name] if each is None else each(value[name])).alias(name)
                            for name, each in inner.items()
                        )
                    ),
                )
            case "array":
                return _of_items(self._conversion(schema["items"], named))
            case "map":
                # If a map becomes JSON, a map inside it becomes a part of this JSON, not a string.
                inside = replace(self, map_mode="map")
                return _of_values(inside._conversion(schema["values"], named), is_json=self.map_mode == "jsonb")
        logical = logical_of(schema)
        if logical in ("time-millis", "time-micros"):
            return lambda value: time_text(value, 1_000 if logical == "time-millis" else 1_000_000)
        return narrow_decimal(schema)

    def _union(
        self, branches: Sequence[avro.Schema], named: Mapping[str, avro.Schema]
    ) -> Callable[[Column], Column] | None:
        real = [branch for branch in branches if branch != "null"]
        if len(real) == 1:
            return self._conversion(real[0], named)
        if avro.is_widened(real):
            return None

        def convert(value: Column) -> Column:
            parts = [
                self._value(value[f"member{at}"], branch, named).alias(name)
                for at, (name, branch) in enumerate(zip(avro.union_names(real), real, strict=True))
            ]
            return f.when(value.isNotNull(), f.struct(*parts))

        return convert


def _of_items(item: Callable[[Column], Column] | None) -> Callable[[Column], Column] | None:
    return None if item is None else lambda value: f.transform(value, item)


def _of_values(item: Callable[[Column], Column] | None, *, is_json: bool) -> Callable[[Column], Column] | None:
    def convert(value: Column) -> Column:
        made = value if item is None else f.transform_values(value, lambda _, each: item(each))
        return f.to_json(made, _EXACT_JSON) if is_json else made

    return convert if is_json or item is not None else None


def _from_avro(payload: Column, writer: str, options: Mapping[str, str]) -> Column:
    from pyspark.sql.avro.functions import from_avro

    for name, limit in _LIMITS.items():
        set_default_property(f"org.apache.avro.limits.{name}", str(limit))
    return from_avro(payload, writer, dict(options))


def _read_schema(schema: avro.Schema) -> avro.Schema:
    """Returns the schema that Spark's reader uses for records: the result of :func:`_plain` with the additional field
    :data:`OK`."""
    made = _plain(schema)
    return {**made, "fields": [*made["fields"], {"name": OK, "type": "boolean", "default": True}]}


def _plain(part: avro.Schema) -> avro.Schema:
    """Returns a copy of the schema with wide decimals (:func:`wide_decimal`) and without the logical types of times of
    day and UUIDs. Spark therefore reads their values as plain numbers and strings."""
    if isinstance(part, list):
        return [_plain(branch) for branch in part]
    if not isinstance(part, dict):
        return part
    made = wide_decimal(part)
    if logical_of(part) in ("time-millis", "time-micros", "uuid"):
        del made["logicalType"]
    if part["type"] == "record":
        made["fields"] = [{**each, "type": _plain(each["type"])} for each in part["fields"]]
    for key in ("items", "values"):
        if key in part:
            made[key] = _plain(part[key])
    return made
