"""Stores a deployment plan in a file. The plan contains the changes, and the epochs of the objects on which the changes
depend.

A stored plan is either executed exactly as stored, or refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rw_sql.errors import CONCURRENT_CHANGE, INVALID_DEFINITION, SqlError
from rw_sql.metastore.records import TableRecord
from rw_sql.model.object_lookup import spoken
from rw_sql.plan.deploy.change import DROP, REBUILD, RECREATE, DeployChange
from rw_sql.plan.deploy.changes import MANAGED
from rw_sql.plan.deploy.folder import RELATIONS, require_ours
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.syntax.statements import Statement

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """The changes of a plan, and the parts of the catalog's state on which the changes depend.

    ``epochs`` maps the id of each object on which the changes depend to the object's epoch. ``free`` contains pairs
    (kind, name). The plan can be applied only if the catalog contains none of these objects. ``dependents`` maps the id
    of each object that is dropped or rebuilt to the ids of the objects that depend on it. ``secrets`` are the values of
    secret variables that the statements contain. Only the statements that are run may show these values.
    """

    warehouse: str
    epoch: int
    changes: tuple[DeployChange, ...]
    epochs: dict[int, int]
    free: tuple[tuple[str, str], ...]
    dependents: dict[int, tuple[int, ...]] = field(default_factory=dict)
    secrets: tuple[str, ...] = field(default=(), repr=False)


def saved_plan(
    snapshot: Snapshot, warehouse: str, changes: Sequence[DeployChange], secrets: Sequence[str] = ()
) -> SavedPlan:
    """Makes the content of the plan file from the changes of a deployment and the current catalog. ``secrets`` are the
    values of secret variables in the statements."""
    ids = {id_ for change in changes for id_ in change.touches if snapshot.get(id_) is not None}
    made = [change for change in changes if change.action not in (DROP, RECREATE)]
    free = dict.fromkeys(
        (change.kind, change.name) for change in made if snapshot.find(change.kind, change.name) is None
    )
    return SavedPlan(
        warehouse=warehouse,
        epoch=snapshot.epoch,
        changes=tuple(changes),
        epochs={id_: snapshot.object_epoch(id_) for id_ in sorted(ids)},
        free=tuple(free),
        dependents={id_: tuple(record.id for record in _dependents(snapshot, id_)) for id_ in _replaced(changes)},
        secrets=tuple(secrets),
    )


def _replaced(changes: Sequence[DeployChange]) -> list[int]:
    """The ids of the objects that are dropped or rebuilt."""
    return [change.touches[0] for change in changes if change.action == REBUILD or _is_drop(change)]


def _is_drop(change: DeployChange) -> bool:
    """True if the change drops an object, even if another change creates the object again."""
    return change.action in (DROP, RECREATE) and not change.place and bool(change.touches)


def _dependents(snapshot: Snapshot, id_: int) -> list[ObjectRecord]:
    """The objects that depend on an object. For a table, the result includes the readers of the table's source."""
    record = snapshot.get(id_)
    ids = [id_]
    if isinstance(record, TableRecord) and record.source_id is not None:
        ids.append(record.source_id)
    found = {each.id: each for start in ids for each in snapshot.dependents_of(start) if each.kind in MANAGED}
    return [each for each in found.values() if each.id not in ids]


def to_json(plan: SavedPlan, hide: Callable[[str], str] | None = None) -> str:
    """The plan as JSON text.

    The text contains no values of secrets, for two reasons: statements refer to secrets by name, and a folder that
    contains the value of a secret is refused before a plan is made. However, the statements contain the values of
    variables, and the name of a variable may suggest that its value is secret. ``hide`` replaces such values in a text
    that is only shown. If it replaces any, the text is marked, and :func:`from_json` refuses it.
    """
    hidden = hide or str
    shown = [[hidden(text) for text in (*change.texts, change.reason)] for change in plan.changes]
    is_masked = shown != [[*change.texts, change.reason] for change in plan.changes]
    data = {
        "format": FORMAT,
        "warehouse": plan.warehouse,
        "epoch": plan.epoch,
        **({"is_masked": True} if is_masked else {}),
        **({"secrets": list(plan.secrets)} if plan.secrets and hide is None else {}),
        "objects": {str(id_): epoch for id_, epoch in plan.epochs.items()},
        "free": [list(each) for each in plan.free],
        **({"dependents": {str(id_): list(ids) for id_, ids in plan.dependents.items()}} if plan.dependents else {}),
        "changes": [
            {
                "action": change.action,
                "kind": change.kind,
                "name": change.name,
                "place": change.place,
                "reason": texts[-1],
                "statements": texts[:-1],
                **({"touches": list(change.touches)} if change.touches else {}),
            }
            for change, texts in zip(plan.changes, shown, strict=True)
        ],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def from_json(text: str, file: str) -> SavedPlan:
    """Parses the text of a plan file, which may begin with a byte-order mark. Raises SqlError if the text is not a
    plan, if asterisks replace values in it, or if a session would pass one of the plan's statements to Spark."""
    try:
        data: Any = json.loads(text.removeprefix("\ufeff"))
        if data["format"] != FORMAT:
            raise SqlError(
                INVALID_DEFINITION,
                f'"{file}" is a plan of format {data["format"]}, but this rw_sql reads format {FORMAT}',
                hint="make the plan again: rw-sql diff FOLDER --file FILE",
            )
        if data.get("is_masked"):
            raise SqlError(
                INVALID_DEFINITION,
                f'"{file}" cannot be applied, because asterisks replace the values of secrets in its statements',
                hint="rw-sql diff FOLDER --file FILE writes a plan with all values",
            )
        return SavedPlan(
            secrets=tuple(str(value) for value in data.get("secrets", ())),
            warehouse=str(data["warehouse"]),
            epoch=int(data["epoch"]),
            epochs={int(id_): int(epoch) for id_, epoch in data["objects"].items()},
            free=tuple((str(kind), str(name)) for kind, name in data["free"]),
            dependents={int(id_): tuple(int(each) for each in ids) for id_, ids in data.get("dependents", {}).items()},
            changes=tuple(
                DeployChange(
                    action=str(change["action"]),
                    kind=str(change["kind"]),
                    name=str(change["name"]),
                    place=str(change["place"]),
                    reason=str(change["reason"]),
                    statements=tuple(_statement(str(statement)) for statement in change["statements"]),
                    touches=tuple(int(id_) for id_ in change.get("touches", ())),
                )
                for change in data["changes"]
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SqlError(
            INVALID_DEFINITION,
            f'"{file}" is not a plan of rw-sql diff',
            hint="rw-sql diff FOLDER --file FILE writes a plan",
        ) from error


def _statement(text: str) -> Statement:
    statement = parse_statement(text)
    if isinstance(statement, CreateTable):
        try:
            require_ours(statement)
        except SqlError as error:
            raise error.located(text)  # noqa: B904 - the same error, with its position
    return statement


def require_current(
    snapshot: Snapshot,
    plan: SavedPlan,
    warehouse: str,
    hint: str = "make the plan again: rw-sql diff FOLDER --file FILE",
) -> None:
    """Raises SqlError if a plan was made for another warehouse, or if an object on which the plan depends has changed
    since the plan was made. ``hint`` is the error's hint."""
    if warehouse != plan.warehouse:
        raise SqlError(
            CONCURRENT_CHANGE,
            f'the plan was made for warehouse "{plan.warehouse}", not for "{warehouse}"',
            hint="name that warehouse with -w, or make a plan for this warehouse",
        )
    moved = []
    for id_, epoch in plan.epochs.items():
        if snapshot.object_epoch(id_) != epoch:
            record = snapshot.get(id_)
            named = f'{spoken(record.kind)} "{record.name}" was changed' if record else f"object {id_} was dropped"
            moved.append(f"{named} by operation {snapshot.object_epoch(id_)}")
    known = {each for ids in plan.dependents.values() for each in ids} | set(plan.epochs)
    newer = {
        record.id: f'{spoken(record.kind)} "{record.name}", which depends on "{_named(snapshot, id_)}", was created'
        for id_ in plan.dependents
        for record in _dependents(snapshot, id_)
        if record.id not in known
    }
    moved += newer.values()
    dropped = {(change.kind, change.name) for change in plan.changes if change.action in (DROP, RECREATE)}
    for kind, name in plan.free:
        # The name of a relation is also taken if a relation of another kind has the same name and the plan does not
        # drop that relation.
        kinds = [kind, *(k for k in reversed(RELATIONS) if kind in RELATIONS and k != kind)]
        taken = next((k for k in kinds if snapshot.find(k, name) is not None and (k, name) not in dropped), None)
        if taken is not None and ("table", name) not in dropped:
            moved.append(f'{spoken(taken)} "{name}" was created')
    if moved:
        raise SqlError(
            CONCURRENT_CHANGE,
            f"the plan is outdated and was not applied: since epoch {plan.epoch} {', '.join(moved)}",
            hint=hint,
        )


def require_still_there(snapshot: Snapshot, change: DeployChange) -> None:
    """Raises SqlError if another session, such as a second ``apply``, has already dropped the object that a change
    would drop. The check is necessary because a new object may have this name now."""
    if not _is_drop(change):
        return
    record = snapshot.find(change.kind, change.name)
    if record is None or record.id != change.touches[0]:
        what = "was dropped" if record is None else "was dropped and created again"
        raise SqlError(
            CONCURRENT_CHANGE,
            f'{spoken(change.kind)} "{change.name}" {what} by another session since the changes were planned',
            hint="rw-sql diff shows the remaining changes",
        )


def _named(snapshot: Snapshot, id_: int) -> str:
    record = snapshot.get(id_)
    return record.name if record is not None else str(id_)
