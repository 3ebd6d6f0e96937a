"""Runs a unit test of a view. The inputs get the given rows. The view, and all objects between the inputs and the view,
run unchanged."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from deltalake import Schema, write_deltalake
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rw_sql.cli.testing.definitions import (
    fed_from_delta,
    fed_from_kafka,
    has_hidden_columns,
    input_columns,
    source_of_rows,
    takes_columns,
)
from rw_sql.cli.testing.outcome import MismatchError, WrongTestError
from rw_sql.cli.testing.row_diff import compare_rows
from rw_sql.cli.testing.slt_run import passed_over
from rw_sql.cli.testing.values import MisfitError, arrow_of, collected, fitted, json_of, text_of
from rw_sql.connectors.delta.plain_files import rows_now
from rw_sql.errors import SqlError, near_names
from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.model.definitions import connector_of, field_of, include_name
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.model.relations import schema_columns
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.session.attached import catalog_of
from rw_sql.session.scripts import run_part
from rw_sql.syntax import ScriptStatement, parse_statement
from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.identifiers import key_parts, quoted, quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from rw_sql.cli.testing.definitions import Defined, Input
    from rw_sql.cli.testing.unit_file import RowsGiven, UnitTest
    from rw_sql.runtime.control.dry_run import DryRun
    from rw_sql.session.attach import Attached

_Read = TypeVar("_Read")

_OURS: dict[type[DataType], str] = {
    BooleanType: "BOOLEAN",
    ByteType: "SMALLINT",
    ShortType: "SMALLINT",
    IntegerType: "INT",
    LongType: "BIGINT",
    FloatType: "REAL",
    DoubleType: "DOUBLE PRECISION",
    StringType: "VARCHAR",
    BinaryType: "BYTEA",
    DateType: "DATE",
    TimestampType: "TIMESTAMPTZ",
    TimestampNTZType: "TIMESTAMP",
}

_TIMEOUT = "SET statement_timeout = '5min'"


@dataclass(slots=True)
class UnitRun:
    """One run of a unit test on an attached session with its own warehouse.

    ``with_subfolders`` is a hint. The error for an object that no definition creates contains this hint.
    """

    attached: Attached
    folder: Path
    definitions: Mapping[str, Defined]
    test: UnitTest
    topic: str
    bootstrap: str | None = None
    with_subfolders: str = ""
    _topics: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Runs the test. Raises MismatchError if a statement fails or the view's rows differ from the expected rows,
        and WrongTestError if the test is invalid."""
        order = self._needed()
        # A statement may wait this long without any progress, because CI machines are slow.
        self._sql(_TIMEOUT)
        for name in (name for name in self.test.given if name not in order):
            near = near_names(name, order, most=1)
            raise self._wrong(f'the test gives rows of "{name}", which {self.test.view} does not read', near)
        for schema in dict.fromkeys(schema for schema, *rest in map(key_parts, (*order, *self.definitions)) if rest):
            self._sql(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        for name in order:
            if name in self.test.given:
                self._feed(name, self.test.given[name])
            else:
                self._make(self.definitions[name])
        lacking = passed_over(self._query("FLUSH", "FLUSH", lambda frame: [tuple(row) for row in frame.collect()]))
        if lacking is not None:
            raise MismatchError(lacking, line=self.test.line)
        self._compare()

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the run created."""
        return tuple(self._topics)

    def _needed(self) -> list[str]:
        """Returns the names of the view and of the objects that the view reads, directly or indirectly. Inputs with
        given rows are included, but the objects that these inputs read are not. The names are in the order in which the
        objects can be created."""
        order: list[str] = []
        path: list[str] = []

        def visit(name: str, reader: str | None) -> None:
            if name in order:
                return
            defined = self.definitions.get(name)
            if name not in self.test.given:
                if defined is None:
                    what = "the view is not defined" if reader is None else f"{reader} reads it, and nothing defines it"
                    near = near_names(name, self.definitions, most=1)
                    hint = f"; {self.with_subfolders}" if self.with_subfolders and not near else ""
                    raise self._wrong(f'"{name}": {what}{hint}', near)
                if not isinstance(defined.statement, ast.CreateMaterializedView):
                    raise self._wrong(
                        f'the test gives no rows of "{name}", which {reader or "it"} reads; for an empty input, write '
                        f"{name}: []"
                    )
                if name in path:
                    raise self._wrong(f'"{name}" reads itself')
                path.append(name)
                for read in defined.reads:
                    visit(read, name)
                path.pop()
            order.append(name)

        if self.test.view in self.test.given:
            raise self._wrong(f'the test gives rows of "{self.test.view}", the view that it tests')
        visit(self.test.view, None)
        return order

    def _settings(self, defined: Defined | None) -> tuple[str, ...]:
        """The statements that set the session's parameters before an object is created. They first reset every
        parameter that any file sets. Then only those SET statements apply that precede the object in its own file. If
        ``defined`` is None, the parameters are only reset."""
        names = {name for each in self.definitions.values() for name, _ in each.settings} & SESSION_PARAMETERS.keys()
        resets = (_TIMEOUT if name == "statement_timeout" else f"SET {name} = DEFAULT" for name in sorted(names))
        return (*resets, *(text for _, text in (defined.settings if defined is not None else ())))

    def _set_parameters(self, defined: Defined | None) -> None:
        for text in self._settings(defined):
            self._sql(text)

    def _make(self, defined: Defined) -> None:
        self._set_parameters(defined)
        self._sql(defined.text, defined.file)

    def _feed(self, name: str, given: RowsGiven) -> None:
        """Creates an input with the given rows."""
        defined = self.definitions.get(name)
        if defined is not None and isinstance(defined.statement, ast.CreateSource | ast.CreateTable):
            self._set_parameters(defined)
            if given.records is not None or has_hidden_columns(defined.statement):
                self._feed_topic(name, defined.statement, given)
                return
            taken = self._taken_columns(name, given, defined.statement)
            schema = _schema(input_columns(defined.statement))
            whole = StructType([*taken.fields, *schema.fields])
            columns = [(column.name, self._ours(name, column)) for column in taken.fields]
            path = self._delta(name, whole, self._rows(name, given, whole))
            self._sql(fed_from_delta(defined.statement, path, columns), defined.file)
            return
        if given.records is not None:
            raise self._wrong(f'"{name}" is not a source: give rows, not records')
        self._set_parameters(None)
        schema = self._schema_of(name, given, defined)
        rows = self._rows(name, given, schema)
        columns = [(column.name, self._ours(name, column)) for column in schema.fields]
        self._sql(source_of_rows(name, columns, self._delta(name, schema, rows)))

    def _schema_of(self, name: str, given: RowsGiven, defined: Defined | None) -> StructType:
        """The columns of an input that is a view, or that no file defines."""
        if defined is not None:
            return self._view_schema(name, defined)
        return self._given_columns(given, name, f'nothing defines "{name}"', ())

    def _taken_columns(self, name: str, given: RowsGiven, statement: Input) -> StructType:
        """Returns the columns of an input that only the test specifies. They replace the columns that the input's
        definition takes from its upstream. If the definition takes no columns from its upstream, the result is
        empty."""
        if not takes_columns(statement):
            return StructType()
        own = {column.lower() for column, _ in input_columns(statement)}
        return self._given_columns(given, name, f'the columns of "{name}" come from its upstream', own)

    def _given_columns(self, given: RowsGiven, name: str, why: str, own: Collection[str]) -> StructType:
        """Returns the columns for which the test specifies types, by a query or by type names. The columns in ``own``
        are omitted, because the definition contains their types."""
        if given.sql is not None and not given.types:
            found = self._query(given.sql, f"given {name}", lambda frame: frame.schema)
        else:
            columns = [column for column in given.columns if column.lower() not in own]
            lacking = next((column for column in columns if column not in given.types), None)
            if lacking is not None or not (columns or given.types):
                raise self._wrong(f"{why}: give columns with type names of Spark, {lacking or 'id'}: BIGINT")
            found = _schema(tuple(given.types.items()))
        return StructType([column for column in found.fields if column.name.lower() not in own])

    def _view_schema(self, name: str, defined: Defined) -> StructType:
        """Returns the columns that a view would have if it were created, without creating it."""
        dry = self.attached.dry_run()
        self._foresee(name, defined, dry, set())
        record = dry.catalog.find("materialized_view", name)
        assert isinstance(record, MaterializedViewRecord)
        return StructType.fromJson(json.loads(record.schema))

    def _foresee(self, name: str, defined: Defined, dry: DryRun, done: set[str]) -> None:
        if name in done:
            return
        done.add(name)
        if isinstance(defined.statement, ast.CreateMaterializedView):
            for read in defined.reads:
                if read not in self.definitions:
                    raise self._wrong(f'{name} reads "{read}", which nothing defines: its columns are not known')
                self._foresee(read, self.definitions[read], dry, done)
            texts = (*self._settings(defined), defined.text)
        elif takes_columns(defined.statement):
            raise self._wrong(
                f'the columns of "{name}" come from its upstream, so those of the views that read it are not known: '
                f'give rows of "{name}", with columns'
            )
        else:
            path = self._delta(f"{name}-columns", _schema(input_columns(defined.statement)), [])
            texts = (*self._settings(defined), fed_from_delta(defined.statement, path))
        try:
            for text in texts:
                dry.explain(parse_statement(text))
        except SqlError as error:
            raise self._failed(error, defined.file) from error

    def _ours(self, name: str, column: StructField) -> str:
        try:
            return type_of_ours(column.dataType)
        except KeyError:
            told = f'column "{column.name}" of {name} is of type {column.dataType.simpleString()}, which no source has'
            raise self._wrong(told) from None

    def _rows(self, name: str, given: RowsGiven, schema: StructType) -> list[dict[str, Any]]:
        """The given rows, converted to the types of ``schema``. Each returned row has a value (or None) for every
        column."""
        what = f"given {name}"
        if given.sql is not None:
            _, taken = self._taken(given.sql, what)
        else:
            taken = [{str(key): value for key, value in row.items()} for row in given.rows]
        return self._fitted(taken, schema, what)

    def _taken(self, sql: str, what: str) -> tuple[list[str], list[dict[str, Any]]]:
        """Returns the names of the columns of a test's query, and the query's rows as dicts from column name to
        value."""
        schema, rows = self._query(sql, what, lambda frame: (frame.schema, frame.collect()))
        twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
        if twice is not None:
            raise self._wrong(f'the query of {what} has the column "{twice}" twice')
        return schema.names, [
            {column.name: collected(value, column.dataType) for value, column in zip(row, schema.fields, strict=True)}
            for row in rows
        ]

    def _fitted(self, rows: Sequence[Mapping[str, Any]], schema: StructType, what: str) -> list[dict[str, Any]]:
        kinds = {column.name.lower(): column for column in schema.fields}
        made: list[dict[str, Any]] = []
        for number, row in enumerate(rows, start=1):
            values: dict[str, Any] = {column.name: None for column in schema.fields}
            for key, value in row.items():
                column = kinds.get(key.lower())
                if column is None:
                    near = near_names(key, [field.name for field in schema.fields], most=1)
                    raise self._wrong(f'{what} has no column "{key}"', near)
                try:
                    values[column.name] = fitted(value, column.dataType)
                except MisfitError as misfit:
                    raise self._wrong(f'{what}, row {number}, column "{key}": {misfit}') from None
            made.append(values)
        return made

    def _delta(self, name: str, schema: StructType, rows: Sequence[Mapping[str, Any]]) -> str:
        """Writes a Delta table; returns its path."""
        path = str(self.folder / "inputs" / name)
        # A column of a view may be non-nullable, such as a count, but a test's row may omit this column.
        arrow = pa.schema(
            [column.with_nullable(True) for column in pa.schema(Schema.from_json(schema.json()).to_arrow())]
        )
        kinds = {column.name: column.dataType for column in schema.fields}
        listed = [{key: arrow_of(value, kinds[key]) for key, value in row.items()} for row in rows]
        write_deltalake(path, pa.Table.from_pylist(listed, schema=arrow))
        return path

    def _feed_topic(self, name: str, statement: Input, given: RowsGiven) -> None:
        from rw_sql.cli.servers.kafka_topics import create_topic, produce

        if connector_of(statement) != "kafka":
            if given.records is not None:
                raise self._wrong(f'the test gives Kafka records of "{name}", whose connector is not kafka')
            raise self._wrong(f'no row can be given of "{name}", because INCLUDE names columns without AS: name them')
        if self.bootstrap is None:
            why = "records of a topic" if given.records is not None else "the columns that INCLUDE names without AS"
            raise self._wrong(f'"{name}" needs a broker for {why}: run rw-sql test --kafka')
        topic = f"{self.topic}.{name}"
        records = self._records(name, statement, given)
        partitions = 1 + max((record.partition or 0 for record in records), default=0)
        create_topic(self.bootstrap, topic, partitions)
        self._topics.append(topic)
        produce(self.bootstrap, topic, records)
        self._sql(fed_from_kafka(statement, topic, self.bootstrap))

    def _records(self, name: str, statement: Input, given: RowsGiven) -> list[Any]:
        from rw_sql.cli.servers.kafka_topics import Record

        if given.records is not None:
            return [self._record(name, record) for record in given.records]
        encode = statement.format.encode.upper() if statement.format is not None else ""
        if encode != "JSON" or statement.format is None or statement.format.format.upper() not in ("PLAIN", "UPSERT"):
            raise self._wrong(f'give records instead of rows of "{name}": rows need FORMAT PLAIN or UPSERT ENCODE JSON')
        included = {include_name("kafka", column): column for column in statement.include}
        fields = {column.name: field_of(column) for column in statement.columns}
        made = []
        for row in self._rows(name, given, _schema(input_columns(statement))):
            placed: dict[str, Any] = {"headers": []}
            for key, column in included.items():
                value = row.pop(key)
                match column.kind:
                    case _ if value is None:
                        pass
                    case "key":
                        placed["key"] = value
                    case "partition":
                        placed["partition"] = int(value)
                    case "timestamp":
                        placed["timestamp_ms"] = int(value.timestamp() * 1000)
                    case "header" if column.inner is not None:
                        placed["headers"].append((column.inner, value if isinstance(value, bytes) else value.encode()))
                    case "header":
                        placed["headers"] += [(entry["key"], entry["value"]) for entry in value]
                    case kind:
                        raise self._wrong(f'"{name}": {kind} is set by the broker; omit "{key}"')
            body = json.dumps({fields[key]: json_of(value) for key, value in row.items()}, ensure_ascii=False)
            made.append(Record(value=body.encode(), **{**placed, "headers": tuple(placed["headers"])}))
        return made

    def _record(self, name: str, record: Mapping[str, Any]) -> Any:
        from rw_sql.cli.servers.kafka_topics import Record

        headers = record.get("headers") or {}
        try:
            at = record.get("timestamp")
            return Record(
                value=_bytes(record.get("value")),
                key=_bytes(record.get("key")),
                partition=record.get("partition"),
                timestamp_ms=None if at is None else int(fitted(at, TimestampType()).timestamp() * 1000),
                headers=tuple((str(key), _bytes(value) or b"") for key, value in headers.items()),
            )
        except (MisfitError, AttributeError, TypeError) as error:
            raise self._wrong(f"a record of {name} is wrong: {error}") from error

    def _compare(self) -> None:
        expect = self.test.expect
        if expect.sql is not None:
            columns, listed = self._taken(expect.sql, "expect")
        else:
            columns = list(expect.columns)
            listed = [{str(key): value for key, value in row.items()} for row in expect.rows]

        def read(shown: DataFrame) -> tuple[StructType, list[Any]]:
            known = {column.name.lower(): column for column in shown.schema.fields}
            for column in columns:
                if column.lower() not in known:
                    near = near_names(column, [found.name for found in shown.schema.fields], most=1)
                    hint = f'did you mean "{near[0]}"?' if near else f"it has {', '.join(shown.columns)}"
                    raise MismatchError(f'{self.test.view} has no column "{column}"', hint, line=self.test.line)
            schema = StructType([known[column.lower()] for column in columns] or list(shown.schema.fields))
            return schema, shown.select(*(quoted_for_spark(column.name) for column in schema.fields)).collect()

        schema, rows = read(self._view_rows())
        expected = [tuple(text_of(value) for value in row.values()) for row in self._fitted(listed, schema, "expect")]
        found = [
            tuple(text_of(collected(value, column.dataType)) for value, column in zip(row, schema.fields, strict=True))
            for row in rows
        ]
        difference = compare_rows(schema.names, expected, found)
        if not difference.is_empty:
            raise MismatchError(f"{self.test.view}: {difference.summary}", difference.render(), line=self.test.line)

    def _view_rows(self) -> DataFrame:
        """The rows of the tested view, read from the files of its table.

        For a few rows, a SELECT would take several times as long as reading the files directly, because Delta Lake
        first computes the state of the table in Spark jobs.
        """
        view = catalog_of(self.attached).find("materialized_view", self.test.view)
        assert isinstance(view, MaterializedViewRecord)
        rows = rows_now(self.attached.spark, Warehouse.at(self.attached.warehouse).data(view.id, view.generation))
        return rows.select(*(quoted_for_spark(name) for name, _ in schema_columns(view.schema)))

    def _query(self, text: str, what: str, read: Callable[[DataFrame], _Read]) -> _Read:
        """Runs a query, calls ``read`` with the result, and returns the value of this call. Spark errors inside
        ``read`` count as errors of the query."""
        kept: list[_Read] = []
        part = ScriptStatement(text=text, start=0, line=1, column=1)
        try:
            run_part(self.attached, part, text, None, lambda frame: kept.append(read(frame)))
        except SqlError as error:
            raise self._failed(error, what) from error
        return kept[0]

    def _sql(self, text: str, file: str | None = None) -> None:
        part = ScriptStatement(text=text, start=0, line=1, column=1)
        try:
            run_part(self.attached, part, text, None)
        except SqlError as error:
            raise self._failed(error, file) from error

    def _failed(self, error: SqlError, where: str | None) -> MismatchError:
        told = f"{where}: " if where else ""
        return MismatchError(f"{told}{error.code}: {error.message}", error.render(), line=self.test.line)

    def _wrong(self, message: str, near: Sequence[str] = ()) -> WrongTestError:
        hint = f'; did you mean "{near[0]}"?' if near else ""
        return WrongTestError(message + hint, file=self.test.file, line=self.test.line)


def type_of_ours(kind: DataType) -> str:
    """Returns the rw_sql type with which a source declares a column of a Spark type. Raises KeyError if there is no
    such type."""
    match kind:
        case DecimalType():
            return f"NUMERIC({kind.precision}, {kind.scale})"
        case ArrayType():
            return f"{type_of_ours(kind.elementType)}[]"
        case MapType():
            return f"MAP({type_of_ours(kind.keyType)}, {type_of_ours(kind.valueType)})"
        case StructType():
            fields = ", ".join(f"{quoted(field.name)} {type_of_ours(field.dataType)}" for field in kind.fields)
            return f"STRUCT<{fields}>"
        case _:
            return _OURS[type(kind)]


def _schema(columns: Sequence[tuple[str, str]]) -> StructType:
    made = StructType()
    for name, kind in columns:
        made.add(name, DataType.fromDDL(kind), nullable=True)
    return made


def _bytes(value: Any) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return bytes.fromhex(value[2:]) if value.startswith("\\x") else value.encode()
        case bytes():
            return value
        case _:
            return json.dumps(json_of(value), ensure_ascii=False, default=str).encode()
