"""Defines the port for the upstreams of sources and the targets of sinks. A connector and its options identify an
upstream or a target."""

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
    """The port for upstreams and targets. The options that the methods accept do not contain the values of secrets, but
    refer to secrets by name.

    ``candidates`` are new secrets that are not committed yet. The methods use their values in place of the values in
    the catalog.
    """

    def look(self, connector: str, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = ()) -> Upstream:
        """Returns the splits of an upstream, with their bounds and identities."""
        ...

    def look_again(self, connector: str, options: PlannedOptions) -> Upstream:
        """Does the same as :meth:`look`, but contacts the upstream even if an earlier call has already done so."""
        ...

    def sparse_topics(self, connector: str, options: PlannedOptions) -> Mapping[str, str]:
        """Maps each topic in which some offsets have no record to the reason for these missing records."""
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
        """Maps each split to the time of the record at the given offset, in milliseconds since 1970. A split is absent
        if this time cannot be determined quickly."""
        ...

    def group_offsets(
        self, connector: str, options: PlannedOptions, group: str, splits: tuple[str, ...]
    ) -> GroupOffsets:
        """Returns the offsets that a consumer group has committed for the given splits."""
        ...

    def column_misfit(self, connector: str, options: PlannedOptions, columns: Mapping[str, str]) -> ColumnMisfit | None:
        """Returns the first of ``columns`` that an upstream cannot provide with the given type. Returns None if the
        upstream can provide all of them. ``columns`` maps names to Spark types."""
        ...

    def describe_table(
        self, connector: str, options: PlannedOptions, table: str, *, is_needed: bool
    ) -> UpstreamTable | None:
        """Describes an upstream table of a change data capture source.

        An inspector that must not contact upstreams returns None if ``is_needed`` is False.
        """
        ...

    def find_lacks(
        self, connector: str, options: PlannedOptions, tables: Mapping[str, Mapping[str, str] | None]
    ) -> tuple[Lack, ...]:
        """Returns the requirements that the upstream of a change data capture source does not meet. Checks only the
        requirements for reading the given tables with their declared columns."""
        ...

    def slot_details(self, connector: str, options: PlannedOptions) -> SlotDetails | None:
        """Describes the slot of a change data capture source. Returns None if the slot does not exist, or if the
        upstream does not respond."""
        ...

    def find_obstacle(self, connector: str, options: PlannedOptions, position: SplitState) -> CaptureError | None:
        """The reason why the reader of a change data capture source cannot continue at ``position``; None if it can
        continue. If the upstream does not respond, the reason is temporary."""
        ...

    def lacks_slot(self, connector: str, options: PlannedOptions) -> bool:
        """True if the upstream of a change data capture source responds but lacks the source's slot."""
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
        """Counts the changes to the upstream tables ``tables`` between the positions ``start`` and ``end`` of a change
        data capture source. Returns None if the changes cannot be counted."""
        ...

    def read_schema(self, options: PlannedOptions, subject: str, *, is_needed: bool) -> SchemaLook:
        """Returns the newest schema of a subject in a schema registry. ``is_needed`` is True if the statement cannot be
        planned without the schema."""
        ...

    def read_schema_file(self, location: str) -> bytes:
        """Returns the content of a file that contains a schema. Raises SqlError FILE_UNREADABLE if the file cannot be
        read."""
        ...

    def registry_error(
        self, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = (), *, is_login_enough: bool = False
    ) -> str | None:
        """Returns the reason why a schema registry cannot be used; None if it can be used. If ``is_login_enough`` is
        True, a registry that accepts the login but does not permit listing all subjects counts as usable."""
        ...

    def columns(self, connector: str, options: PlannedOptions) -> Mapping[str, str]:
        """Maps the columns of an upstream to their types in canonical SQL; empty if the upstream cannot list its
        columns."""
        ...

    def look_at_target(
        self,
        connector: str,
        options: PlannedOptions,
        shape: SinkShape | None,
        candidates: tuple[SecretRecord, ...] = (),
    ) -> SinkLook:
        """Checks whether a sink's target can store rows of the given shape: the sink's columns, keys and type. If
        ``shape`` is None, checks only whether the target responds. Writes nothing to the target.
        """
        ...


def look_closely(upstreams: UpstreamPort, connector: str, options: PlannedOptions) -> Upstream:
    """Does the same as :meth:`UpstreamPort.look`, and also determines the topics in which some offsets have no record.
    The preview of a move needs to know these topics."""
    upstream = upstreams.look(connector, options)
    if not upstream.is_reachable or not upstream.splits:
        return upstream
    sparse = upstreams.sparse_topics(connector, options)
    return replace(upstream, sparse=sparse) if sparse else upstream
