"""Reads the definitions of tables from the server's ``information_schema``: columns, primary key, foreign keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError, UpstreamColumn, UpstreamTable
from rw_sql.connectors.mysql_cdc.connection import code_of, databases_of, parts_of, quoted, rows_of
from rw_sql.connectors.mysql_cdc.types import MysqlType, type_of
from rw_sql.errors import UPSTREAM_MISSING, near_names
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pymysql
    from pymysql.connections import Connection
else:
    pymysql = deferred("pymysql")

_TABLE = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_ROWS FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""
_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, NUMERIC_PRECISION, NUMERIC_SCALE, COLUMN_DEFAULT,
    IS_NULLABLE, EXTRA, COLLATION_NAME
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_KEY = """
SELECT COLUMN_NAME FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX
"""
_CHECKS = """
SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s
"""
_OTHERS = """
SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) FROM information_schema.TABLES
WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA IN ({}) ORDER BY 1 LIMIT 1000
"""
_JSON_CHECK = re.compile(r"^\(?json_valid\(`((?:[^`]|``)*)`\)\)?$", re.IGNORECASE)
_NO_TABLE = (1109, 1054)
_DEFINITION = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|''|\\.)*'|\w+|\S", re.DOTALL)
_ACTIONS = (["CASCADE"], ["SET", "NULL"], ["SET", "DEFAULT"])


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogColumn:
    """A column. ``type_name`` is the type in the server's notation. ``charset`` and ``collation`` are the character set
    and the collation of a text column."""

    name: str
    type_name: str
    type: MysqlType
    data_type: str
    charset: str | None
    collation: str | None
    default: str | None
    is_nullable: bool
    is_generated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTable:
    """A table or view. ``is_versioned`` is true if MariaDB keeps earlier versions of the table's rows (system
    versioning)."""

    database: str
    name: str
    is_view: bool
    is_versioned: bool
    engine: str | None
    rows_estimated: int | None
    columns: tuple[CatalogColumn, ...]
    key: tuple[str, ...]

    @property
    def quoted(self) -> str:
        """The table's name as it is written in SQL, with quotes."""
        return f"{quoted(self.database)}.{quoted(self.name)}"

    @property
    def types(self) -> dict[str, str]:
        """The columns that the records contain, with their types in the server's spelling."""
        return {
            column.name: column.type_name
            for column in self.columns
            if not column.is_generated and column.type.canonical is not None
        }

    @property
    def key_order(self) -> str:
        """The collations of the key's columns, in the order of the key. The collation of a column without text is
        empty."""
        collations = {column.name: column.collation or "" for column in self.columns}
        return ",".join(collations.get(name, "") for name in self.key)


def named(table: str) -> tuple[str, str]:
    """Returns the database and the name of a table that is written as ``db.table``. Raises CaptureError for any other
    string."""
    parts = parts_of(table)
    if parts is None:
        raise CaptureError(
            UPSTREAM_MISSING,
            f"Invalid MySQL CDC table name '{table}'. Expected 'database.table'.",
            hint="TABLE 'database.table'; a name with a dot is written in backticks",
        )
    return parts


def find_table(connection: Connection[Any], table: str) -> CatalogTable | None:
    """The table; None if the table does not exist, or if the user has no privilege on the table. Raises pymysql.Error
    or CaptureError.
    """
    database, name = named(table)
    found = rows_of(connection, _TABLE, [database, name])
    if not found:
        return None
    (schema, plain, kind, engine, rows) = found[0]
    return CatalogTable(
        database=schema,
        name=plain,
        is_view="VIEW" in kind.upper(),
        is_versioned="VERSIONED" in kind.upper(),
        engine=engine,
        rows_estimated=None if rows is None else int(rows),
        columns=columns_of(connection, schema, plain),
        key=tuple(str(row[0]) for row in rows_of(connection, _KEY, [schema, plain])),
    )


def columns_of(connection: Connection[Any], database: str, name: str) -> tuple[CatalogColumn, ...]:
    """The columns of a table, in the order of the table. Raises pymysql.Error."""
    rows = rows_of(connection, _COLUMNS, [database, name])
    are_json = _checked_as_json(connection, database, name) if any(row[1] == "longtext" for row in rows) else ()
    return tuple(
        CatalogColumn(
            name=column,
            type_name=written if column not in are_json else f"json ({written})",
            type=type_of(
                data_type,
                written,
                None if precision is None else int(precision),
                None if scale is None else int(scale),
                is_json=column in are_json,
            ),
            data_type=data_type.lower(),
            charset=charset,
            collation=collation,
            default=default,
            is_nullable=nullable == "YES",
            is_generated="GENERATED" in extra.upper().replace("DEFAULT_GENERATED", ""),
        )
        for column, data_type, written, charset, precision, scale, default, nullable, extra, collation in rows
    )


def _checked_as_json(connection: Connection[Any], database: str, name: str) -> tuple[str, ...]:
    """The columns of MariaDB's type JSON. These are text columns with a CHECK that the values are valid JSON."""
    try:
        rows = rows_of(connection, _CHECKS, [database, name])
    except pymysql.Error as error:
        if code_of(error) in _NO_TABLE:
            return ()
        raise
    found = (_JSON_CHECK.match(str(row[0]).strip()) for row in rows)
    return tuple(match[1].replace("``", "`") for match in found if match is not None)


def cascades_of(connection: Connection[Any], table: CatalogTable) -> tuple[str, ...]:
    """The foreign keys whose actions change the table's rows without an entry in the log. Raises pymysql.Error.

    MariaDB shows the foreign keys in ``information_schema`` only to users who may write to the table. The function
    therefore uses SHOW CREATE TABLE, which needs only the privilege SELECT.
    """
    rows = rows_of(connection, f"SHOW CREATE TABLE {table.quoted}")
    return tuple(cascades_in(str(rows[0][1])))


def cascades_in(definition: str) -> Iterator[str]:
    """The names of the foreign keys that have an action CASCADE, SET NULL or SET DEFAULT in the text of a CREATE
    TABLE."""
    words = _DEFINITION.findall(definition)
    name = ""
    for at, word in enumerate(words):
        if words[at : at + 3 : 2] == ["CONSTRAINT", "FOREIGN"]:
            name = words[at + 1]
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        is_action = word == "ON" and words[at + 1 : at + 2] in (["DELETE"], ["UPDATE"])
        if name and is_action and any(words[at + 2 : at + 2 + len(action)] == action for action in _ACTIONS):
            yield name
            name = ""


def cascade_error(table: CatalogTable, names: tuple[str, ...]) -> tuple[str, str]:
    """The message and the hint for a table that cannot be captured, because foreign keys (``names``) change its rows
    without an entry in the log."""
    return (
        f"foreign key {quoted(names[0])} of table {table.database}.{table.name} has an action (CASCADE or SET NULL), "
        "and MySQL does not log the rows that the action changes",
        f"ALTER TABLE {table.quoted} DROP FOREIGN KEY {quoted(names[0])}, and add it with ON DELETE RESTRICT "
        "ON UPDATE RESTRICT",
    )


def versioning_error(table: CatalogTable) -> tuple[str, str]:
    """The message and the hint for a table that cannot be captured because it has system versioning. For a table with
    system versioning, the log contains updates instead of deletes. The log also contains inserts of earlier versions of
    a row, and these versions have the key of the present row."""
    return (
        f"table {table.database}.{table.name} has system versioning, and the log does not distinguish its rows from "
        "their earlier versions",
        f"ALTER TABLE {table.quoted} DROP SYSTEM VERSIONING",
    )


def shared_lock(version: str) -> str:
    """The clause of a SELECT that locks its rows against writers; empty for MariaDB, whose snapshots need no locks.

    MySQL has two such clauses, which take the same locks. From MySQL 8.0.22 on, FOR SHARE needs only the privilege to
    read.
    """
    if "mariadb" in version.lower():
        return ""
    return "LOCK IN SHARE MODE" if version.startswith("5.") else "FOR SHARE"


def missing_table(connection: Connection[Any], options: Mapping[str, str], table: str) -> CaptureError:
    """The error for a table that does not exist. The hint lists similar names."""
    databases = databases_of(options)
    query = _OTHERS.format(", ".join(["%s"] * len(databases)))
    others = [str(row[0]) for row in rows_of(connection, query, databases)]
    near = near_names(table, others)
    hint = f"did you mean '{near[0]}'?" if near else "tables: " + (", ".join(others[:8]) or "none")
    return CaptureError(UPSTREAM_MISSING, f"MySQL table '{table}' doesn't exist", hint=hint)


def other_database(options: Mapping[str, str], table: str) -> CaptureError | None:
    """The error for a table outside of the source's databases."""
    database, _ = named(table)
    if database in databases_of(options):
        return None
    return CaptureError(
        UPSTREAM_MISSING,
        f"The database name `{database}` in the FROM clause is not included in the database name "
        f"`{options['database.name']}` in source definition",
        hint=f"TABLE '{databases_of(options)[0]}.…', or a source with database.name = "
        f"'{options['database.name']}, {database}'",
    )


_CONSTANT = re.compile(r"^'((?:[^']|'')*)'$|^(-?[0-9.]+)$")
_TEXTS = ("char", "varchar", "enum", "set", "date", "datetime", "timestamp", "time")


def constant_default(column: CatalogColumn, *, is_mariadb: bool) -> str | None:
    """The text of a column's default if the default is a constant; otherwise None. MariaDB quotes constants, and MySQL
    marks expressions in the column EXTRA."""
    if column.default is None or column.default == "NULL":
        return None
    if is_mariadb:
        found = _CONSTANT.match(column.default)
        return None if found is None else (found[1] if found[1] is not None else found[2]).replace("''", "'")
    if column.data_type in _TEXTS:
        return None if column.default.upper().startswith("CURRENT_TIMESTAMP") else column.default
    return column.default if _CONSTANT.match(column.default) else None


def describe(connection: Connection[Any], options: Mapping[str, str], table: str) -> UpstreamTable:
    """See :meth:`rw_sql.connectors.changes.ChangeConnector.describe_table`. Raises pymysql.Error or CaptureError."""
    other = other_database(options, table)
    if other is not None:
        raise other
    found = find_table(connection, table)
    if found is None:
        raise missing_table(connection, options, table)
    is_mariadb = "mariadb" in str(rows_of(connection, "SELECT VERSION()")[0][0]).lower()
    return UpstreamTable(
        table=table,
        key=found.key,
        rows_estimated=found.rows_estimated,
        columns=tuple(
            UpstreamColumn(
                name=column.name,
                type=column.type_name,
                canonical=None if column.is_generated else column.type.canonical,
                family=column.type.family,
                refusal="generated columns are computed by the server" if column.is_generated else column.type.refusal,
                default=None if column.is_generated else constant_default(column, is_mariadb=is_mariadb),
                is_nullable=column.is_nullable,
                is_generated=column.is_generated,
                accepts=None if column.is_generated or column.type.canonical is None else column.type.fits_into,
            )
            for column in found.columns
        ),
    )
