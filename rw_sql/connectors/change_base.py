"""The base class of the connectors that capture changes to a database.

Spark does not read the sources of these connectors. A :class:`~rw_sql.connectors.changes.ChangeReader` supplies the
rows of each batch as Arrow tables (:mod:`rw_sql.runtime.ingest.change_feed`), and a thread writes the rows
(:mod:`rw_sql.runtime.jobs.batch_thread`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS
from rw_sql.connectors.plain import PlainConnector
from rw_sql.connectors.ranged import batch_ends, batch_offset
from rw_sql.connectors.spec import OptionError
from rw_sql.connectors.support.table_names import plain_name
from rw_sql.errors import INVALID_PROPERTY, NOT_SUPPORTED, SqlError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState, UpstreamSplit
    from rw_sql.connectors.changes import ChangeCount


def check_root_certificate(options: Mapping[str, str], hint: str) -> None:
    """Raises OptionError if ``ssl.mode`` requires a check of the server's certificate and the options name no
    certificate authority."""
    mode = options.get("ssl.mode", "").strip().lower()
    if mode.startswith("verify-") and "ssl.root.cert" not in options:
        raise OptionError(
            INVALID_PROPERTY,
            f"property \"ssl.mode\" = '{mode}' needs ssl.root.cert, to check the server's certificate",
            key="ssl.mode",
            hint=hint,
        )


class ChangeBase(PlainConnector):
    """Implements the methods of :class:`rw_sql.connectors.base.Connector` that are the same for all connectors that
    capture changes to a database.

    A subclass also implements :class:`rw_sql.connectors.changes.ChangeConnector`. A source has one split, whose
    offsets are positions in the upstream's log of changes.
    """

    other_targets = "TO EARLIEST, TO LATEST or TO OFFSET"
    offsets_count: str | None = None
    passed_text = "the slot was moved, or the server removed log that it needs (wal_status lost): the slot begins at"
    kept_text = "the server keeps its log until the source continues to read, so the server's disk may fill"
    positions_count_bytes = True
    table_prefix = ("schema", "public")
    table_quotes = '"'
    """The characters that may enclose a part of a table's name as quotation marks. The first of them is the usual
    one."""

    def is_shareable(self) -> bool:
        """Returns True: one reader serves all tables and views of a source."""
        return True

    def split_topic(self, split: str) -> str:
        """Returns the split itself, because a split has no topic."""
        return split

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """Returns ``written`` unchanged: a statement contains the split's id."""
        return written

    def plain_name(self, table: str) -> str:
        """Returns a table's name with only the necessary quotes."""
        return plain_name(table, self.table_quotes)

    @abstractmethod
    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The split that the options name."""

    def sparse_topics(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, str]:
        """Returns the split and the reason: its offsets count bytes of the server's log, not rows."""
        return dict.fromkeys(self.named_topics(options), "bytes of the server's log, not rows")

    def start_offset(self, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]) -> int:
        """Returns the end of the split, because the snapshots of the tables deliver all earlier rows."""
        return split.end

    def explain_other(self, before: SplitState, now: UpstreamSplit) -> str:
        """Returns a clause with the identity of the present upstream, and the identity of the upstream from which the
        position comes."""
        return (
            f"the upstream is {now.cluster}/{now.incarnation}, but the position belongs to "
            f"{before.cluster}/{before.incarnation}"
        )

    def owns_publication(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> bool | None:
        """Returns False: unless a subclass overrides this method, the connector creates no publication."""
        return False

    def slot_removal(self, options: Mapping[str, str]) -> str | None:
        """Returns None: unless a subclass overrides this method, the server has no slots."""
        return None

    def count_changes(
        self,
        options: Mapping[str, str],
        start: int,
        end: int,
        tables: Collection[str],
        *,
        only_first: bool = False,
        includes_earlier: bool = True,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> ChangeCount | None:
        """Returns None: unless a subclass overrides this method, the connector cannot count changes."""
        return None

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
        """Raises SqlError NOT_SUPPORTED: only the source's shared reader can read the changes."""
        raise self._unreadable()

    def read_batch(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
        *,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Raises SqlError NOT_SUPPORTED: the upstream cannot replay a range.

        Only the source's log in the warehouse contains the changes of a range.
        """
        raise self._unreadable()

    def read_positions(self, source_offset: str) -> dict[str, int]:
        """Reads the position from the string that :meth:`write_positions` returned."""
        return batch_ends(source_offset)

    def write_positions(self, positions: Mapping[str, int]) -> str:
        """Returns the string that :meth:`read_positions` reads."""
        return batch_offset(0, {split: (at, at) for split, at in positions.items()})

    def _unreadable(self) -> SqlError:
        return SqlError(
            NOT_SUPPORTED,
            f"a {self.spec.name} source cannot be read a second time: its server sends each change once",
            hint="read a table of it: CREATE TABLE t (*) FROM source TABLE 'schema.table'",
        )
