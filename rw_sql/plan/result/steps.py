"""Defines the steps of a plan. EXPLAIN prints the steps. The metastore and the reconciler carry them out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from rw_sql.errors import first_names
from rw_sql.metastore.records import (
    AssignSplits,
    ConnectionRecord,
    DropObject,
    ForgetSplitStates,
    MaterializedViewRecord,
    PauseRecord,
    PutObject,
    PutSplitStates,
    RebuildRecord,
    SecretRecord,
    SinkRecord,
    SourceRecord,
    TableRecord,
    UnassignSplits,
)
from rw_sql.metastore.refresh_records import RefreshRecord
from rw_sql.metastore.snapshot import effect_of, fold
from rw_sql.model.job_ids import fragment_object, fragment_source
from rw_sql.model.job_specs import desired_jobs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, ObjectRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: a verb and the object on which it acts. All steps whose ``is_catalog`` is True form one commit, and the
    other steps follow this commit."""

    action: str
    subject: str
    detail: str = ""
    is_catalog: bool = True

    def describe(self) -> str:
        """The step as printed by EXPLAIN."""
        return f"{self.action} {self.subject}" + (f": {self.detail}" if self.detail else "")


_MOST = 8


def _catalog_step(snapshot: Snapshot, change: Change) -> Step:
    match change:
        case PutObject(record=put):
            action = "AlterObject" if snapshot.get(put.id) else "CreateObject"
            return Step(action=action, subject=f"{put.kind.replace('_', ' ')} {put.name}")
        case DropObject(id=id_):
            dropped = snapshot.get(id_)
            subject = f"{dropped.kind.replace('_', ' ')} {dropped.name}" if dropped else f"object {id_}"
            return Step(action="DropObject", subject=subject)
        case AssignSplits():
            return Step(action="AssignSplits", subject=change.fragment, detail=first_names(change.splits, _MOST))
        case UnassignSplits():
            return Step(action="UnassignSplits", subject=change.fragment, detail=first_names(change.splits, _MOST))
        case PutSplitStates():
            return Step(action="WriteSplitStates", subject=change.fragment, detail=first_names(change.states, _MOST))
        case ForgetSplitStates():
            return Step(action="ForgetSplitStates", subject=change.fragment, detail=first_names(change.splits, _MOST))
        case _:
            assert_never(change)


def _touched(snapshot: Snapshot, changes: tuple[Change, ...]) -> set[int] | None:
    """The ids of the objects whose jobs may change; None if the job of every object may change."""
    ids: set[int] = set()
    for change in changes:
        record: ObjectRecord | None
        match change:
            case PutObject(record=put):
                record = put
            case DropObject(id=id_):
                record = snapshot.get(id_)
            case AssignSplits() | UnassignSplits() | PutSplitStates() | ForgetSplitStates():
                ids.update((fragment_source(change.fragment), fragment_object(change.fragment)))
                continue
            case _:
                assert_never(change)
        match record:
            case PauseRecord(source_id=None):
                return None
            case PauseRecord(source_id=int() as source_id):
                ids.add(source_id)
            case MaterializedViewRecord(id=id_, inputs=inputs) | SinkRecord(id=id_, inputs=inputs):
                ids.update(inputs, (id_,))
                if isinstance(record, TableRecord):  # a change to the table's columns may change the readers' jobs
                    ids.update(reader.id for reader in snapshot.readers_of(id_))
            case RebuildRecord(view_id=view_id, view=made):
                ids.update((view_id, *(made.inputs if made is not None else ())))
            case RefreshRecord(table_id=table_id):
                ids.add(table_id)
            case ConnectionRecord(id=id_) | SecretRecord(id=id_):
                ids.update(user.id for user in snapshot.dependents_of(id_))
            case None:
                pass
            case _:
                ids.add(record.id)
    # A source that is not shared has no job of its own, but its views have jobs.
    for id_ in list(ids):
        source = snapshot.get(id_)
        if isinstance(source, SourceRecord) and not source.is_shared:
            ids.update(reader.id for reader in snapshot.readers_of(id_))
    return ids


def in_one_commit(snapshot: Snapshot, changes: Iterable[Change]) -> tuple[Change, ...]:
    """Returns the changes of several statements as one commit on the catalog ``snapshot``. Each statement was planned
    as if the earlier statements were already committed, so its records may contain later epochs. These epochs are
    lowered to the epoch of the single commit."""
    epoch = snapshot.epoch + 1
    return tuple(
        PutObject(record=_not_after(change.record, epoch)) if isinstance(change, PutObject) else change
        for change in changes
    )


def _not_after(record: ObjectRecord, epoch: int) -> ObjectRecord:
    match record:
        case SourceRecord():
            since, again = min(record.group_since, epoch), min(record.snapshot, epoch)
            return replace(record, group_since=since, snapshot=again)
        case MaterializedViewRecord() | SinkRecord():
            return replace(record, group_since=min(record.group_since, epoch))
        case RebuildRecord(view=MaterializedViewRecord() as view):
            return replace(record, view=replace(view, group_since=min(view.group_since, epoch)))
        case _:
            return record


def after(snapshot: Snapshot, changes: tuple[Change, ...]) -> Snapshot:
    """The catalog that would result from ``changes``. Commits nothing."""
    return fold(snapshot, effect_of(snapshot, snapshot.epoch + 1, "", changes))


def steps_of(snapshot: Snapshot, changes: tuple[Change, ...]) -> tuple[Step, ...]:
    """Returns the catalog steps for ``changes``, followed by the reconciler's steps that result from them."""
    catalog = tuple(_catalog_step(snapshot, change) for change in changes)
    touched = _touched(snapshot, changes)
    before = desired_jobs(snapshot, touched)
    wanted = desired_jobs(after(snapshot, changes), touched)
    jobs = [Step(action="StopJob", subject=job, is_catalog=False) for job in before if job not in wanted]
    for job, spec in wanted.items():
        if job not in before:
            jobs.append(Step(action="StartJob", subject=job, is_catalog=False))
        elif before[job] != spec:
            jobs.append(Step(action="RestartJob", subject=job, is_catalog=False))
    return catalog + tuple(jobs)
