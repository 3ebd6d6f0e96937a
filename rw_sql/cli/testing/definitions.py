"""Reads the pipeline under test: the CREATE statements in its files, and the names of the objects that each view
reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.cli.formatting.command import statement_of
from rw_sql.cli.script.environments import environment_above
from rw_sql.cli.script.loading import hiding_of, load_scripts
from rw_sql.cli.testing.outcome import WrongTestError
from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from rw_sql.model.definitions import (
    CDC_COLUMNS,
    connector_of,
    has_schema,
    include_name,
    include_type,
    is_cdc,
)
from rw_sql.syntax import parse_statement, render, spark_type
from rw_sql.syntax import statements as ast
from rw_sql.syntax.dialect.to_spark import to_spark
from rw_sql.syntax.lexing.identifiers import literal, quoted, sql_name
from rw_sql.syntax.query.tables_read import table_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rw_sql.cli.script.loading import SecretHider

Input = ast.CreateSource | ast.CreateTable
Definition = Input | ast.CreateMaterializedView


@dataclass(frozen=True, slots=True, kw_only=True)
class Defined:
    """One object of the pipeline, with its statement, the SET statements that apply to it, and its file.

    ``settings`` are the SET statements that precede the object's statement in the file, each with the name of the
    parameter.
    """

    statement: Definition
    settings: tuple[tuple[str, str], ...]
    dialect: str
    file: str

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the objects that the object reads; empty unless the object is a view."""
        if not isinstance(self.statement, ast.CreateMaterializedView):
            return ()
        if self.dialect == "risingwave":
            closes = self.statement.is_emit_on_window_close
            return to_spark(self.statement.query, is_emit_on_window_close=closes).tables
        return table_names(self.statement.query.text)

    @property
    def text(self) -> str:
        """The statement in canonical form."""
        return render(self.statement)


def read_definitions(
    files: Sequence[str], variables: Mapping[str, str], env: str | None = None
) -> tuple[dict[str, Defined], SecretHider]:
    """The sources, tables and materialized views that ``files`` create, by name. A SET statement applies to the objects
    that follow it in its file. All other statements are skipped. The second result hides the values of variables whose
    names suggest that the values are secret.

    ``env`` is the environment whose files contain the values of ``${name}``.

    Raises WrongTestError if a file cannot be read, a statement is invalid, or two statements create objects with the
    same name.
    """
    found: dict[str, Defined] = {}
    try:
        scripts, hide = load_scripts(files, variables, lambda file: environment_above(file, env))
    except SqlError as error:
        told = hiding_of(variables).values(error.render())
        raise WrongTestError(told, file=error.file or files[0], line=error.line) from error
    for script in scripts:
        settings: list[tuple[str, str]] = []
        dialect = "spark"
        for part in script.parts:
            file, line, _ = script.place(part)
            try:
                statement = statement_of(part.text)
            except SqlError as error:
                script.expanded.locate(error.moved_into(script.expanded.text, part.start, part.line, part.column, None))
                raise WrongTestError(hide.values(error.render()), file=file or "-", line=error.line) from error
            match statement:
                case ast.SetParameter(parameter=name, value=value):
                    settings.append((name, part.text))
                    if name == "query_dialect":
                        dialect = "spark" if value is None else value.text.strip().lower()
                case ast.CreateSource() | ast.CreateTable() | ast.CreateMaterializedView():
                    name = statement.name.key
                    if name in found:
                        told = f'"{name}" is defined in {found[name].file} too'
                        raise WrongTestError(told, file=file or "-", line=line)
                    found[name] = Defined(
                        statement=statement, settings=tuple(settings), dialect=dialect, file=file or "-"
                    )
    return found, hide


def input_columns(statement: Input) -> tuple[tuple[str, str], ...]:
    """Returns the columns that a test's rows may fill and whose types are known from the definition, each with its
    Spark type. These are the INCLUDE columns, and the declared columns except generated columns. Columns that the
    definition takes from the upstream are missing. For a source that captures changes, the result is CDC_COLUMNS."""
    if isinstance(statement, ast.CreateSource) and is_cdc(statement):
        return CDC_COLUMNS
    name = _including(statement)
    plain = [(column.name, spark_type(column.data_type)) for column in statement.columns if column.generated is None]
    return (*plain, *((include_name(name, column), include_type(column)) for column in statement.include))


def takes_columns(statement: Input) -> bool:
    """True if the definition takes columns from the upstream: from a captured table, or from the schema of the
    records."""
    if statement.wildcard is not None:
        return True
    return has_schema(statement) and all(column.generated is not None for column in statement.columns)


def has_hidden_columns(statement: Input) -> bool:
    """True if INCLUDE adds columns with reserved names. Only the connector can fill such columns."""
    return any((column.alias or "_rw_").startswith("_rw_") for column in statement.include)


def fed_from_delta(statement: Input, path: str, taken: Iterable[tuple[str, str]] = ()) -> str:
    """Returns a statement that creates the same columns as ``statement``, but reads them from the Delta table at
    ``path``. The table's columns have the same names.

    ``taken`` are columns, each with its rw_sql type. They replace the columns that the definition takes from the
    upstream. If the definition also takes the table's key from the upstream, the changed statement has no key.
    """
    if isinstance(statement, ast.CreateSource) and is_cdc(statement):
        of_changes = ((name, "TIMESTAMPTZ" if kind == "TIMESTAMP" else "VARCHAR") for name, kind in CDC_COLUMNS)
        return source_of_rows(statement.name.key, of_changes, path)
    own, at = statement.columns, statement.wildcard or 0
    own = tuple(replace(column, field=None) for column in own)
    listed = (*own[:at], *(_declared(name, kind) for name, kind in taken), *own[at:])
    connector_name = _including(statement)
    columns = (*listed, *(_plain_column(connector_name, column) for column in statement.include))
    options = _options({"connector": "delta", "delta.path": path})
    return render(
        replace(statement, columns=columns, wildcard=None, include=(), options=options, format=None, cdc_table=None)
    )


def fed_from_kafka(statement: Input, topic: str, bootstrap: str) -> str:
    """Returns a statement that reads a topic, with the same columns and the same format as ``statement``."""
    options = _options({"connector": "kafka", "topic": topic, "properties.bootstrap.server": bootstrap})
    return render(replace(statement, options=options))


def source_of_rows(name: str, columns: Iterable[tuple[str, str]], path: str) -> str:
    """A source with these columns (in rw_sql's names and types) that reads a Delta table."""
    listed = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns)
    return f"CREATE SOURCE {sql_name(name)} ({listed}) WITH (connector = 'delta', delta.path = {literal(path)})"


def _plain_column(connector_name: str, column: ast.IncludeColumn) -> ast.ColumnDefinition:
    if column.kind == "header" and column.inner is not None:
        kind = "BYTEA" if column.inner_type is None else None
    else:
        kind = connector(connector_name).spec.include[column.kind].type
    if kind is None:
        assert column.inner_type is not None
        return ast.ColumnDefinition(name=include_name(connector_name, column), data_type=column.inner_type)
    return _declared(include_name(connector_name, column), kind)


def _including(statement: Input) -> str:
    """Returns the name of the connector that fills the INCLUDE columns of an input; empty if the input has no
    connector. For a captured table, this is PostgreSQL's connector, because it has the INCLUDE columns of all
    connectors that capture changes."""
    return connector_of(statement) or ("postgres-cdc" if statement.cdc_table is not None else "")


def _declared(name: str, kind: str) -> ast.ColumnDefinition:
    made = parse_statement(f"CREATE SOURCE s (c {kind}) WITH (connector = 'datagen')")
    assert isinstance(made, ast.CreateSource)
    return replace(made.columns[0], name=name)


def _options(values: Mapping[str, str]) -> tuple[ast.Option, ...]:
    return tuple(ast.Option(key=key, value=ast.TextValue(text=value)) for key, value in values.items())
