"""A base class for connectors whose upstream can only be read completely. This upstream has no splits, no positions
and no streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.plain import PlainConnector
from rw_sql.errors import NOT_SUPPORTED, UNKNOWN_SPLIT, SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import GroupOffsets, SplitState, UpstreamSplit


class BatchOnly(PlainConnector):
    """Implements :class:`rw_sql.connectors.base.Connector` for an upstream that can only be read completely.

    A subclass defines ``spec``, ``look`` and ``read_snapshot``.
    """

    def offsets_at(
        self, options: Mapping[str, str], milliseconds: int, splits: Sequence[str], *, timeout: float = 0.0
    ) -> Mapping[str, int]:
        """Returns an empty result, because there are no splits."""
        return {}

    def group_offsets(
        self, options: Mapping[str, str], group: str, splits: Sequence[str], *, timeout: float = 0.0
    ) -> GroupOffsets:
        """Raises SqlError NOT_SUPPORTED, because the upstream has no splits."""
        raise self._refused()

    def start_offset(self, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]) -> int:
        """Raises SqlError NOT_SUPPORTED, because the upstream has no splits."""
        raise self._refused()

    def split_topic(self, split: str) -> str:
        """Returns the split unchanged, because the upstream has no topics."""
        return split

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """Returns an empty result, because there are no splits."""
        return ()

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """Raises SqlError UNKNOWN_SPLIT."""
        raise SqlError(
            UNKNOWN_SPLIT,
            f'"{written}" is not a split: connector "{self.spec.name}" has none',
            hint="REFRESH TABLE reads the whole upstream",
        )

    def read_stream(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        positions: Mapping[str, SplitState],
        *,
        max_records: int | None,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Raises SqlError NOT_SUPPORTED, because the upstream has no splits."""
        raise self._refused()

    def read_batch(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
        *,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Raises SqlError NOT_SUPPORTED, because the upstream has no splits."""
        raise self._refused()

    def read_positions(self, source_offset: str) -> dict[str, int]:
        """Returns an empty result, because there are no splits."""
        return {}

    def write_positions(self, positions: Mapping[str, int]) -> str:
        """Returns an empty JSON object, because there are no splits."""
        return "{}"

    def _refused(self) -> SqlError:
        return SqlError(
            NOT_SUPPORTED,
            f'connector "{self.spec.name}" is read as a whole: it has no splits and no positions',
            hint="REFRESH TABLE reads it",
        )
