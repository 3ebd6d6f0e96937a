"""What lowering asks of an upstream or of a sink's target, by the options that point at it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.connectors.base import ColumnMisfit, GroupOffsets, Upstream
from rw_sql.connectors.sink import SinkLook, SinkShape
from rw_sql.metastore.records import SecretRecord
from rw_sql.model.options import PlannedOptions
from rw_sql.plan.requests.ask import ask

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtUpstream:
    """Splits, bounds and identities of what ``options`` (unresolved: references by name) point at.

    ``candidates`` are secrets as they will be, in place of those that the catalog holds.
    """

    connector: str
    options: PlannedOptions
    candidates: tuple[SecretRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtTarget:
    """Whether a sink's target can take rows of this shape; without one, whether it answers. Writes nothing there.

    ``candidates`` are secrets as they will be, in place of those that the catalog holds.
    """

    connector: str
    options: PlannedOptions
    shape: SinkShape | None
    candidates: tuple[SecretRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FindOffsetsAt:
    """The first offsets at or after a time."""

    connector: str
    options: PlannedOptions
    milliseconds: int
    splits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindSparseTopics:
    """Why offsets of the upstream's topics are no count of records: per topic the reason, none where they are one."""

    connector: str
    options: PlannedOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class FindRecordTimes:
    """When the records at these offsets (split, offset) were written, as far as that can be told soon."""

    connector: str
    options: PlannedOptions
    offsets: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGroupOffsets:
    """What a consumer group has committed of these splits, at the upstream that ``options`` point at."""

    connector: str
    options: PlannedOptions
    group: str
    splits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindColumnMisfit:
    """The first of ``columns`` (name, Spark's type) that the upstream cannot give, if there is one."""

    connector: str
    options: PlannedOptions
    columns: tuple[tuple[str, str], ...]


UpstreamRequest = (
    LookAtUpstream
    | LookAtTarget
    | FindOffsetsAt
    | FindSparseTopics
    | FindRecordTimes
    | ReadGroupOffsets
    | FindColumnMisfit
)


def look(
    connector: str, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = ()
) -> Generator[UpstreamRequest, object, Upstream]:
    """Asks for a look at the upstream."""
    return ask(LookAtUpstream(connector=connector, options=options, candidates=candidates), Upstream)


def look_closely(connector: str, options: PlannedOptions) -> Generator[UpstreamRequest, object, Upstream]:
    """As :func:`look`, and asks of which topics offsets do not count records: what a preview of a move needs."""
    upstream = yield from look(connector, options)
    if not upstream.is_reachable or not upstream.splits:
        return upstream
    sparse = yield from ask(FindSparseTopics(connector=connector, options=options), dict)
    return replace(upstream, sparse=sparse) if sparse else upstream


def look_at_target(
    connector: str, options: PlannedOptions, shape: SinkShape | None, candidates: tuple[SecretRecord, ...] = ()
) -> Generator[UpstreamRequest, object, SinkLook]:
    """Asks for a look at a sink's target."""
    return ask(LookAtTarget(connector=connector, options=options, shape=shape, candidates=candidates), SinkLook)


def column_misfits(
    connector: str, options: PlannedOptions, columns: Mapping[str, str]
) -> Generator[UpstreamRequest, object, tuple[ColumnMisfit, ...]]:
    """Asks for the first column that the upstream cannot give: none, or one."""
    return ask(FindColumnMisfit(connector=connector, options=options, columns=tuple(columns.items())), tuple)


def offsets_at(
    connector: str, options: PlannedOptions, milliseconds: int, splits: tuple[str, ...]
) -> Generator[UpstreamRequest, object, dict[str, int]]:
    """Asks for the first offsets at or after a time."""
    return ask(FindOffsetsAt(connector=connector, options=options, milliseconds=milliseconds, splits=splits), dict)


def record_times(
    connector: str, options: PlannedOptions, offsets: Mapping[str, int]
) -> Generator[UpstreamRequest, object, dict[str, int]]:
    """Asks when records were written, in milliseconds since 1970."""
    if not offsets:
        return {}
    request = FindRecordTimes(connector=connector, options=options, offsets=tuple(offsets.items()))
    return (yield from ask(request, dict))


def group_offsets(
    connector: str, options: PlannedOptions, group: str, splits: tuple[str, ...]
) -> Generator[UpstreamRequest, object, GroupOffsets]:
    """Asks for what a consumer group has committed."""
    return ask(ReadGroupOffsets(connector=connector, options=options, group=group, splits=splits), GroupOffsets)
