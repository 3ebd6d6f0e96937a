"""A connector whose upstream is read as a whole: it has no splits, no positions and no streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors import codec
from rw_sql.connectors.spec import check_option_values
from rw_sql.errors import NOT_SUPPORTED, UNKNOWN_SPLIT, SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import GroupOffsets, SplitState, UpstreamSplit, UpstreamWatch
    from rw_sql.connectors.spec import ConnectorSpec


class BatchOnly:
    """What :class:`rw_sql.connectors.base.Connector` asks for, of one that is only read as a whole.

    A subclass says what its options are and what it sees upstream, and reads: ``spec``, ``look`` and ``read_snapshot``.
    """

    @property
    def spec(self) -> ConnectorSpec:
        """The options it takes."""
        raise NotImplementedError

    def is_shareable(self) -> bool:
        """It has no readers to share."""
        return self.spec.is_shareable

    def check_options(self, options: Mapping[str, str]) -> None:
        """Whether the options fit together."""
        check_option_values(self.spec, options)

    def check_columns(self, options: Mapping[str, str], columns: Mapping[str, str]) -> None:
        """Nothing to check: what does not fit is found when it is read."""

    def offsets_at(
        self, options: Mapping[str, str], milliseconds: int, splits: Sequence[str], *, timeout: float = 0.0
    ) -> Mapping[str, int]:
        """None: there are no splits."""
        return {}

    def sparse_topics(self, options: Mapping[str, str], *, timeout: float = 0.0) -> Mapping[str, str]:
        """None: there are no offsets."""
        return {}

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """None: there are no offsets."""
        return {}

    def group_offsets(
        self, options: Mapping[str, str], group: str, splits: Sequence[str], *, timeout: float = 0.0
    ) -> GroupOffsets:
        """Raises SqlError NOT_SUPPORTED."""
        raise self._refused()

    def start_offset(self, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]) -> int:
        """Raises SqlError NOT_SUPPORTED."""
        raise self._refused()

    def startup_time(self, options: Mapping[str, str]) -> int | None:
        """None: all there is is read."""
        return None

    def split_topic(self, split: str) -> str:
        """The split itself."""
        return split

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """None: there are no splits."""
        return ()

    def watch(self, options: Mapping[str, str]) -> UpstreamWatch | None:
        """None: what it was when it was read before does not matter."""
        return None

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """Raises SqlError UNKNOWN_SPLIT."""
        raise SqlError(
            UNKNOWN_SPLIT,
            f'"{written}" is not a split: connector "{self.spec.name}" has none',
            hint="REFRESH TABLE reads the whole upstream",
        )

    def encode_state(self, state: SplitState) -> str:
        """The state as JSON, keys sorted."""
        return codec.encode_state(state)

    def decode_state(self, split: str, text: str) -> SplitState:
        """The state from JSON or from a bare number."""
        return codec.decode_state(split, text)

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
        """Raises SqlError NOT_SUPPORTED."""
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
        """Raises SqlError NOT_SUPPORTED."""
        raise self._refused()

    def read_positions(self, source_offset: str) -> dict[str, int]:
        """None: there are no splits."""
        return {}

    def write_positions(self, positions: Mapping[str, int]) -> str:
        """An empty map."""
        return "{}"

    def spark_packages(self) -> tuple[str, ...]:
        """None: the reader is Python."""
        return ()

    def _refused(self) -> SqlError:
        return SqlError(
            NOT_SUPPORTED,
            f'connector "{self.spec.name}" is read as a whole: it has no splits and no positions',
            hint="REFRESH TABLE reads it",
        )
