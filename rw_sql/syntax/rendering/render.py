"""Renders a statement as canonical text. This text has upper-case keywords, canonical types, quotes only where
necessary, and options in the order in which they were written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.identifiers import literal
from rw_sql.syntax.rendering import alter, create, operations
from rw_sql.syntax.rendering.parts import (
    column_text,
    given,
    include_text,
    key_text,
    name_text,
    option_text,
    reason_text,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RENDERERS", "column_text", "include_text", "key_text", "name_text", "option_text", "render", "value_text"]


def render(statement: ast.Statement) -> str:
    """The canonical text of a statement, without ``;``. Parsing this text gives an equal statement.

    The text of CREATE SECRET and ALTER SECRET includes the secret value. Callers must redact the value before they
    store or print the text.
    """
    return RENDERERS[type(statement)](statement)


def _dropping(kind: str) -> Callable[[Any], str]:
    return lambda s: create.drop(kind, s.if_exists, s.name, s.is_cascade)


def _named(words: str) -> Callable[[Any], str]:
    return lambda s: f"{words} {name_text(s.name)}"


def _named_with_reason(words: str) -> Callable[[Any], str]:
    return lambda s: f"{words} {name_text(s.name)}{reason_text(s.reason)}"


def _with_reason(words: str) -> Callable[[Any], str]:
    return lambda s: f"{words}{reason_text(s.reason)}"


def _words(words: str) -> Callable[[Any], str]:
    return lambda _: words


def _explain(s: ast.Explain) -> str:
    options = f" ({', '.join(s.options)})" if s.options else ""
    return f"EXPLAIN{' ANALYZE' if s.is_analyze else ''}{options} {render(s.statement)}"


def _block(s: ast.UnsafeBlock) -> str:
    return ";\n".join([f"BEGIN UNSAFE{reason_text(s.reason)}", *map(render, s.statements), "COMMIT"])


RENDERERS: dict[type[ast.Statement], Callable[[Any], str]] = {
    ast.AlterAddColumn: alter.add_column,
    ast.AlterConnectionOptions: alter.connection_options,
    ast.AlterConnector: alter.connector,
    ast.AlterFragment: alter.fragment,
    ast.AlterMaterializedViewQuery: alter.materialized_view_query,
    ast.AlterOwner: alter.owner,
    ast.AlterRefreshSchema: alter.refresh_schema,
    ast.AlterRename: alter.rename,
    ast.AlterReset: alter.reset,
    ast.AlterResetConfig: alter.reset_config,
    ast.AlterSecret: alter.secret,
    ast.AlterSet: alter.set_,
    ast.AlterSetConfig: alter.set_config,
    ast.AlterSetConnection: alter.set_connection,
    ast.AlterSetSchema: alter.set_schema,
    ast.AlterSourceFormat: alter.source_format,
    ast.AlterSourceReset: alter.source_reset,
    ast.AlterSourceUnsafeSet: lambda s: alter.unsafe_set("SOURCE", s),
    ast.AlterSwap: alter.swap,
    ast.AlterSystemSet: operations.alter_system_set,
    ast.AlterTableAddConstraint: alter.add_constraint,
    ast.AlterTableColumn: alter.table_column,
    ast.AlterTableDropColumn: alter.drop_column,
    ast.AlterTableDropConnector: alter.drop_connector,
    ast.AlterTableRenameColumn: alter.rename_column,
    ast.AlterTableRenameConstraint: alter.rename_constraint,
    ast.AlterTableUnsafeSet: lambda s: alter.unsafe_set("TABLE", s),
    ast.AlterTableWatermark: alter.table_watermark,
    ast.BeginTransaction: lambda s: "START TRANSACTION" if s.is_start else "BEGIN",
    ast.BeginUnsafe: _with_reason("BEGIN UNSAFE"),
    ast.CancelJobs: lambda s: f"CANCEL JOBS {', '.join(map(str, s.ids))}",
    ast.Commit: _words("COMMIT"),
    ast.Confirm: lambda s: f"CONFIRM {literal(s.token)}",
    ast.CreateConnection: create.create_connection,
    ast.CreateMaterializedView: create.create_materialized_view,
    ast.CreateSchema: lambda s: f"CREATE SCHEMA{given(s.if_not_exists, 'IF NOT EXISTS')} {name_text(s.name)}",
    ast.CreateSecret: create.create_secret,
    ast.CreateSink: create.create_sink,
    ast.CreateSource: create.create_source,
    ast.CreateTable: create.create_table,
    ast.Describe: _named("DESCRIBE"),
    ast.DescribeFragment: lambda s: f"DESCRIBE FRAGMENT {s.id}",
    ast.DescribeFragments: _named("DESCRIBE FRAGMENTS"),
    ast.DropConnection: _dropping("CONNECTION"),
    ast.DropMaterializedView: _dropping("MATERIALIZED VIEW"),
    ast.DropSchema: _dropping("SCHEMA"),
    ast.DropSecret: _dropping("SECRET"),
    ast.DropSink: _dropping("SINK"),
    ast.DropSource: _dropping("SOURCE"),
    ast.DropTable: _dropping("TABLE"),
    ast.Explain: _explain,
    ast.Flush: _words("FLUSH"),
    ast.InjectCheckpointOffsets: lambda s: operations.inject(
        f"INJECT CHECKPOINT OFFSETS {literal(s.path)}", s, operations.checkpoint_options(s)
    ),
    ast.InjectSourceOffsets: lambda s: operations.inject(f"INJECT SOURCE OFFSETS {name_text(s.name)}", s),
    ast.PauseAllSources: _with_reason("PAUSE ALL SOURCES"),
    ast.PauseSink: _named_with_reason("PAUSE SINK"),
    ast.PauseSource: _named_with_reason("PAUSE SOURCE"),
    ast.RebuildMaterializedView: operations.rebuild_materialized_view,
    ast.Recover: _words("RECOVER"),
    ast.RefreshTable: _named("REFRESH TABLE"),
    ast.ReplaceSink: create.replace_sink,
    ast.ResetSourceSplits: operations.reset_source_splits,
    ast.ResumeAllSources: _with_reason("RESUME ALL SOURCES"),
    ast.ResumeSink: _named_with_reason("RESUME SINK"),
    ast.ResumeSource: _named_with_reason("RESUME SOURCE"),
    ast.RewindSource: operations.rewind_source,
    ast.Rollback: _words("ROLLBACK"),
    ast.SetParameter: operations.set_parameter,
    ast.SetTimeZone: operations.set_time_zone,
    ast.ShowCheckpoint: operations.show_checkpoint,
    ast.ShowColumns: lambda s: f"SHOW {s.kind} FROM {name_text(s.name)}{operations.show_filter(s)}",
    ast.ShowCreate: lambda s: f"SHOW CREATE {s.kind} {name_text(s.name)}",
    ast.ShowLineage: lambda s: "SHOW LINEAGE" + (f" OF {name_text(s.name)}" if s.name else ""),
    ast.ShowMetrics: _words("SHOW METRICS"),
    ast.ShowObjects: operations.show_objects,
    ast.ShowParameter: operations.show_parameter,
    ast.ShowSourceContinuity: _named("SHOW SOURCE CONTINUITY"),
    ast.ShowSourceSplits: _named("SHOW SOURCE SPLITS"),
    ast.ShowUnsafeOperations: lambda s: "SHOW UNSAFE OPERATIONS" + (f" FOR {name_text(s.name)}" if s.name else ""),
    ast.SkipRecord: operations.skip_record,
    ast.UndoOperation: operations.undo_operation,
    ast.UnsafeBlock: _block,
    ast.UseSchema: _named("USE"),
    ast.Validate: lambda s: f"VALIDATE {s.kind} {name_text(s.name)}",
    ast.Wait: operations.wait,
}
