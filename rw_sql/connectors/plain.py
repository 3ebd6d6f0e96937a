"""A base class for built-in and third-party connectors. It contains default implementations of connector methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS
from rw_sql.connectors.spec import check_option_values
from rw_sql.connectors.support import split_state_json as codec
from rw_sql.errors import NOT_SUPPORTED, SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rw_sql.connectors.base import GroupOffsets, SplitState, Upstream, UpstreamSplit, UpstreamWatch
    from rw_sql.connectors.spec import ConnectorSpec

_MODE = "scan.startup.mode"


class PlainConnector(ABC):
    """Implements the methods that most connectors share. See :class:`rw_sql.connectors.base.Connector` for the contract
    of each method.

    ``other_targets`` are the targets of INJECT that the connector supports in addition to VALUES, as a text for hints.
    ``offsets_count`` is EXACTLY if each offset is one record, AT_MOST if some offsets may have no record, and None if
    offsets do not count records. Unless it is None, the number of records in a batch is compared with the lengths of
    the batch's ranges before each commit. ``has_wide_offsets`` is true if offsets may have up to 60 decimal digits. The
    column ``_rw_offset`` is then a string (see :mod:`rw_sql.connectors.support.wide_offsets`). ``has_shared_offsets``
    is true if several records may have the same offset; the column ``_rw_index`` then orders these records.
    ``is_sent_once`` is true if the upstream sends each record only once. In this case, records can be read again only
    from the source's log in the warehouse. ``immovable`` is the reason why positions cannot be moved; None if they can
    be moved. ``included_offset`` is the column of the records that INCLUDE offset returns instead of the numeric
    offset; None for the numeric offset. ``connection_stand_ins`` are values that are added to the options of a
    connection before :meth:`check_options` checks them. They stand for options that only a source can have, and that
    :meth:`check_options` would otherwise report as missing. ``executor_packages`` are the packages that ``read_batch``,
    ``read_stream`` or ``read_snapshot`` import in Spark's Python processes, as named in import statements. On a
    cluster, a reader starts only if every executor has these packages.
    """

    other_targets = "TO EARLIEST, TO LATEST or TO OFFSET"
    offsets_count: str | None = None
    has_wide_offsets = False
    has_shared_offsets = False
    is_sent_once = False
    included_offset: str | None = None
    immovable: str | None = None
    connection_stand_ins: Mapping[str, str] = MappingProxyType({})
    executor_packages: tuple[str, ...] = ()

    @property
    @abstractmethod
    def spec(self) -> ConnectorSpec:
        """The options that the connector accepts. An implementation calls ``parse_spec`` with TOML text."""

    @abstractmethod
    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """All splits with their bounds. Errors of the upstream are never raised, but returned in ``Upstream.error``."""

    def is_shareable(self) -> bool:
        """The value of ``shareable`` in the connector's TOML file."""
        return self.spec.is_shareable

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks the options against the spec."""
        check_option_values(self.spec, options)

    def check_columns(self, options: Mapping[str, str], columns: Mapping[str, str]) -> None:
        """Checks nothing, because values that do not fit their columns are reported when they are read."""
        return

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """Raises SqlError NOT_SUPPORTED, because records cannot be found by time."""
        raise SqlError(
            NOT_SUPPORTED,
            f"a {self.spec.name} source cannot find records by time",
            hint=f"name the offsets with VALUES, or use {self.other_targets}",
        )

    def sparse_topics(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, str]:
        """Returns no topics, because every offset is a record."""
        return {}

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """Returns no times, because the times of records are unknown."""
        return {}

    def group_offsets(
        self,
        options: Mapping[str, str],
        group: str,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> GroupOffsets:
        """Raises SqlError NOT_SUPPORTED, because there are no consumer groups."""
        raise SqlError(
            NOT_SUPPORTED,
            f"a {self.spec.name} source has no consumer groups",
            hint=f"name the offsets with VALUES, or use {self.other_targets}",
        )

    def start_offset(self, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]) -> int:
        """Returns the end of the split if ``scan.startup.mode`` is ``latest`` and the split has an end; otherwise,
        returns the start of the split."""
        mode = self.spec.value(options, _MODE) if self.spec.option(_MODE) else None
        return split.end if (mode or "").strip().lower() == "latest" and split.has_end else split.start

    def startup_time(self, options: Mapping[str, str]) -> int | None:
        """Returns None, because the connector has no startup mode ``timestamp``."""
        return None

    def watch(self, options: Mapping[str, str]) -> UpstreamWatch | None:
        """Returns None. In these connectors, incarnations never change, or the reader itself detects a change."""
        return None

    def encode_state(self, state: SplitState) -> str:
        """Encodes a state as JSON. Equal states give equal strings."""
        return codec.encode_state(state)

    def decode_state(self, split: str, text: str) -> SplitState:
        """Decodes a state from JSON or from a bare number."""
        return codec.decode_state(split, text)

    def beginning(self, positions: Mapping[str, int]) -> str | None:
        """Returns None, because Spark itself writes the file with the first offsets."""
        return None

    def spark_packages(self) -> tuple[str, ...]:
        """Returns no coordinates of jars, because the reader is written in Python and needs no jars."""
        return ()
