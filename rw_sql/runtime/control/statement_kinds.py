"""Which statements the executor treats in a way of their own."""

from __future__ import annotations

from rw_sql.syntax import statements as ast

HOLDS = (
    ast.PauseSource,
    ast.PauseAllSources,
    ast.ResumeSource,
    ast.ResumeAllSources,
    ast.PauseSink,
    ast.ResumeSink,
    ast.UndoOperation,
    ast.UnsafeBlock,
)
"""Statements that are done when the owner knows of them, also where no job has to change."""

_UNSAFE = (
    ast.AlterSourceUnsafeSet,
    ast.ResetSourceSplits,
    ast.InjectSourceOffsets,
    ast.AlterConnectionOptions,
    ast.AlterSetConnection,
    ast.AlterTableUnsafeSet,
    ast.SkipRecord,
    ast.UndoOperation,
    ast.UnsafeBlock,
    ast.RewindSource,
    ast.InjectCheckpointOffsets,
)


def may_be_unsafe(statement: ast.Statement) -> bool:
    """Whether a yes given beforehand (SET unsafe_confirmation) is for this statement, and used up by it."""
    match statement:
        case ast.CreateSource() | ast.CreateTable() | ast.CreateSink() | ast.CreateConnection():
            return statement.or_replace
        case _:
            return isinstance(statement, _UNSAFE)
