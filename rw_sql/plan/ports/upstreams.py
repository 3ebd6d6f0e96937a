"""Requests about an upstream or a sink's target, which the options identify."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.connectors.base import ColumnMisfit, GroupOffsets, Upstream
from rw_sql.connectors.sink import SinkLook, SinkShape
from rw_sql.metastore.records import SecretRecord
from rw_sql.model.options import PlannedOptions
from rw_sql.plan.ports.ask import ask

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtUpstream:
    """The splits, bounds and identities of the upstream in ``options`` (unresolved: references by name).

    ``candidates`` are new values of secrets, to use instead of those in the catalog.
    """

    connector: str
    options: PlannedOptions
    candidates: tuple[SecretRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtTarget:
    """Whether a sink's target can store rows of this shape; without a shape, whether it answers. Writes nothing.

    ``candidates`` are new values of secrets, to use instead of those in the catalog.
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
    """The topics of the upstream whose offsets do not count records, with the reason."""

    connector: str
    options: PlannedOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class FindRecordTimes:
    """The times of the records at these offsets (split, offset), if known soon."""

    connector: str
    options: PlannedOptions
    offsets: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGroupOffsets:
    """The committed offsets of a consumer group for these splits, at the upstream in ``options``."""

    connector: str
    options: PlannedOptions
    group: str
    splits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindColumnMisfit:
    """The first of ``columns`` (name, Spark type) that the upstream cannot provide, if any."""

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
    """Requests a look at the upstream."""
    return ask(LookAtUpstream(connector=connector, options=options, candidates=candidates), Upstream)


def look_closely(connector: str, options: PlannedOptions) -> Generator[UpstreamRequest, object, Upstream]:
    """As :func:`look`, and requests the topics whose offsets do not count records, as a preview of a move needs
    them."""
    upstream = yield from look(connector, options)
    if not upstream.is_reachable or not upstream.splits:
        return upstream
    sparse = yield from ask(FindSparseTopics(connector=connector, options=options), dict)
    return replace(upstream, sparse=sparse) if sparse else upstream


def look_at_target(
    connector: str, options: PlannedOptions, shape: SinkShape | None, candidates: tuple[SecretRecord, ...] = ()
) -> Generator[UpstreamRequest, object, SinkLook]:
    """Requests a look at a sink's target."""
    return ask(LookAtTarget(connector=connector, options=options, shape=shape, candidates=candidates), SinkLook)


def column_misfits(
    connector: str, options: PlannedOptions, columns: Mapping[str, str]
) -> Generator[UpstreamRequest, object, tuple[ColumnMisfit, ...]]:
    """Requests the first column that the upstream cannot provide: an empty tuple or one element."""
    return ask(FindColumnMisfit(connector=connector, options=options, columns=tuple(columns.items())), tuple)


def offsets_at(
    connector: str, options: PlannedOptions, milliseconds: int, splits: tuple[str, ...]
) -> Generator[UpstreamRequest, object, dict[str, int]]:
    """Requests the first offsets at or after a time."""
    return ask(FindOffsetsAt(connector=connector, options=options, milliseconds=milliseconds, splits=splits), dict)


def record_times(
    connector: str, options: PlannedOptions, offsets: Mapping[str, int]
) -> Generator[UpstreamRequest, object, dict[str, int]]:
    """Requests the times of records, in milliseconds since 1970."""
    if not offsets:
        return {}
    request = FindRecordTimes(connector=connector, options=options, offsets=tuple(offsets.items()))
    return (yield from ask(request, dict))


def group_offsets(
    connector: str, options: PlannedOptions, group: str, splits: tuple[str, ...]
) -> Generator[UpstreamRequest, object, GroupOffsets]:
    """Requests the committed offsets of a consumer group."""
    return ask(ReadGroupOffsets(connector=connector, options=options, group=group, splits=splits), GroupOffsets)
