"""A deployment plan as a file: the changes, and the epochs of the objects on which they depend.

The plan is carried out exactly as stored, or not at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.errors import CONCURRENT_CHANGE, INVALID_DEFINITION, SqlError
from rw_sql.model.names import spoken
from rw_sql.plan.deploy.changes import DROP, RECREATE, DeployChange
from rw_sql.plan.deploy.folder import RELATIONS
from rw_sql.syntax import parse_statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.metastore import Snapshot

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """Changes, and the state of the catalog for which they were planned.

    ``epochs`` maps the ids of the objects on which the changes depend to their epochs; ``free`` are the (kind, name)
    pairs that must not exist yet.
    """

    warehouse: str
    epoch: int
    changes: tuple[DeployChange, ...]
    epochs: dict[int, int]
    free: tuple[tuple[str, str], ...]


def saved_plan(snapshot: Snapshot, warehouse: str, changes: Sequence[DeployChange]) -> SavedPlan:
    """The plan for these changes, based on the current catalog."""
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
    )


def to_json(plan: SavedPlan) -> str:
    """The plan as JSON text.

    It contains no secret values: statements refer to secrets by name, and folders with secret values have been
    refused.
    """
    data = {
        "format": FORMAT,
        "warehouse": plan.warehouse,
        "epoch": plan.epoch,
        "objects": {str(id_): epoch for id_, epoch in plan.epochs.items()},
        "free": [list(each) for each in plan.free],
        "changes": [
            {
                "action": change.action,
                "kind": change.kind,
                "name": change.name,
                "place": change.place,
                "reason": change.reason,
                "statements": list(change.texts),
            }
            for change in plan.changes
        ],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def from_json(text: str, file: str) -> SavedPlan:
    """Parses the text of a plan file. Raises SqlError if it is not a plan."""
    try:
        data: Any = json.loads(text)
        if data["format"] != FORMAT:
            raise SqlError(
                INVALID_DEFINITION,
                f'"{file}" is a plan of format {data["format"]}, but this rw_sql reads format {FORMAT}',
                hint="make the plan again: rw-sql diff FOLDER --file FILE",
            )
        return SavedPlan(
            warehouse=str(data["warehouse"]),
            epoch=int(data["epoch"]),
            epochs={int(id_): int(epoch) for id_, epoch in data["objects"].items()},
            free=tuple((str(kind), str(name)) for kind, name in data["free"]),
            changes=tuple(
                DeployChange(
                    action=str(change["action"]),
                    kind=str(change["kind"]),
                    name=str(change["name"]),
                    place=str(change["place"]),
                    reason=str(change["reason"]),
                    statements=tuple(parse_statement(str(statement)) for statement in change["statements"]),
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


def require_current(snapshot: Snapshot, plan: SavedPlan, warehouse: str) -> None:
    """Raises SqlError if a plan is for another warehouse, or if an object on which it depends has changed since it
    was made."""
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
    dropped = {(change.kind, change.name) for change in plan.changes if change.action in (DROP, RECREATE)}
    for kind, name in plan.free:
        # A name in use by another kind of relation is in use too, unless the plan drops that object.
        kinds = [kind, *(k for k in reversed(RELATIONS) if kind in RELATIONS and k != kind)]
        taken = next((k for k in kinds if snapshot.find(k, name) is not None and (k, name) not in dropped), None)
        if taken is not None and ("table", name) not in dropped:
            moved.append(f'{spoken(taken)} "{name}" was created')
    if moved:
        raise SqlError(
            CONCURRENT_CHANGE,
            f"the plan is outdated and was not applied: since epoch {plan.epoch} {', '.join(moved)}",
            hint="make the plan again: rw-sql diff FOLDER --file FILE",
        )
