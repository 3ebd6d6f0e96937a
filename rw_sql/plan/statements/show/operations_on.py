"""Finds the operations on an object under all its names. This is necessary because the log of operations contains the
name that the object had at the time of each operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.codec import before_from_json

if TYPE_CHECKING:
    from rw_sql.metastore.records import ObjectRecord, OperationRecord
    from rw_sql.plan.ports.inspector import Inspector

_NAMING = ("RENAME ", "SET SCHEMA ", "SWAP ", "UNDO ")
"""The kinds of operations that may change an object's name begin with one of these words."""


def operations_on(
    inspector: Inspector, record: ObjectRecord, *, is_unsafe: bool | None = None
) -> tuple[OperationRecord, ...]:
    """The operations on an object, latest first. ``is_unsafe`` selects the unsafe operations (True), the safe
    operations (False) or all operations (None)."""
    found: dict[int, OperationRecord] = {}
    name: str | None = record.name
    below: int | None = None
    while name is not None:
        named = inspector.operations(object_name=name)
        listed = [each for each in named if below is None or each.epoch <= below]
        found |= {each.epoch: each for each in listed if is_unsafe is None or each.is_unsafe == is_unsafe}
        renamed = next((each for each in listed if _name_before(each, record.id) not in (None, name)), None)
        name = None if renamed is None else _name_before(renamed, record.id)
        below = None if renamed is None else renamed.epoch
    return tuple(found[epoch] for epoch in sorted(found, reverse=True))


def _name_before(operation: OperationRecord, id_: int) -> str | None:
    """The name of an object before an operation; None if the operation cannot have changed the name."""
    if not operation.kind.startswith(_NAMING):
        return None
    old = before_from_json(operation.before).objects.get(id_)
    return None if old is None else old.name
