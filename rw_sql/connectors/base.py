"""What a connector is: option spec, split codec, enumerator, validation and reader.

The built-in ones are listed in :mod:`rw_sql.connectors.registry`; third parties' are found through the entry-point
group ``rw_sql.connectors``. A split state is always *the next record to read*, never the last one read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rw_sql.errors import near_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from rw_sql.connectors.spec import ConnectorSpec

EXACTLY, AT_MOST = "exactly", "at most"
"""What a stretch of offsets says of its records, where it says anything: as many as it is long, or no more."""

RESOLVE_TIMEOUT_SECONDS = 8.0
"""How long validation and discovery may wait for an upstream before they call it unreachable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitState:
    """Where one split stands: ``offset`` is the next record to read.

    ``incarnation`` tells one life of the upstream's split from another (Kafka: topic id), ``cluster`` one upstream
    from another (Kafka: cluster id); None where unknown. Stored as JSON by :meth:`Connector.encode_state`.
    """

    split: str
    offset: int
    cluster: str | None = None
    incarnation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSplit:
    """What the upstream says of one split: it holds the records ``[start, end)``.

    ``is_endless``: its records come into being as they are read (a generator). ``end`` then only limits what may be
    asked for: it says nothing about lag, and nobody can wait until it is read.
    """

    split: str
    start: int
    end: int
    cluster: str | None = None
    incarnation: str | None = None
    is_endless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A look at the upstream at one moment. ``error`` says why nothing could be seen; ``splits`` is then empty.

    ``missing`` names what the options ask for and the upstream does not have (topics), and ``present`` then what it has
    in its place, as far as it shows that. ``sparse`` tells why offsets
    of a topic are no count of its records (compacted, transactional); a plain look leaves it empty.
    """

    splits: Mapping[str, UpstreamSplit] = field(default_factory=dict)
    cluster: str | None = None
    error: str | None = None
    missing: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    sparse: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_reachable(self) -> bool:
        """Whether the upstream answered."""
        return self.error is None


def missing_hint(wanted: str, present: Iterable[str]) -> str:
    """What to type instead of a topic that is not there, out of those that are."""
    near = near_names(wanted, present)
    if not near:
        return "create the topic first, or name another one"
    others = " and ".join(f'"{name}"' for name in near[1:])
    return f'did you mean "{near[0]}"?{f" This cluster has {others} too" if others else ""}'


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsets:
    """What a consumer group has committed: per split the next record it will read, only where it committed one.

    ``members`` is how many consumers it has now: with any it moves on. ``groups`` are the names of groups that there
    are, where this one has committed nothing.
    """

    offsets: Mapping[str, int] = field(default_factory=dict)
    members: int = 0
    groups: tuple[str, ...] = ()


class UpstreamWatch(Protocol):
    """Asks an upstream again and again, over one connection. Not shared between threads."""

    def incarnations(self, topics: Sequence[str]) -> Mapping[str, str | None]:
        """The life each topic is in now; one that is gone is left out. Raises OSError where nobody answers."""
        ...

    def close(self) -> None:
        """Ends the connection."""
        ...


class RecordFetcher(Protocol):
    """Fetches small batches in this process, over connections that it keeps. One thread fetches at a time."""

    def connect(self, splits: Sequence[str]) -> None:
        """Makes the connections that the first fetch of these splits will need, as far as they come about soon.

        Raises nothing where the upstream does not answer: that fetch finds out.
        """
        ...

    def fetch(self, ranges: Mapping[str, tuple[int, int]]) -> pa.Table | None:
        """The records ``[start, end)`` of each split, in the columns of :meth:`Connector.read_stream`.

        None where Spark's reader had better read them, which then also finds out what is wrong.
        """
        ...

    def close(self) -> None:
        """Ends the connections; a fetch that is under way ends without a result."""
        ...


@runtime_checkable
class FetchingConnector(Protocol):
    """What a connector has beside the rest where small batches are quicker without Spark's reader."""

    def fetcher(self, options: Mapping[str, str], *, with_headers: bool = False) -> RecordFetcher:
        """One for a run of a source's reader. Reaches no upstream yet."""
        ...


@runtime_checkable
class KeepingConnector(Protocol):
    """What a connector has beside the rest where its questions are asked over connections that outlive them."""

    def reconnect(self, options: Mapping[str, str]) -> None:
        """Lets what is asked from now on be asked over new connections: names may lead elsewhere since."""
        ...


def look_anew(kind: Connector, options: Mapping[str, str]) -> Upstream:
    """:meth:`Connector.look` as who reads the upstream from now on would find it."""
    if isinstance(kind, KeepingConnector):
        kind.reconnect(options)
    return kind.look(options)


class Connector(Protocol):
    """One kind of upstream. An instance holds no connection and no state; one serves all sources of its kind.

    ``options`` below are a source's whole WITH list with references resolved (connection merged in, secrets replaced
    by their values), checked against the spec, without ``connector``.
    """

    @property
    def spec(self) -> ConnectorSpec:
        """The options it takes, from ``sources/<name>.toml``."""
        ...

    def is_shareable(self) -> bool:
        """Whether one reader can serve all dependents of a source."""
        ...

    def check_options(self, options: Mapping[str, str]) -> None:
        """Whether the options fit together. Reaches no upstream. Raises INVALID_PROPERTY, MISSING_PROPERTY."""
        ...

    def check_columns(self, options: Mapping[str, str], columns: Mapping[str, str]) -> None:
        """Whether the options fit the columns (name → canonical type). Reaches no upstream. Raises SqlError."""
        ...

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """Lists the splits the options name, with their bounds. The upstream's faults are told, never raised."""
        ...

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """Per split, the offset of the first record at or after a time (its end where there is none)."""
        ...

    def sparse_topics(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, str]:
        """Why offsets are no count of records, by what :meth:`split_topic` names: empty where each one is a record.

        The upstream's faults are a reason too, never raised.
        """
        ...

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """When the record at each split's offset was written, in milliseconds since 1970, if it is told soon."""
        ...

    def group_offsets(
        self,
        options: Mapping[str, str],
        group: str,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> GroupOffsets:
        """What a consumer group has committed of the splits. Raises SqlError NOT_SUPPORTED where there are none."""
        ...

    def start_offset(self, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]) -> int:
        """Where a split without a state begins, by ``scan.startup.mode``; ``at_times`` answers for timestamp mode."""
        ...

    def startup_time(self, options: Mapping[str, str]) -> int | None:
        """Milliseconds since the epoch that ``scan.startup.mode = 'timestamp'`` asks for, else None."""
        ...

    def split_topic(self, split: str) -> str:
        """The upstream part that a split belongs to (Kafka: its topic). Splits of two topics never share positions."""
        ...

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The upstream parts that the options name: splits of any other are orphans."""
        ...

    def watch(self, options: Mapping[str, str]) -> UpstreamWatch | None:
        """Keeps asking the upstream which life its parts are in; None where they have but one."""
        ...

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """The split id for what a statement wrote: Kafka takes ``'0'`` for ``'orders:0'`` where there is one topic."""
        ...

    def encode_state(self, state: SplitState) -> str:
        """The state as JSON, keys sorted."""
        ...

    def decode_state(self, split: str, text: str) -> SplitState:
        """The state from JSON or from a bare number. Raises SqlError INVALID_SPLIT_STATE naming what is wrong."""
        ...

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
        """A streaming DataFrame of exactly the splits in ``positions``, each from its position.

        Columns: ``_rw_split`` string, ``_rw_offset`` long, ``key`` binary, ``value`` binary, ``partition`` string,
        ``timestamp`` timestamp, ``headers`` array<struct<key string, value binary>>. ``max_records`` bounds one batch;
        None leaves it to the connector. ``headers`` is NULL unless ``with_headers``. ``columns`` are the source's own
        (name → canonical type), for connectors that make their rows by them.
        """
        ...

    def read_batch(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
        *,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """A DataFrame of the records ``[start, end)`` of each split, in the columns of :meth:`read_stream`.

        Reading it fails where the upstream does not have a range's first record any more; holes in between (compacted
        records, transactions' markers) are no failure.
        """
        ...

    def read_positions(self, source_offset: str) -> dict[str, int]:
        """The next offset per split out of a Spark offset entry of this reader (one line of ``offsets/N``)."""
        ...

    def write_positions(self, positions: Mapping[str, int]) -> str:
        """The entry that :meth:`read_positions` reads: these splits and no others."""
        ...

    def beginning(self, positions: Mapping[str, int]) -> str | None:
        """What Spark's source writes into ``sources/0/0`` of a checkpoint about where it began; None: it finds out."""
        ...

    def spark_packages(self) -> tuple[str, ...]:
        """``ivy://`` coordinates that ADD JAR must load before the first read; empty for a Python reader."""
        ...


@runtime_checkable
class SnapshotReader(Protocol):
    """What a connector has besides where REFRESH TABLE can read it: all that the upstream holds, at once."""

    def read_snapshot(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        encode: str = "NATIVE",
        encode_options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """All rows that the upstream holds now, in exactly ``columns`` (name → Spark's type) and their order.

        ``encode`` is FORMAT PLAIN's (CSV, JSON, PARQUET, NATIVE), upper case, ``encode_options`` what stands in its
        brackets. Nothing need be read before an action; the DataFrame is kept until what is derived from it is done, so
        that what its rows come from may be held as long as it lives. An upstream column that is missing, a value that
        does not fit its type and a record that does not decode fail the reading, by now or then: a refresh that cannot
        read everything changes nothing. A row whose key another one has is one of them, whichever comes.
        """
        ...


@runtime_checkable
class LineReader(Protocol):
    """What a :class:`SnapshotReader` has besides where its records are lines of text, of ENCODE CSV or JSON."""

    def read_lines(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Sequence[str],
        *,
        encode: str,
        encode_options: Mapping[str, str],
    ) -> DataFrame:
        """The lines that the upstream holds now, as records (``value``, ``_rw_split``, ``_rw_offset``), not decoded.

        ``columns`` are the names of the fields, in which a line of CSV with a header has them. As
        :meth:`SnapshotReader.read_snapshot` otherwise, which is not called for such records.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMisfit:
    """A declared column that an upstream cannot give: what is wrong with it, and what to type against that."""

    column: str
    message: str
    hint: str
    is_missing: bool = False


@runtime_checkable
class ColumnReader(Protocol):
    """What a SnapshotReader may have besides, where its upstream has columns of types, and values of these."""

    def column_misfit(self, options: Mapping[str, str], columns: Mapping[str, str]) -> ColumnMisfit | None:
        """The first of ``columns`` (name → Spark's type) that the upstream cannot give; None where it has them all.

        None also where nobody answers, which a look tells.
        """
        ...

    def row_estimate(self, options: Mapping[str, str]) -> int | None:
        """About how many rows there are; None where that is not known soon. Raises nothing where nobody answers."""
        ...

    def read_columns(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Mapping[str, str],
        misfit: Callable[[str, Column, Mapping[str, Column]], Column],
    ) -> DataFrame:
        """As :meth:`SnapshotReader.read_snapshot`; what a value that does not fit fails the reading with is given.

        ``misfit`` makes the text of the error of a column's name, its value as text, and the texts of all columns.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a split: ``value`` is what ENCODE decodes."""

    offset: int
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What is left of a split: offsets ``[start, end)``. ``is_whole``: it is read in one batch or not at all."""

    split: str
    start: int
    end: int
    is_whole: bool = False
