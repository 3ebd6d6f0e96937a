"""Decodes the values and keys of records whose schema is in a schema registry.

Afterwards, the module ``decoder`` converts the result to rows of the log.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.connectors.formats import MAP_MODE
from rw_sql.connectors.schemas import avro
from rw_sql.model.definitions import encode_options, has_changes, primary_key, stored_schema
from rw_sql.runtime.decoding.change_formats.rows import ROW
from rw_sql.runtime.decoding.json_text import once
from rw_sql.runtime.decoding.registry.avro_rows import AvroReader
from rw_sql.runtime.decoding.registry.connect_values import RowConversion
from rw_sql.runtime.decoding.registry.events import (
    FAULT,
    debezium_rows,
    plain_row,
    row_type,
    typed,
    upsert_rows,
)
from rw_sql.runtime.decoding.registry.message_records import MessageRecords
from rw_sql.runtime.decoding.registry.writers import Writers, heads_in, heads_of, subjects_of, unknown_heads
from rw_sql.runtime.support.deferred_columns import DeferredColumns
from rw_sql.spark_jars import installed_jars

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from rw_sql.runtime.decoding.registry.writers import Writer, WriterIdentity
    from rw_sql.syntax.statements import CreateSource


@dataclass(slots=True)
class SchemaRecords:
    """Reads the Avro records of one source.

    ``value`` decodes the records' values. ``key`` decodes the records' keys; None if no schema of the keys is stored.
    ``subjects`` are the subjects of the values' schemas, and ``key_subjects`` are the subjects of the keys' schemas.
    """

    statement: CreateSource
    value: AvroReader
    key: AvroReader | None
    subjects: tuple[str, ...]
    key_subjects: tuple[str, ...]
    _recipes: dict[tuple[tuple[str, ...], tuple[WriterIdentity, ...], tuple[WriterIdentity, ...]], DeferredColumns]

    @staticmethod
    def of(statement: CreateSource, options: Mapping[str, str]) -> SchemaRecords | None:
        """Returns the reader of a source's records; None if the source has no Avro schema. ``options`` are the source's
        options, with the values of secrets."""
        stored = stored_schema(statement)
        if stored is None or statement.format is None or statement.format.encode != "AVRO":
            return None
        given = encode_options(statement)
        mode = given.get(MAP_MODE, "map").strip().lower()
        schema = json.loads(stored)
        is_envelope = statement.format.format == "DEBEZIUM"
        stored_key = stored_schema(statement, of_key=True)
        # A field that does not become a column is not read, so that a value in this field cannot make a record an
        # error. With UPSERT, the columns of the primary key come from the record's key.
        of_key_alone = primary_key(statement) if stored_key is not None and not is_envelope else ()
        names = [column.name for column in statement.columns if column.name not in of_key_alone]
        reader = avro.narrowed_envelope(schema, names) if is_envelope else avro.narrowed(schema, names)
        key = None
        if stored_key is not None:
            of_key = json.loads(stored_key)
            is_record = isinstance(of_key, dict) and of_key.get("type") == "record"
            single = None if is_record else primary_key(statement)[0]
            if is_record:
                of_key = avro.narrowed(of_key, primary_key(statement))
            key = AvroReader(Writers.of(options, of_key), "key", "_rw_key", mode, single)
        event_keys = primary_key(statement) if is_envelope else None
        value = AvroReader(Writers.of(options, reader), "value", "_rw_value", mode, event_keys=event_keys)
        subjects, of_keys = (subjects_of(statement, options, is_key=is_key) for is_key in (False, True))
        return SchemaRecords(statement, value, key, subjects, of_keys, {})

    def add_versions(self) -> None:
        """Loads all versions of the topics' subjects. Raises StalledError if the registry does not respond."""
        for subject in self.subjects:
            self.value.writers.add_versions(subject)
        if self.key is not None:
            for subject in self.key_subjects:
                self.key.writers.add_versions(subject)

    @property
    def packages(self) -> tuple[str, ...]:
        """The jars that Spark needs to read Avro."""
        return (installed_jars().avro,)

    def heads_in(self, records: pa.Table) -> frozenset[bytes]:
        """The distinct heads of records in this process's memory. A head is a record's first bytes, which contain the
        id of its schema."""
        return heads_in(records, self._columns)

    def heads_of(self, records: DataFrame) -> frozenset[bytes]:
        """The distinct heads of a DataFrame's records. Reads the records."""
        return heads_of(records, self._columns)

    @property
    def _columns(self) -> tuple[str, ...]:
        return ("value",) if self.key is None else ("value", "key")

    @property
    def known_heads(self) -> frozenset[bytes]:
        """The heads of the records of all writers that are known so far."""
        return frozenset((*self.value.writers.heads, *(self.key.writers.heads if self.key is not None else ())))

    def unknown_in(self, faults: Iterable[str | None]) -> frozenset[bytes]:
        """Returns the heads of those schemas that ``faults`` report as missing although the registry has them.

        Raises StalledError if the registry does not respond.
        """
        readers = (self.value, *([self.key] if self.key is not None else []))
        return unknown_heads(faults, [reader.writers for reader in readers])

    def decoded(self, records: pa.Table, heads: frozenset[bytes]) -> pa.Table:
        """Returns the records unchanged, because only Spark decodes Avro (:meth:`rows`)."""
        return records

    def rows(self, records: DataFrame, heads: frozenset[bytes]) -> DataFrame:
        """Returns the records with ``_rw_row`` and ``_rw_fault`` and, for a change format, with ``_rw_op`` and
        ``_rw_unchanged``.

        Raises StalledError if the registry does not respond.
        """
        values = self.value.writers.known(heads)
        keys = () if self.key is None else self.key.writers.known(heads)
        of = (tuple(records.columns), tuple(each.identity for each in values), tuple(each.identity for each in keys))
        recipe = self._recipes.get(of)
        if recipe is None:
            recipe = self._recipes[of] = self._recipe(DeferredColumns(of[0]), values, keys)
        return recipe.of(records)

    def _recipe(self, records: DeferredColumns, values: Sequence[Writer], keys: Sequence[Writer]) -> DeferredColumns:
        statement, value, key = self.statement, self.value, self.key
        records = value.read(records, values)
        format = statement.format.format if statement.format else ""
        columns = statement.columns
        is_read = any(writer.refusal is None for writer in values)
        # Without a readable writer, there are no rows to convert.
        conversion = self._conversion() if is_read else RowConversion({}, {})
        event, fault = f.col(value.row), f.col(value.fault)
        if format == "DEBEZIUM":
            key_columns = [column for column in columns if column.name in primary_key(statement)]
            of_parts = {"before": key_columns, "after": columns}
            types = ", ".join(f"{part}: {row_type(kept)}" for part, kept in of_parts.items())
            row = f.lit(None).cast(f"STRUCT<op: STRING, {types}>")
            if is_read:
                parts = (plain_row(event[part], kept, conversion).alias(part) for part, kept in of_parts.items())
                row = f.when(event.isNotNull(), f.struct(event["op"].alias("op"), *parts))
        elif is_read:
            row = typed(event, columns, conversion)
            fault = f.coalesce(fault, conversion.misfits(event, columns))
        else:
            row = f.lit(None).cast(row_type(columns))
        records = records.withColumn(ROW, once(row)).withColumn(FAULT, fault)
        if key is not None:
            records = self._with_key(records, key, keys)
        if format == "DEBEZIUM":
            if key is None:
                raise TypeError("records of Debezium have keys")
            return debezium_rows(records, statement, conversion, key)
        if has_changes(statement):
            return upsert_rows(records, statement, key)
        return records

    def _conversion(self) -> RowConversion:
        """Returns the conversion of the records' values. For DEBEZIUM, this conversion applies to the rows in the
        envelopes."""
        schema = self.value.writers.reader
        if self.statement.format is None or self.statement.format.format != "DEBEZIUM":
            return RowConversion.of(schema)
        named = avro.definitions(schema)
        for each in schema["fields"]:
            row = avro.only_branch(each["type"], named)
            if isinstance(row, dict) and row.get("type") == "record":
                return RowConversion.of(row, named)
        return RowConversion({}, {})

    def _with_key(self, records: DeferredColumns, key: AvroReader, writers: Sequence[Writer]) -> DeferredColumns:
        """Adds the decoded keys to the records, with the declared types of the primary key's columns."""
        names = primary_key(self.statement)
        columns = [column for column in self.statement.columns if column.name in names]
        records = key.read(records, writers)
        row, fault = f.lit(None).cast(row_type(columns)), f.col(key.fault)
        if any(writer.refusal is None for writer in writers):
            schema = key.writers.reader
            fields = [{"name": key.single, "type": schema}]
            conversion = RowConversion.of(schema if key.single is None else {"type": "record", "fields": fields})
            fault = f.coalesce(fault, conversion.misfits(f.col(key.row), columns))
            row = typed(f.col(key.row), columns, conversion)
        return records.withColumn(key.fault, once(fault)).withColumn(key.row, once(row))


def schema_records(statement: CreateSource, options: Mapping[str, str]) -> SchemaRecords | MessageRecords | None:
    """The reader that decodes a source's records with their schemas; None if the records are read without schemas.

    ``options`` are the source's options, with the values of secrets.
    """
    return SchemaRecords.of(statement, options) or MessageRecords.of(statement, options)
