"""Refuses Spark statements that would change rw_sql's objects. Each error states which statement to use instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.errors import DUPLICATE_OBJECT, WRONG_KIND, SqlError
from rw_sql.model.object_lookup import ERRORS, REJECTED, spoken
from rw_sql.syntax.lexing.identifiers import spark_name, sql_name

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.syntax.dialect.spark_changes import Changed

_ROWS = {
    "materialized_view": "cannot change the rows of a view, because its query defines them",
    "table": "cannot change the rows of a table, because the records of its upstream define them",
    "source": "cannot change the records of a source's upstream",
}
_TO_CHANGE = {
    "materialized_view": "ALTER MATERIALIZED VIEW {0} AS SELECT … changes it; DROP MATERIALIZED VIEW {0} drops it",
    "table": "SHOW CREATE TABLE {0} shows the upstream: change the records there; DROP TABLE {0} drops the table",
    "source": "SHOW CREATE SOURCE {0} shows the upstream: change the records there; DROP SOURCE {0} drops the source",
}
_TO_EMPTY = {
    **_TO_CHANGE,
    "source": (
        "ALTER SOURCE {0} CONNECTOR WITH (log.retention = '…') drops old rows; DROP SOURCE {0} drops the source with "
        "all its rows, once nothing depends on it"
    ),
}
"""Maps each kind of object to the statement with which a user can change the rows at the object's path. For a source,
the statement changes only the source's log, because the path contains only the log."""
_TO_ALTER = {
    "materialized_view": "ALTER MATERIALIZED VIEW {0} AS SELECT … changes its columns",
    "table": "ALTER TABLE {0} ADD COLUMN a_column INT",
    "source": "ALTER SOURCE {0} ADD COLUMN a_column INT",
}

_UPKEEP = frozenset({"OPTIMIZE", "VACUUM", "REORG", "MSCK"})


def found_object(snapshot: Snapshot, name: str) -> ObjectRecord | None:
    """The table, source or materialized view to which a name refers in Spark; None if there is none. The case of the
    name is ignored, as in Spark."""
    folded = name.lower()
    for kind in _ROWS:
        for record in snapshot.all(kind):
            if record.name.lower() == folded:
                return record
    return None


def change_refusal(change: Changed, record: ObjectRecord) -> SqlError | None:
    """The error for a Spark statement that would change an rw_sql object; None if the change is allowed.

    For example, creating a Spark table or view that has the name of a source is allowed.
    """
    kind, name = spoken(record.kind), sql_name(record.name)
    words = kind.upper()
    match change.verb.split()[0]:
        case "CREATE" if change.verb == "CREATE INDEX":
            message, hint = "Delta tables have no indexes", "omit CREATE INDEX"
        case "saveAsTable" | "writeTo" | "toTable" if record.kind == "source":
            return None
        case "CREATE" | "REPLACE":
            if record.kind == "source":
                return None
            is_temporary = " TEMP" in change.verb
            return SqlError(
                DUPLICATE_OBJECT,
                f'a temporary view cannot replace or hide {kind} "{record.name}"'
                if is_temporary
                else f'{kind} "{record.name}" already exists',
                hint=f"use another name: {sql_name(record.name + '_1')}",
                span=change.span,
            )
        case "DROP" if change.verb == f"DROP {words}":
            message, hint = (
                f"only {change.verb} as a statement of its own, without arguments, drops it",
                f"DROP {words} {name}",
            )
        case "DROP":
            message, hint = f"{change.verb} does not drop it", f"DROP {words} {name}"
        case "ALTER":
            message, hint = f"{change.verb} does not alter it", _TO_ALTER[record.kind].format(name)
        case "CACHE":
            message = "a cached copy would not be updated"
            hint = f"CACHE TABLE a_copy AS SELECT * FROM {spark_name(record.name)}"
        case _ if change.verb.split()[0] in _UPKEEP:
            message, hint = (
                f"{change.verb} would disturb the job that maintains its files",
                f"do not run {change.verb}: the job does this itself",
            )
        case "DELETE" if record.kind == "materialized_view":
            message = f"{change.verb} {_ROWS[record.kind]}"
            hint = f"ALTER MATERIALIZED VIEW {name} AS SELECT … WHERE … leaves rows out; DROP {words} {name} drops it"
        case _:
            message, hint = f"{change.verb} {_ROWS[record.kind]}", _TO_CHANGE[record.kind].format(name)
    return SqlError(WRONG_KIND, f'"{record.name}" is a {kind}: {message}', hint=hint, span=change.span)


def path_refusal(change: Changed, path: str, record: ObjectRecord | None) -> SqlError:
    """The error for a Spark statement that would change data at a path of the warehouse. ``record`` is the object to
    which the data belong."""
    if record is None:
        message = f"{change.verb} cannot {_done_by(change)} {path}, because it belongs to rw_sql's warehouse"
        hint = "only rw_sql's statements change the warehouse: DROP SOURCE, DROP MATERIALIZED VIEW, DROP SINK"
        if re.search(r"/rw_catalog/operations(?:/|$)", path):
            hint = (
                "do not change the operations, which are the warehouse's history; "
                "SELECT * FROM rw_catalog.rw_operations WHERE is_unsafe shows the unsafe ones"
            )
        return SqlError(WRONG_KIND, message, hint=hint, span=change.span)
    kind, name = spoken(record.kind), sql_name(record.name)
    is_upkeep = change.verb.split()[0] in _UPKEEP
    return SqlError(
        WRONG_KIND,
        f'{change.verb} cannot {_done_by(change)} {path}, because it contains the rows of {kind} "{record.name}"',
        hint=f"do not run {change.verb}: the job of {name} maintains its files"
        if is_upkeep
        else _TO_EMPTY[record.kind].format(name)
        if record.kind in _TO_EMPTY
        else f"DROP {kind.upper()} {name} drops it",
        span=change.span,
    )


def schema_refusal(change: Changed, name: str) -> SqlError:
    """The error for a Spark statement that would drop the database of a schema."""
    return SqlError(
        WRONG_KIND,
        f'"{name}" is a schema: {change.verb} does not drop it',
        hint=f"DROP SCHEMA {sql_name(name)}",
        span=change.span,
    )


def companion_owner(snapshot: Snapshot, name: str) -> ObjectRecord | None:
    """The table, source or sink whose view of refused records has this name; None if there is no such object. The case
    of the name is ignored, as in Spark."""
    folded = name.lower()
    for end, kinds in _COMPANIONS.items():
        owner = folded.removesuffix(end)
        for record in (record for kind in kinds for record in snapshot.all(kind) if owner != folded):
            if record.name.lower() == owner:
                return record
    return None


_COMPANIONS = {ERRORS: ("table", "source"), REJECTED: ("sink",)}
"""Maps each suffix to the kinds of objects that have a Spark view with this suffix. The view shows the refused records
of the object whose name precedes the suffix."""


def companion_refusal(change: Changed, name: str, owner: ObjectRecord | None) -> SqlError:
    """The error for a Spark statement that would change the view ``name``, which shows refused records. ``owner`` is
    the object whose refused records the view shows; None if this object no longer exists."""
    base, _, end = name.rpartition("$")
    kind = "sink" if f"${end}".lower() == REJECTED else "source"
    if owner is not None:
        base, kind = owner.name, spoken(owner.kind)
    rows = "the rows that its target refused" if kind == "sink" else "its refused records"
    drop = f"DROP {kind.upper()} {sql_name(base)} drops the view together with the {kind}"
    return SqlError(
        WRONG_KIND,
        f'{change.verb} cannot {_done_by(change)} "{name}": it belongs to {kind} "{base}" and shows {rows}',
        hint=drop if _done_by(change) == "drop" else f"do not run {change.verb}; {drop}",
        span=change.span,
    )


def catalog_refusal(change: Changed, name: str) -> SqlError:
    """The error for a Spark statement that would change a view of the catalog."""
    return SqlError(
        WRONG_KIND,
        f"{change.verb} cannot {_done_by(change)} {name}, which shows rw_sql's catalog",
        hint="to change the catalog, use CREATE, ALTER or DROP of the object itself",
        span=change.span,
    )


def _done_by(change: Changed) -> str:
    """Returns ``drop`` or ``change``: what the statement would do to an object."""
    return "drop" if change.verb.startswith("DROP ") else "change"
