"""Refuses Spark statements that would change rw_sql's objects; each error names the statement to use instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import DUPLICATE_OBJECT, WRONG_KIND, SqlError
from rw_sql.model.names import spoken
from rw_sql.syntax.lexing.identifiers import quoted

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.syntax.dialect.spark_changes import Changed

_ROWS = {
    "materialized_view": "its rows follow from its query",
    "table": "its rows follow from the records of its upstream",
    "source": "it holds no rows of its own",
}


_UPKEEP = frozenset({"OPTIMIZE", "VACUUM", "REORG", "MSCK"})


def found_object(snapshot: Snapshot, name: str) -> ObjectRecord | None:
    """The table, source or materialized view that a name refers to in Spark, which ignores case."""
    folded = name.casefold()
    for kind in _ROWS:
        for record in snapshot.all(kind):
            if record.name.casefold() == folded:
                return record
    return None


def change_refusal(change: Changed, record: ObjectRecord) -> SqlError | None:
    """The error if a Spark statement would change an rw_sql object; None if the change is allowed.

    Spark may create its own table or view with the name of a source.
    """
    kind, name = spoken(record.kind), quoted(record.name)
    words = kind.upper()
    match change.verb.split()[0]:
        case "CREATE" | "REPLACE":
            if record.kind == "source":
                return None
            return SqlError(
                DUPLICATE_OBJECT,
                f'{kind} "{record.name}" already exists',
                hint=f"use another name: {quoted(record.name + '_1')}",
                span=change.span,
            )
        case "DROP":
            message, hint = f"{change.verb} does not drop it", f"DROP {words} {name}"
        case "ALTER":
            message, hint = f"{change.verb} does not alter it", f"ALTER {words} {name} RENAME TO another_name"
        case "CACHE":
            message, hint = "what is cached of it would not follow it", f"CACHE TABLE a_copy AS SELECT * FROM {name}"
        case _ if change.verb.split()[0] in _UPKEEP:
            message, hint = f"its job looks after its files, and {change.verb} must not", f"leave {change.verb} out"
        case _:
            message, hint = f"{_ROWS[record.kind]}: {change.verb} cannot change them", _to_change(words, name)
    return SqlError(WRONG_KIND, f'"{record.name}" is a {kind}: {message}', hint=hint, span=change.span)


def _to_change(words: str, name: str) -> str:
    return f"SHOW CREATE {words} {name} shows what it reads: change that"


def path_refusal(change: Changed, path: str, record: ObjectRecord | None) -> SqlError:
    """The error for a Spark statement that would change a path of the warehouse; the path belongs to ``record``."""
    if record is None:
        message = f"{path} lies in rw_sql's warehouse: {change.verb} cannot change it"
        return SqlError(WRONG_KIND, message, hint="SHOW JOBS lists the jobs that write there", span=change.span)
    kind, name = spoken(record.kind), quoted(record.name)
    is_upkeep = change.verb.split()[0] in _UPKEEP
    return SqlError(
        WRONG_KIND,
        f'{path} holds {kind} "{record.name}": {change.verb} cannot change it',
        hint=f"its job looks after its files: leave {change.verb} out" if is_upkeep else _to_change(kind.upper(), name),
        span=change.span,
    )


def catalog_refusal(change: Changed, name: str) -> SqlError:
    """The error for a Spark statement that would change the views of the catalog or of a source's failed records."""
    return SqlError(
        WRONG_KIND,
        f"{name} is kept by rw_sql: {change.verb} cannot change it",
        hint="SHOW SOURCES, SHOW MATERIALIZED VIEWS and SHOW JOBS show what it holds",
        span=change.span,
    )
