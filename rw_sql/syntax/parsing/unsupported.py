"""Refuses statements that the grammar accepts but that have no meaning in rw_sql, and suggests alternatives.

The refused statements never run. For all other statements, the planner decides whether they are supported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.syntax import statements as ast

if TYPE_CHECKING:
    from rw_sql.syntax.statements import Statement

_INSTEAD: dict[type[Statement], tuple[str, str]] = {
    ast.AlterOwner: ("OWNER TO", "objects have no owners here: grant rights on the warehouse's folders"),
    ast.AlterSetConfig: ("SET CONFIG", "SHOW ALL lists the parameters of ALTER SYSTEM SET"),
    ast.AlterResetConfig: ("RESET CONFIG", "ALTER SYSTEM SET parameter = DEFAULT"),
    ast.AlterFragment: (
        "ALTER FRAGMENT",
        "PAUSE SOURCE stops a reader; ALTER SOURCE … SET source_rate_limit limits its rate",
    ),
    ast.AlterSourceReset: (
        "ALTER SOURCE ... RESET",
        "RESET SOURCE SPLITS discards splits, INJECT SOURCE OFFSETS sets positions",
    ),
    ast.DescribeFragments: ("DESCRIBE FRAGMENTS", "SHOW JOBS lists the jobs, SHOW SOURCE SPLITS their positions"),
    ast.DescribeFragment: ("DESCRIBE FRAGMENT", "SHOW JOBS lists the jobs, SHOW SOURCE SPLITS their positions"),
    ast.BeginTransaction: (
        "BEGIN",
        "BEGIN UNSAFE combines several statements into one operation",
    ),
    ast.Recover: ("RECOVER", "jobs restart automatically; SHOW JOBS shows why one is stopped"),
}
_SETTINGS = {
    "SOURCE": ("source_rate_limit", "barrier_interval_ms", "resource_group"),
    "TABLE": ("source_rate_limit", "barrier_interval_ms", "backfill_rate_limit", "resource_group"),
    "MATERIALIZED VIEW": ("backfill_rate_limit", "parallelism", "resource_group"),
    "SINK": ("resource_group",),
}
"""The settings that ALTER … SET can change, by object kind."""

_ALTER_SET = {
    "parallelism": "the partitions of the upstream determine how many tasks a reader has; ALTER MATERIALIZED VIEW … "
    "SET PARALLELISM sets the parallelism of a view, and ALTER SYSTEM SET streaming_parallelism that of new views",
    "backfill_parallelism": "the partitions of its input determine how many tasks a backfill has",
    "streaming_enable_unaligned_join": "Spark's joins have no such mode",
    "source_rate_limit": "ALTER SOURCE … SET source_rate_limit limits the rate of its source",
    "backfill_rate_limit": "ALTER MATERIALIZED VIEW … SET backfill_rate_limit limits how its history is read",
    "dml_rate_limit": "there is nothing to limit: rows come from sources",
    "sink_rate_limit": "PAUSE SINK stops a sink",
}
_SHOW_KINDS = {
    "INTERNAL TABLES": "SHOW SOURCE SPLITS shows positions, rw_catalog everything else",
    "SUBSCRIPTIONS": "read the view's Delta table, or its change data feed, from Spark",
    "PROCESSLIST": "SHOW JOBS",
    "CURSORS": "read the view's Delta table from Spark",
    "SUBSCRIPTION CURSORS": "read the view's Delta table from Spark",
}


_EXPLAINED = frozenset({"FORMAT TEXT", "FORMAT JSON", "FORMAT MERMAID", "FORMAT SVG"})
_EXPLAIN_HINT = "EXPLAIN alone prints the steps; EXPLAIN (FORMAT JSON), MERMAID and SVG are the other forms"


def unsupported(statement: Statement) -> SqlError | None:
    """The error NOT_SUPPORTED, with a hint, for a statement without a meaning in rw_sql; None for other statements."""
    if isinstance(statement, ast.Explain):
        if statement.is_analyze or not _EXPLAINED.issuperset(statement.options):
            return _error("EXPLAIN with this option", _EXPLAIN_HINT, statement)
        return unsupported(statement.statement)
    found = _INSTEAD.get(type(statement))
    if found is None:
        found = _by_word(statement)
    return _error(*found, statement) if found is not None else None


def _by_word(statement: Statement) -> tuple[str, str] | None:
    match statement:
        case ast.AlterSet() if statement.parameter not in _SETTINGS.get(statement.kind, ()):
            instead = _ALTER_SET.get(statement.parameter, "SHOW ALL lists the parameters")
            return f"SET {statement.parameter.upper()}", instead
        case ast.ShowObjects() if statement.kind in _SHOW_KINDS:
            return f"SHOW {statement.kind}", _SHOW_KINDS[statement.kind]
        case ast.ShowColumns() if statement.kind == "INDEXES":
            return "SHOW INDEXES", "Delta tables have no indexes; DESCRIBE shows the columns"
        case ast.ShowCreate() if statement.kind in ("INDEX", "SUBSCRIPTION"):
            return f"SHOW CREATE {statement.kind}", "SHOW MATERIALIZED VIEWS lists all materialized views"
        case ast.Wait() if statement.kind == "INDEX":
            return "WAIT INDEX", "FLUSH waits until every running view and sink has read all existing records"
        case ast.CreateSource() if statement.cdc_table is not None:
            return (
                "CREATE SOURCE ... FROM a CDC source",
                "let Debezium write the table to a Kafka topic, and read that topic",
            )
        case ast.CreateTable() if _has_no_rows(statement):
            return "CREATE TABLE without columns", "list them: (id INT)"
        case ast.CreateTable() if statement.engine is not None:
            return "ENGINE", "omit ENGINE: tables are Delta tables"
        case ast.CreateTable() if statement.webhook is not None or _connector(statement) == "webhook":
            return (
                "the webhook connector",
                "let the sender write to a Kafka topic, and create a source that reads this topic",
            )
        case _:
            return None


def _has_no_rows(table: ast.CreateTable) -> bool:
    """True if no clause of CREATE TABLE defines the table's columns."""
    told = table.columns or table.query or table.cdc_table or table.wildcard is not None or table.options
    return not told


def _connector(table: ast.CreateTable) -> str | None:
    for option in table.options:
        if option.key == "connector" and isinstance(option.value, ast.TextValue):
            return option.value.text
    return None


def _error(what: str, instead: str, statement: Statement) -> SqlError:
    return SqlError(NOT_SUPPORTED, f"{what} is understood but not supported", hint=instead, span=statement.span)
