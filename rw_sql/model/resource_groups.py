"""Determines the resource groups of objects. Each object with a job is in one group, whose owner runs the job."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rw_sql.errors import INVALID_PARAMETER, INVALID_PROPERTY, SqlError
from rw_sql.metastore.records import DEFAULT_GROUP, MaterializedViewRecord, SinkRecord, SourceRecord, TableRecord
from rw_sql.model.definitions import GROUP_OPTION as OPTION
from rw_sql.model.definitions import option_text
from rw_sql.model.source_readers import is_read
from rw_sql.syntax.statements import ConnectionValue, SecretValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.syntax.statements import Option

_GROUPED = (SourceRecord, MaterializedViewRecord, SinkRecord)
_Grouped = TypeVar("_Grouped", bound="SourceRecord | MaterializedViewRecord | SinkRecord")
_Record = TypeVar("_Record", bound="ObjectRecord")

_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]{0,62}")


def require_group_name(name: str, span: Span | None = None) -> str:
    """The name of a group in its stored form, in lower case. Raises SqlError INVALID_PARAMETER for an invalid name."""
    folded = name.strip().lower()
    if not _NAME.fullmatch(folded):
        raise SqlError(
            INVALID_PARAMETER,
            f"'{name}' is not a name of a resource group: a name has at most 63 letters, digits, _ and -",
            span=span,
            hint="write a name such as nightly or team_a",
        )
    return folded


def written_group(options: Iterable[Option]) -> str:
    """The group that a WITH list names; the default group if it names none. Raises SqlError for an invalid name."""
    for option in options:
        if option.key == OPTION:
            if isinstance(option.value, SecretValue | ConnectionValue):
                raise SqlError(
                    INVALID_PROPERTY,
                    f'property "{OPTION}" accepts only a literal value, not a secret or a connection',
                    span=option.value.span,
                    hint=f"write the name of a group: {OPTION} = 'a_group'",
                )
            return require_group_name(option_text(option.value), option.value_place)
    return DEFAULT_GROUP


def in_group(record: _Grouped, options: Iterable[Option], snapshot: Snapshot) -> _Grouped:
    """Returns the record with the group that its WITH list ``options`` names. If the object is in another group,
    committing the returned record moves the object to the named group.
    """
    group = written_group(options)
    if group == record.resource_group:
        return record
    since = snapshot.epoch + 1 if snapshot.get(record.id) is not None else 0
    return replace(record, resource_group=group, group_since=since)


def as_grouped_now(snapshot: Snapshot, record: _Record) -> _Record:
    """Returns an earlier record of an object, with the present values of ``keeps_reader`` and ``group_since``. Raises
    ValueError if the object was then in another group than now. Restoring such a record would move the object's job to
    the earlier group without the consent of that group's owner."""
    present = snapshot.get(record.id)
    if not isinstance(record, _GROUPED) or not isinstance(present, _GROUPED):
        return record
    if record.resource_group != present.resource_group:
        raise ValueError(
            f"it was in resource group {record.resource_group} then, and is in {present.resource_group} now"
        )
    if isinstance(record, SourceRecord) and isinstance(present, SourceRecord):
        return replace(record, group_since=present.group_since, keeps_reader=present.keeps_reader)
    return replace(record, group_since=present.group_since)


def grouped(snapshot: Snapshot) -> Iterator[SourceRecord | MaterializedViewRecord | SinkRecord]:
    """The objects in resource groups: sources, tables, views and sinks."""
    for kind in ("source", "table", "materialized_view", "sink"):
        for record in snapshot.all(kind):
            if isinstance(record, _GROUPED):
                yield record


def jobs_by_group(snapshot: Snapshot) -> Counter[str]:
    """The number of jobs in each resource group that has at least one job. Paused jobs and jobs of rebuilds are
    included.

    A source has a job only if the source is shared and an object reads it. A source that is not shared is read by the
    jobs of its views.
    """
    refreshed = {refresh.table_id for refresh in snapshot.all("refresh")}
    found: Counter[str] = Counter()
    for record in grouped(snapshot):
        if isinstance(record, SourceRecord):
            has_job = record.is_shared and is_read(snapshot, record)
        elif isinstance(record, TableRecord):
            has_job = bool(record.inputs) or record.id in refreshed
        else:
            has_job = True
        found[record.resource_group] += int(has_job)
    for rebuild in snapshot.all("rebuild"):
        found[group_of(snapshot, rebuild.view_id)] += 1
    return +found


def group_of(snapshot: Snapshot, object_id: int) -> str:
    """The resource group whose owner runs the job of the object; the default group if the object does not exist."""
    record = snapshot.get(object_id)
    if isinstance(record, _GROUPED):
        return record.resource_group
    return DEFAULT_GROUP
