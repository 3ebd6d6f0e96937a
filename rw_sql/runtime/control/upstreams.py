"""Requests the state of upstreams and of the targets of sinks, through the connectors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from rw_sql.connectors import registry
from rw_sql.connectors.base import TermConnector, Upstream
from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.registry import change_connector
from rw_sql.connectors.schemas.look import look_at_subject, read_schema_file, registry_error
from rw_sql.connectors.sink import SinkLook
from rw_sql.connectors.snapshots import ColumnChecker, ColumnLister
from rw_sql.connectors.support.messages import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rw_sql.connectors.base import GroupOffsets, SplitState
    from rw_sql.connectors.changes import ChangeCount, Lack, UpstreamTable
    from rw_sql.connectors.schemas.look import SchemaLook
    from rw_sql.connectors.sink import SinkShape
    from rw_sql.connectors.slot_details import SlotDetails
    from rw_sql.connectors.snapshots import ColumnMisfit
    from rw_sql.metastore.records import SecretRecord
    from rw_sql.model.options import PlannedOptions

Look = tuple[str, "PlannedOptions", tuple["SecretRecord", ...]]
"""The key of a cached state of an upstream: the connector, the options, and the candidates (see :class:`Resolve`)."""


class Resolve(Protocol):
    """A function that replaces the references to secrets in options with the values of the secrets. A secret in
    ``candidates`` takes precedence over the secret with the same id in the catalog."""

    def __call__(self, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = ()) -> dict[str, str]: ...


class Upstreams:
    """Implements ``UpstreamPort``. ``looks`` caches the states of upstreams, so that :meth:`look` requests each state
    only once.

    ``drops_slot`` takes the options of a server. It returns True if the slot of a dropped source still has to be
    dropped on this server.
    """

    def __init__(
        self, resolve: Resolve, looks: dict[Look, Upstream], drops_slot: Callable[[Mapping[str, str]], bool]
    ) -> None:
        self._resolve = resolve
        self._looks = looks
        self._drops_slot = drops_slot

    def look(self, connector: str, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = ()) -> Upstream:
        key = (connector, options, candidates)
        if key not in self._looks:
            self._looks[key] = _seen(connector, self._resolve(options, candidates))
        return self._looks[key]

    def look_again(self, connector: str, options: PlannedOptions) -> Upstream:
        return _seen(connector, self._resolve(options))

    def sparse_topics(self, connector: str, options: PlannedOptions) -> Mapping[str, str]:
        return registry.connector(connector).sparse_topics(self._resolve(options))

    def offsets_at(
        self, connector: str, options: PlannedOptions, milliseconds: int, splits: tuple[str, ...]
    ) -> dict[str, int]:
        return dict(registry.connector(connector).offsets_at(self._resolve(options), milliseconds, splits))

    def cut_logs(self, connector: str, options: PlannedOptions, states: Mapping[str, SplitState]) -> Mapping[str, int]:
        kind = registry.connector(connector)
        try:
            return kind.diverged(self._resolve(options), states) if isinstance(kind, TermConnector) else {}
        except OSError:
            return {}

    def record_times(self, connector: str, options: PlannedOptions, offsets: Mapping[str, int]) -> Mapping[str, int]:
        return registry.connector(connector).record_times(self._resolve(options), offsets)

    def group_offsets(
        self, connector: str, options: PlannedOptions, group: str, splits: tuple[str, ...]
    ) -> GroupOffsets:
        return registry.connector(connector).group_offsets(self._resolve(options), group, splits)

    def column_misfit(self, connector: str, options: PlannedOptions, columns: Mapping[str, str]) -> ColumnMisfit | None:
        resolved = self._resolve(options)
        reader = registry.connector(connector)
        return reader.column_misfit(resolved, columns) if isinstance(reader, ColumnChecker) else None

    def describe_table(
        self, connector: str, options: PlannedOptions, table: str, *, is_needed: bool
    ) -> UpstreamTable | None:
        return change_connector(connector).describe_table(self._resolve(options), table)

    def find_lacks(
        self, connector: str, options: PlannedOptions, tables: Mapping[str, Mapping[str, str] | None]
    ) -> tuple[Lack, ...]:
        resolved = self._resolve(options)
        lacks = change_connector(connector).find_lacks(resolved, tables)
        if any(lack.is_for_slot for lack in lacks) and self._drops_slot(resolved):
            return tuple(lack for lack in lacks if not lack.is_for_slot)
        return lacks

    def slot_details(self, connector: str, options: PlannedOptions) -> SlotDetails | None:
        try:
            return change_connector(connector).slot_details(self._resolve(options))
        except CaptureError:
            return None

    def find_obstacle(self, connector: str, options: PlannedOptions, position: SplitState) -> CaptureError | None:
        resolved = self._resolve(options)
        try:
            change_connector(connector).check_position(resolved, position)
        except CaptureError as error:
            error.message = without_secrets(error.message, resolved)
            return error
        return None

    def lacks_slot(self, connector: str, options: PlannedOptions) -> bool:
        try:
            return change_connector(connector).slot_details(self._resolve(options)) is None
        except CaptureError:
            return False

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
        resolved = self._resolve(options)
        return change_connector(connector).count_changes(
            resolved, start, end, tables, only_first=only_first, includes_earlier=includes_earlier
        )

    def read_schema(self, options: PlannedOptions, subject: str, *, is_needed: bool) -> SchemaLook:
        return look_at_subject(self._resolve(options), subject)

    def read_schema_file(self, location: str) -> bytes:
        return read_schema_file(location)

    def registry_error(
        self, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = (), *, is_login_enough: bool = False
    ) -> str | None:
        resolved = self._resolve(options, candidates)
        error = registry_error(resolved, is_login_enough=is_login_enough)
        return None if error is None else without_secrets(error, resolved)

    def columns(self, connector: str, options: PlannedOptions) -> Mapping[str, str]:
        lister = registry.connector(connector)
        return lister.columns(self._resolve(options)) if isinstance(lister, ColumnLister) else {}

    def look_at_target(
        self,
        connector: str,
        options: PlannedOptions,
        shape: SinkShape | None,
        candidates: tuple[SecretRecord, ...] = (),
    ) -> SinkLook:
        resolved = self._resolve(options, candidates)
        try:
            found = registry.sink_connector(connector).look(resolved, shape)
        except OSError as error:
            found = SinkLook(error=_told(error))
        return found if found.error is None else replace(found, error=without_secrets(found.error, resolved))


def _seen(connector: str, options: Mapping[str, str]) -> Upstream:
    """Requests the state of an upstream. The error in this state, if any, contains no secret."""
    try:
        found = registry.connector(connector).look(options)
    except OSError as error:
        # Without this handler, the statement would report the error as an error of the warehouse's store.
        found = Upstream(error=_told(error))
    return found if found.error is None else replace(found, error=without_secrets(found.error, options))


def _told(error: OSError) -> str:
    """Returns an error of a connector as one line of text. The connector has raised this error although it should have
    returned it."""
    return " ".join(str(error).split()) or type(error).__name__
