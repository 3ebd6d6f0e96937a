"""The Iceberg sink. It writes to a user's table. It writes each batch exactly once, except for a batch that is written
in parts. After a crash, all parts of such a batch are written again.

One commit contains the rows and the number of a batch. The batch's number is stored in the snapshot's summary and in a
table property. The table property remains after the snapshot has expired. A run begins by committing an empty snapshot.
A concurrent commit of an earlier run then fails, because the earlier run's commit is based on an older snapshot
(Iceberg's REST specification, "assert-ref-snapshot-id").
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS
from rw_sql.connectors.iceberg import catalog
from rw_sql.connectors.iceberg.key_deletes import delete_keys
from rw_sql.connectors.sink import (
    DELETE,
    UPSERT,
    Refusal,
    RefusedRowsError,
    SinkError,
    SinkLook,
    TakenOverError,
    TargetUnfitError,
)
from rw_sql.connectors.spec import check_option_values, load_sink_spec
from rw_sql.connectors.support.query_names import in_query
from rw_sql.connectors.support.sink_values import last_per_key, python_values, split_by_op
from rw_sql.errors import near_names
from rw_sql.packages import deferred, require_package

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    import pyarrow.compute as pc
    from pyiceberg.table import Table, Transaction

    from rw_sql.connectors.sink import SinkShape
    from rw_sql.connectors.spec import ConnectorSpec
else:
    pa, pc = deferred("pyarrow"), deferred("pyarrow.compute")

_CREATE = "create_table_if_not_exists"
_ATTEMPTS = 20
_INDEX = "_rw_index"
_RETRIES = "commit.retry.num-retries"
_METRICS = "write.metadata.metrics.column."


class IcebergSink:
    """See :class:`rw_sql.connectors.sink.SinkConnector`."""

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/iceberg.sink.toml``."""
        return load_sink_spec("iceberg")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent and that pyiceberg is installed. Contacts no catalog."""
        require_package("iceberg", "pyiceberg")
        check_option_values(self.spec, options)
        catalog.check_catalog(self.spec, options)

    def check_shape(self, options: Mapping[str, str], shape: SinkShape) -> None:
        """Checks nothing: an Iceberg table can store every type."""

    def look(
        self, options: Mapping[str, str], shape: SinkShape | None, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SinkLook:
        """Checks that the table has the columns of ``shape`` with the same types, and that all other columns of the
        table allow NULL. If the table does not exist, checks that ``create_table_if_not_exists`` is true. Checks
        nothing if ``shape`` is None."""
        if shape is None:
            return SinkLook()
        name = catalog.table_name(options)
        try:
            table = catalog.load_table(self.spec, options)
        except catalog.TableMissingError:
            if _creates(options):
                return SinkLook()
            return SinkLook(
                missing=f'table "{name}"', hint=f"create it, or set {_CREATE} = 'true'", named=options["table.name"]
            )
        except catalog.CatalogError as error:
            return SinkLook(error=f"{options['catalog.uri']}: {error}")
        there, wanted = _types_of(table), _wanted(shape)
        for field in wanted:
            if field.name not in there:
                near = near_names(field.name, there)
                return SinkLook(
                    misfit=f'table {name} has no column "{field.name}"',
                    hint=(f'did you mean "{near[0]}"? ' if near else "") + "its columns: " + ", ".join(sorted(there)),
                )
            if there[field.name] != field.type:
                return SinkLook(
                    misfit=f'column "{field.name}" of table {name} is {there[field.name]}, not {field.type}',
                    hint=f"CAST it in the sink's query: CREATE SINK … AS SELECT CAST({in_query(field.name)} AS …) …",
                )
        required = [each.name for each in table.schema().fields if each.required and each.name not in wanted.names]
        if required:
            return SinkLook(misfit=f'column "{required[0]}" of table {name} does not allow NULL')
        return SinkLook()

    def open(self, options: Mapping[str, str], shape: SinkShape, identity: str) -> IcebergWriter:
        """Opens the table. Creates a missing table if ``create_table_if_not_exists`` is true."""
        try:
            table = self._table(options, shape)
        except (catalog.TableMissingError, catalog.CatalogError) as error:
            raise SinkError(str(error)) from error
        return IcebergWriter(table, shape, identity, options)

    def marked_batch(self, options: Mapping[str, str], identity: str, generation: int) -> int | None:
        """The number of the generation's last batch in the table; -1 if the last batch belongs to another generation.
        None if the table does not exist, or has no property with the sink's run and batch."""
        try:
            text = catalog.load_table(self.spec, options).metadata.properties.get(_marks_property(identity))
            return None if text is None else _done(json.loads(text), generation)
        except catalog.TableMissingError:
            return None
        except catalog.CatalogError as error:
            raise SinkError(str(error)) from error

    def _table(self, options: Mapping[str, str], shape: SinkShape) -> Table:
        from pyiceberg import exceptions

        try:
            return catalog.load_table(self.spec, options)
        except catalog.TableMissingError:
            if not _creates(options):
                raise
        try:
            opened = catalog.open_catalog(self.spec, options)
            # A catalog in a database needs tables of its own. A new catalog does not have these tables yet.
            if make := getattr(opened, "create_tables", None):
                make()
            name = catalog.table_name(options)
            opened.create_namespace_if_not_exists(name.rpartition(".")[0])
            return opened.create_table_if_not_exists(name, _wanted(shape))
        except (exceptions.RESTError, OSError, ValueError) as error:
            raise catalog.CatalogError(catalog.told(error, options)) from error


class IcebergWriter:
    """See :class:`rw_sql.connectors.sink.SinkWriter`."""

    def __init__(self, table: Table, shape: SinkShape, identity: str, options: Mapping[str, str]) -> None:
        self._table = table
        self._shape = shape
        self._identity = identity
        self._options = options
        self._run = self._generation = 0
        self._newest = -1
        self._is_cancelled = False
        self._unbounded: frozenset[str] = frozenset()
        self._omits_all_bounds = False

    def fence(self, run: int, generation: int) -> int:
        """Commits an empty snapshot with the run's number, after which commits of earlier runs fail. Returns the number
        of the generation's last batch; -1 if there is none."""
        self._run, self._generation = run, generation

        def marks() -> dict[str, int]:
            known = self._marks()
            if known["run"] > run:
                raise TakenOverError(known["run"], run)
            return {"run": run, "generation": generation, "batch": _done(known, generation)}

        self._commit(marks, lambda transaction, summary: transaction.append(self._empty(), summary))
        self._newest = _done(self._marks(), generation)
        return self._newest

    def write(self, rows: pa.Table, batch: int) -> None:
        """Commits the rows and the batch's number in one commit."""
        self._write(rows, batch)
        self._newest = batch

    def accepts_parts(self) -> bool:
        """See :class:`rw_sql.runtime.sinks.part_writer.PartWriter`."""
        return True

    def write_part(self, rows: pa.Table, batch: int) -> None:
        """Commits the rows without the batch's number; see
        :class:`rw_sql.runtime.sinks.part_writer.PartWriter`."""
        self._write(rows, batch, is_part=True)

    def _write(self, rows: pa.Table, batch: int, *, is_part: bool = False) -> None:
        self._require_values(rows)
        changed, gone = split_by_op(last_per_key(rows, self._shape.keys), DELETE)
        self._unbounded = frozenset(name for name in changed.column_names if not _is_readable(changed.column(name)))
        appended = self._fitted(changed)
        keys = self._keys_of(changed, gone) if self._shape.type == UPSERT else None

        def marks() -> dict[str, int]:
            if self._is_cancelled:
                raise SinkError("stopped")
            known = self._marks()
            newest = _done(known, self._generation)
            if known["run"] > self._run:
                raise TakenOverError(known["run"], self._run)
            if known["run"] < self._run or newest < self._newest:
                raise TargetUnfitError("the table was replaced by an older copy of it")
            if newest >= batch:
                raise SinkError(f"batch {batch} is already in the table")
            return {"run": self._run, "generation": self._generation, "batch": newest if is_part else batch}

        def act(transaction: Transaction, summary: dict[str, str]) -> None:
            if keys is not None and keys.num_rows:
                delete_keys(transaction, self._table, keys, summary)
            transaction.append(appended, summary)

        self._commit(marks, act)

    def _commit(self, marks: Any, act: Any) -> None:
        """Commits on top of the table's newest snapshot. Retries if another writer commits after this snapshot was
        read.

        ``marks`` returns the run, the generation and the batch that the commit stores for the sink. ``act`` adds the
        rows to the transaction.
        """
        from pyiceberg import exceptions

        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._table.refresh()
                self._forbid_retries()
                self._omit_bounds()
                made = marks()
                if self._is_cancelled:
                    raise SinkError("stopped")
                with self._table.transaction() as transaction:
                    summary = {"rw_sql.sink": self._identity} | {f"rw_sql.{key}": str(at) for key, at in made.items()}
                    transaction.set_properties({self._property: json.dumps(made, sort_keys=True)})
                    act(transaction, summary)
            except SinkError:
                raise
            except (OverflowError, UnicodeDecodeError) as error:
                if self._omits_all_bounds or attempt == _ATTEMPTS:
                    raise SinkError(self._told(error)) from error
                # This error occurs if a delete rewrites a file with values that Python cannot represent.
                self._omits_all_bounds = True
            except (exceptions.CommitFailedException, exceptions.ValidationException) as error:
                if attempt == _ATTEMPTS:
                    raise SinkError(f"other writers commit to the table too often: {self._told(error)}") from error
            except (exceptions.NoSuchTableError, ValueError) as error:
                # pyiceberg reports columns and types that do not fit as ValueError.
                raise TargetUnfitError(self._told(error)) from error
            except Exception as error:
                # Catalogs and file systems raise the errors of their clients.
                raise SinkError(self._told(error)) from error
            else:
                return

    def _forbid_retries(self) -> None:
        """Makes a commit fail if another writer has committed since the table was loaded.

        By default, pyiceberg rebases the commit onto the newest snapshot. With this default, the fence would not stop a
        commit of an earlier run. The method changes ``commit.retry.num-retries`` only in this process, not in the
        stored table.
        """
        properties = {**self._table.metadata.properties, _RETRIES: "0"}
        self._table.metadata = self._table.metadata.model_copy(update={"properties": properties})

    def _omit_bounds(self) -> None:
        """Makes a commit write files without the bounds (the minimum and the maximum) of some columns. These are the
        columns with values that Python cannot represent. pyiceberg could not read bounds with such values from a file.

        If a file that the commit rewrites has such values, the commit omits the bounds of all columns of texts, dates
        or times. The method changes the table's properties only in this process, as :meth:`_forbid_retries` does.
        """
        from pyiceberg import types
        from pyiceberg.schema import sanitize_column_names

        kinds = (types.StringType, types.DateType, types.TimestampType, types.TimestamptzType)
        schema = self._table.schema()
        in_files = {field.field_id: field.name for field in sanitize_column_names(schema).fields}
        omitted = {
            f"{_METRICS}{in_files[field.field_id]}": "counts"
            for field in schema.fields
            if field.name in self._unbounded or (self._omits_all_bounds and isinstance(field.field_type, kinds))
        }
        if omitted:
            properties = {**self._table.metadata.properties, **omitted}
            self._table.metadata = self._table.metadata.model_copy(update={"properties": properties})

    @property
    def _property(self) -> str:
        return _marks_property(self._identity)

    def _marks(self) -> dict[str, int]:
        text = self._table.metadata.properties.get(self._property)
        found: dict[str, int] = {"run": 0, "generation": 0, "batch": -1} if text is None else json.loads(text)
        return found

    def _empty(self) -> pa.Table:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self._table.schema(), include_field_ids=False).empty_table()

    def _fitted(self, rows: pa.Table) -> pa.Table:
        """Selects the sink's columns, and converts them to Iceberg's types. pyiceberg fills table columns that the sink
        lacks with null."""
        required = self._required()
        wanted = pa.schema([field.with_nullable(field.name not in required) for field in _wanted(self._shape)])
        return rows.select(wanted.names).cast(wanted)

    def _keys_of(self, changed: pa.Table, gone: pa.Table) -> pa.Table:
        """The keys of the rows to write and to delete, with Iceberg's types."""
        keys, wanted = list(self._shape.keys), _wanted(self._shape)
        rows = pa.concat_tables([changed.select(keys), gone.select(keys)])
        return rows.cast(pa.schema([wanted.field(name) for name in keys]))

    def _required(self) -> list[str]:
        """The sink's columns that are NOT NULL in the table."""
        given = self._shape.columns
        return [field.name for field in self._table.schema().fields if field.required and field.name in given]

    def _require_values(self, rows: pa.Table) -> None:
        """Raises RefusedRowsError if Python cannot represent a key of an upsert. For rows that are written and not
        deleted, also raises RefusedRowsError for two other reasons: Python cannot represent a value of a partition
        column, or a NOT NULL column contains a null.

        pyiceberg must compare keys and values of partition columns. Python cannot represent dates and times outside the
        years 1 to 9999 and strings that are not UTF-8.
        """
        for name in self._shape.keys if self._shape.type == UPSERT else ():
            python_values(rows.column(name), name)
        partition_columns, required = self._partition_columns(), self._required()
        if not (partition_columns or required):
            return
        numbered = rows.append_column(_INDEX, pa.array(range(rows.num_rows), pa.int64()))
        changed, _ = split_by_op(last_per_key(numbered, self._shape.keys), DELETE)
        indexes = changed.column(_INDEX)
        found: dict[int, Refusal] = {}
        for name in partition_columns:
            try:
                python_values(changed.column(name), name)
            except RefusedRowsError as error:
                for each in error.refusals:
                    at = indexes[each.index].as_py()
                    found.setdefault(at, replace(each, index=at))
        for name in required:
            for at in indexes.filter(changed.column(name).is_null()).to_pylist():
                found.setdefault(at, Refusal(index=at, column=name, reason="the table does not allow NULL"))
        if found:
            raise RefusedRowsError([found[at] for at in sorted(found)])

    def _partition_columns(self) -> list[str]:
        """The sink's columns by which the table is partitioned."""
        schema, given = self._table.schema(), self._shape.columns
        names = [schema.find_column_name(field.source_id) for field in self._table.spec().fields]
        return [name for name in names if name in given]

    def _told(self, error: Exception) -> str:
        return catalog.told(error, self._options)

    def cancel(self) -> None:
        """Prevents further commits."""
        self._is_cancelled = True

    def close(self) -> None:
        """Does nothing, because nothing is open between commits."""


def _done(marks: Mapping[str, int], generation: int) -> int:
    """The number of a generation's last batch. ``marks`` is the content of the table property with the sink's run and
    batch. The result is -1 if ``marks`` belongs to another generation."""
    return marks["batch"] if marks["generation"] == generation else -1


def _marks_property(identity: str) -> str:
    return f"rw_sql.sink.{identity}"


def _creates(options: Mapping[str, str]) -> bool:
    return options.get(_CREATE, "false").strip().lower() == "true"


def _wanted(shape: SinkShape) -> pa.Schema:
    """The sink's columns with the corresponding Iceberg types."""
    from pyspark.sql.types import StructType

    from rw_sql.connectors.support.arrow_schemas import arrow_schema

    given = arrow_schema(StructType.fromJson(json.loads(shape.schema)))
    return pa.schema([pa.field(field.name, _stored(field.type)) for field in given])


def _stored(kind: pa.DataType) -> pa.DataType:
    from rw_sql.connectors.iceberg.reader import plain

    return pa.int32() if pa.types.is_int8(kind) or pa.types.is_int16(kind) else plain(kind)


def _is_readable(column: pa.ChunkedArray) -> bool:
    """True if Python can represent all dates, times and texts of a column. Nested columns are not checked, because
    files have no bounds for nested columns."""
    try:
        if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
            pc.min_max(column).as_py()
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column.validate(full=True)
    except (ValueError, OverflowError):
        return False
    return True


def _types_of(table: Table) -> dict[str, pa.DataType]:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    from rw_sql.connectors.iceberg.reader import plain

    fields = schema_to_pyarrow(table.schema(), include_field_ids=False)
    return {field.name: plain(field.type) for field in fields}
