"""Lists the types of statements that need special treatment by the executor."""

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
"""The statements that wait until the owner has applied them, even if no job has to change."""

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
    """True if ``statement`` is of a type that can be unsafe. A confirmation in advance (SET unsafe_confirmation)
    applies to the next statement of such a type, which uses up the confirmation even if it turns out to be safe.
    """
    match statement:
        case ast.CreateSource() | ast.CreateTable() | ast.CreateSink() | ast.CreateConnection():
            return statement.or_replace
        case _:
            return isinstance(statement, _UNSAFE)
