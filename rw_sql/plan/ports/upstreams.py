"""Defines the port for upstreams, and for the targets of sinks. A connector and its options identify an upstream or a
target."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import GroupOffsets, SplitState, Upstream
    from rw_sql.connectors.changes import CaptureError, ChangeCount, Lack, UpstreamTable
    from rw_sql.connectors.schemas.look import SchemaLook
    from rw_sql.connectors.sink import SinkLook, SinkShape
    from rw_sql.connectors.slot_details import SlotDetails
    from rw_sql.connectors.snapshots import ColumnMisfit
    from rw_sql.metastore.records import SecretRecord
    from rw_sql.model.options import PlannedOptions


class UpstreamPort(Protocol):
    """The port for upstreams and targets. Options do not contain the values of secrets. Instead, they reference secrets
    by name.

    ``candidates`` are new values of secrets, which are used in place of the values in the catalog.
    """

    def look(self, connector: str, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = ()) -> Upstream:
        """The splits, bounds and identities of an upstream."""
        ...

    def look_again(self, connector: str, options: PlannedOptions) -> Upstream:
        """Does the same as :meth:`look`, but contacts the upstream again even if the upstream has responded before."""
        ...

    def sparse_topics(self, connector: str, options: PlannedOptions) -> Mapping[str, str]:
        """The topics of an upstream in which some offsets have no record, each with the reason."""
        ...

    def offsets_at(
        self, connector: str, options: PlannedOptions, milliseconds: int, splits: tuple[str, ...]
    ) -> dict[str, int]:
        """Returns, for each split, the offset of the first record at or after the given time."""
        ...

    def cut_logs(self, connector: str, options: PlannedOptions, states: Mapping[str, SplitState]) -> Mapping[str, int]:
        """Maps each split to the first offset that the split's log has lost. The result contains only splits for which
        this offset is before the split's position in ``states``.

        The result is empty if the upstream keeps no history of its logs or does not respond.
        """
        ...

    def record_times(self, connector: str, options: PlannedOptions, offsets: Mapping[str, int]) -> Mapping[str, int]:
        """The times of the records at these offsets, in milliseconds since 1970. Splits whose times cannot be found
        quickly are absent."""
        ...

    def group_offsets(
        self, connector: str, options: PlannedOptions, group: str, splits: tuple[str, ...]
    ) -> GroupOffsets:
        """The committed offsets of a consumer group for these splits."""
        ...

    def column_misfit(self, connector: str, options: PlannedOptions, columns: Mapping[str, str]) -> ColumnMisfit | None:
        """Returns the first of the ``columns`` that an upstream cannot provide; None if the upstream can provide all of
        these columns. ``columns`` maps names to Spark types."""
        ...

    def describe_table(
        self, connector: str, options: PlannedOptions, table: str, *, is_needed: bool
    ) -> UpstreamTable | None:
        """Describes a table of a change data capture source.

        Returns None if the upstream may not be contacted and ``is_needed`` is False.
        """
        ...

    def find_lacks(
        self, connector: str, options: PlannedOptions, tables: Mapping[str, Mapping[str, str] | None]
    ) -> tuple[Lack, ...]:
        """The requirements that the upstream of a change data capture source does not meet. Only the requirements for
        reading these tables, with their declared columns, are checked."""
        ...

    def slot_details(self, connector: str, options: PlannedOptions) -> SlotDetails | None:
        """The slot of a change data capture source; None if the slot does not exist, or if the upstream does not
        respond."""
        ...

    def find_obstacle(self, connector: str, options: PlannedOptions, position: SplitState) -> CaptureError | None:
        """The reason why the reader of a change data capture source cannot continue at ``position``; None if it can
        continue. If the upstream does not respond, the reason is temporary."""
        ...

    def lacks_slot(self, connector: str, options: PlannedOptions) -> bool:
        """True if the upstream of a change data capture source responds and does not have the source's slot."""
        ...

    def count_changes(
        self,
        connector: str,
        options: PlannedOptions,
        start: int,
        end: int,
        tables: tuple[str, ...],
        *,
        only_first: bool = False,
        includes_earlier: bool = True,
    ) -> ChangeCount | None:
        """Counts the changes between two positions of a change data capture source to the upstream tables ``tables``.
        Returns None if the changes cannot be counted."""
        ...

    def read_schema(self, options: PlannedOptions, subject: str, *, is_needed: bool) -> SchemaLook:
        """The newest schema of a subject in a registry. ``is_needed`` is True if planning is impossible without the
        schema."""
        ...

    def read_schema_file(self, location: str) -> bytes:
        """The content of a schema's file. Raises SqlError FILE_UNREADABLE."""
        ...

    def registry_error(
        self, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = (), *, is_login_enough: bool = False
    ) -> str | None:
        """The reason why a schema registry cannot be read; None if the registry responds. ``is_login_enough`` is True
        if the user need not have the right to list all subjects."""
        ...

    def columns(self, connector: str, options: PlannedOptions) -> Mapping[str, str]:
        """The columns of an upstream with their types in canonical SQL; empty if the upstream cannot list columns."""
        ...

    def look_at_target(
        self,
        connector: str,
        options: PlannedOptions,
        shape: SinkShape | None,
        candidates: tuple[SecretRecord, ...] = (),
    ) -> SinkLook:
        """Checks whether a sink's target can store rows of the given shape, which consists of the sink's columns, keys
        and type. If no shape is given, checks only whether the target responds. Writes nothing.
        """
        ...


def look_closely(upstreams: UpstreamPort, connector: str, options: PlannedOptions) -> Upstream:
    """Does the same as :meth:`look`, and also determines the topics in which some offsets have no record. The preview
    of a move needs these topics."""
    upstream = upstreams.look(connector, options)
    if not upstream.is_reachable or not upstream.splits:
        return upstream
    sparse = upstreams.sparse_topics(connector, options)
    return replace(upstream, sparse=sparse) if sparse else upstream
