"""Decides whether an error of a lowering is a finding, or only a consequence of facts that are unknown offline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import (
    CANNOT_REFRESH,
    DEPENDENTS_EXIST,
    DUPLICATE_CLAUSE,
    DUPLICATE_OBJECT,
    INVALID_OPTION,
    INVALID_PARAMETER,
    INVALID_PROPERTY,
    INVALID_QUERY,
    INVALID_SPLIT_STATE,
    NOT_IN_A_BLOCK,
    NOT_SUPPORTED,
    OFFSET_OUT_OF_RANGE,
    SECRET_KEY_MISSING,
    SINK_CANNOT_FOLLOW,
    SPLITS_UNKNOWN,
    TARGET_UNFIT,
    UNDEFINED_COLUMN,
    UNDEFINED_OBJECT,
    UNKNOWN_OPTION,
    UNKNOWN_PARAMETER,
    UNKNOWN_PROPERTY,
    UNSUPPORTED_TYPE,
)
from rw_sql.plan.offline.inspector import TABLE
from rw_sql.plan.offline.repair import is_of_a_part
from rw_sql.syntax import statements as ast

if TYPE_CHECKING:
    from rw_sql.errors import SqlError
    from rw_sql.plan.offline.inspector import OfflineInspector
    from rw_sql.syntax.statements import Statement

_OF_TYPES = frozenset({UNSUPPORTED_TYPE, TARGET_UNFIT})
_OF_COLUMNS = _OF_TYPES | {UNDEFINED_COLUMN, SINK_CANNOT_FOLLOW, INVALID_QUERY, CANNOT_REFRESH}
_OF_OTHERS = frozenset({UNDEFINED_OBJECT, DUPLICATE_OBJECT, DUPLICATE_CLAUSE, NOT_IN_A_BLOCK, DEPENDENTS_EXIST})
_OF_WORDS = frozenset({UNKNOWN_OPTION, INVALID_OPTION, UNKNOWN_PARAMETER, INVALID_PARAMETER})
_OF_OPTIONS = frozenset({UNKNOWN_PROPERTY, INVALID_PROPERTY})


def is_of_the_world(statement: Statement, error: SqlError, inspector: OfflineInspector) -> bool:
    """True if facts that are unknown offline decide whether the statement has this error. Such facts are the state of
    an upstream, a reader's position, Spark's analysis, and the machine on which the statement will run."""
    match error.kind:
        case kind if kind is SPLITS_UNKNOWN:
            return bool(inspector.unchecked)
        case kind if kind is OFFSET_OUT_OF_RANGE:
            target = getattr(statement, "target", None)
            return not isinstance(target, ast.InjectValues | ast.InjectToOffset)
        case kind if kind is INVALID_SPLIT_STATE:
            # ALLOW CLAMP would raise the offset to the start of the split, which is unknown offline.
            return "CLAMP" in getattr(statement, "allow", ()) and error.message.endswith("is negative")
        case kind if kind is INVALID_QUERY:
            return TABLE in inspector.unchecked
        case kind if kind is NOT_SUPPORTED:
            # A package that is missing on this machine may be installed where the statement is run.
            return error.message.endswith("which is not installed")
        case kind:
            return kind is SECRET_KEY_MISSING


def follows_from_blocked(statement: Statement, error: SqlError) -> bool:
    """Judges an error of a statement that refers to an object whose CREATE statement has errors. Returns True if the
    judged error may be a mere consequence of the errors of the CREATE statement."""
    kept = _OF_OTHERS | _OF_WORDS
    if error.kind is NOT_SUPPORTED and is_of_a_part(statement, error):
        return False
    if isinstance(statement, ast.CreateSource | ast.CreateTable | ast.CreateSink | ast.CreateMaterializedView):
        kept |= _OF_OPTIONS
    return error.kind not in kept


def follows_from_columns(error: SqlError, *, are_named: bool) -> bool:
    """True if the error may be a mere consequence of unknown columns. If ``are_named`` is True, the names of the
    columns are known, and only their types are unknown."""
    return error.kind in (_OF_TYPES if are_named else _OF_COLUMNS)
