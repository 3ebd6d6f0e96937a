"""Plans a statement on a source separately for each reader of the source. A source has one shared reader, or one direct
reader per view."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.records import (
    DropObject,
    PutObject,
    SourceRecord,
)
from rw_sql.model.source_readers import UNREAD, readers_of, unread
from rw_sql.plan.result.plan import Plan, Preview, ResultRow
from rw_sql.plan.result.prediction import join_predictions
from rw_sql.plan.result.preview_text import render_preview
from rw_sql.plan.result.steps import steps_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.model.source_readers import Reader


def for_each_reader(snapshot: Snapshot, source: SourceRecord, lower_one: Callable[[Reader], Plan]) -> Plan:
    """Plans a statement on a source for each of the source's readers, and joins the plans into one operation.

    A source that is not shared and has no readers yet is planned as if it had no splits.
    """
    readers = readers_of(snapshot, source)
    if source.is_shared:
        return lower_one(readers[0])
    if not readers:
        return _without_splits(snapshot, lower_one(unread(source)))
    plans: list[Plan] = []
    for reader in readers:
        plans.append(lower_one(reader))
    return joined(snapshot, readers, plans)


def joined(snapshot: Snapshot, readers: tuple[Reader, ...], plans: list[Plan]) -> Plan:
    """Joins the plans of several readers. A change that occurs in several plans occurs only once in the result. If a
    result row does not occur in all plans, the row names the views to whose readers it applies."""
    operations = [plan.operation for plan in plans if plan.operation is not None]
    changes: list[Change] = []
    for operation in operations:
        changes += [change for change in operation.changes if change not in changes]
    previews = [plan.preview for plan in plans if plan.preview is not None]
    preview = _in_parts(readers, previews) if len(previews) == len(plans) else None
    views = tuple(reader.view.id for reader in readers if reader.view is not None)
    return replace(
        plans[0],
        steps=steps_of(snapshot, tuple(changes)),
        operation=replace(
            operations[0],
            objects=tuple(dict.fromkeys(name for operation in operations for name in operation.objects)),
            changes=tuple(changes),
            is_unsafe=any(operation.is_unsafe for operation in operations),
            plan=render_preview(preview) if preview is not None else operations[0].plan,
            prediction=join_predictions(tuple(operation.prediction for operation in operations)),
        )
        if operations
        else None,
        changes=_answers(readers, plans),
        preview=preview,
        is_unsafe=any(plan.is_unsafe for plan in plans),
        affected=tuple(dict.fromkeys((*(id_ for plan in plans for id_ in plan.affected), *views))),
        unallowed=tuple(dict.fromkeys(word for plan in plans for word in plan.unallowed)),
        fingerprint=";".join(plan.fingerprint for plan in plans),
    )


def _in_parts(readers: tuple[Reader, ...], previews: list[Preview]) -> Preview:
    if len(previews) == 1:
        return previews[0]
    parts = (
        replace(part, title=reader.label, epoch=None, properties=())
        for reader, part in zip(readers, previews, strict=True)
    )
    return Preview(
        title=previews[0].title, epoch=previews[0].epoch, properties=previews[0].properties, parts=tuple(parts)
    )


def _answers(readers: tuple[Reader, ...], plans: list[Plan]) -> tuple[ResultRow, ...]:
    """Merges the result rows of several readers. Equal rows become one row. If a row does not apply to all readers, the
    names of the views whose readers it concerns are added to the row."""
    said: dict[ResultRow, list[str]] = {}
    for reader, plan in zip(readers, plans, strict=True):
        for row in plan.changes:
            said.setdefault(row, []).append(reader.view.name if reader.view is not None else "")
    is_something = any(row.change != "NOTHING" for row in said)
    return tuple(
        row if len(views) == len(readers) else replace(row, detail=f"{row.detail} [{', '.join(views)}]".lstrip())
        for row, views in said.items()
        if row.change != "NOTHING" or not is_something or len(views) == len(readers)
    )


def _without_splits(snapshot: Snapshot, plan: Plan) -> Plan:
    operation = plan.operation
    kept = () if operation is None else tuple(c for c in operation.changes if isinstance(c, PutObject | DropObject))
    preview = None if plan.preview is None else replace(plan.preview, splits=())
    if operation is None or not kept:
        told = ResultRow(object=plan.changes[0].object, change="NOTHING", detail=UNREAD)
        changes = plan.changes if plan.changes[0].change == "NOTHING" else (told,)
        return replace(plan, steps=(), operation=None, changes=changes, preview=preview)
    return replace(
        plan,
        steps=steps_of(snapshot, kept),
        operation=replace(
            operation, changes=kept, plan=render_preview(preview) if preview is not None else operation.plan
        ),
        preview=preview,
    )
