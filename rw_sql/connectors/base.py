"""The interface of a source connector: option spec, split ids and states, a look at the upstream, validation, readers.

:mod:`rw_sql.connectors.registry` lists the built-in connectors and finds others through the entry-point group
``rw_sql.connectors``. A split state is always *the next record to read*, never the last one read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from rw_sql.connectors.spec import ConnectorSpec

EXACTLY, AT_MOST = "exactly", "at most"
"""How many records a range of offsets contains: exactly its length, or at most that many."""

RESOLVE_TIMEOUT_SECONDS = 8.0
"""The time limit of a look at an upstream, in seconds; after it the upstream counts as unreachable."""


CREATE_TOPIC = "create it: kafka-topics.sh --create --topic {name} --bootstrap-server HOST:PORT"
"""The command that creates a topic, for a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitState:
    """The position of one split: ``offset`` is the next record to read.

    ``incarnation`` distinguishes an upstream's split from a later one with the same name (Kafka: topic id), ``cluster``
    one upstream from another (Kafka: cluster id); None if unknown. :meth:`Connector.encode_state` stores it as JSON.
    """

    split: str
    offset: int
    cluster: str | None = None
    incarnation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSplit:
    """One split as the upstream reports it: it has the records ``[start, end)``.

    ``is_endless``: records are generated as they are read. ``end`` then only limits the offsets that may be requested:
    the split has no lag, and nothing can wait until it is read to the end. ``is_empty``: it has no record now, and its
    end is unknown: every position from ``start`` on is valid.
    """

    split: str
    start: int
    end: int
    cluster: str | None = None
    incarnation: str | None = None
    is_endless: bool = False
    is_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The state of the upstream at one moment. If it cannot be read, ``error`` is the reason and ``splits`` is empty.

    ``missing`` are names in the options that do not exist upstream (topics), and ``present`` are then the names that do
    exist, as far as the upstream lists them. ``part`` is the word for what is missing, ``remedy`` the command that
    creates it, with ``{name}`` for its name. ``sparse`` maps a topic whose offsets do not count its records (compacted,
    transactional) to the reason; a plain look leaves it empty.
    """

    splits: Mapping[str, UpstreamSplit] = field(default_factory=dict)
    cluster: str | None = None
    error: str | None = None
    missing: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    part: str = "topic"
    remedy: str = CREATE_TOPIC
    sparse: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_reachable(self) -> bool:
        """True if the upstream answered."""
        return self.error is None


def missing_hint(wanted: str, present: Iterable[str], remedy: str = CREATE_TOPIC) -> str:
    """A hint with the most similar existing names, in place of one that does not exist."""
    known = sorted(present)
    place = "cluster" if remedy == CREATE_TOPIC else "upstream"
    near = get_close_matches(wanted, known, n=_MOST_TOPICS, cutoff=0.6)
    if near:
        others = " and ".join(f'"{name}"' for name in near[1:])
        return f'did you mean "{near[0]}"?{f" This {place} has {others} too" if others else ""}'
    create = remedy.replace("{name}", wanted)
    listed = ", ".join(f'"{name}"' for name in known[:_MOST_TOPICS]) + (" …" if len(known) > _MOST_TOPICS else "")
    return f"{create}; this {place} has {listed}" if listed else create


_MOST_TOPICS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsets:
    """The offsets that a consumer group has committed: per split the next record to read; other splits are missing.

    ``members`` is its current number of consumers; while it has any, its offsets advance. ``groups`` are the existing
    groups, if this one has committed nothing.
    """

    offsets: Mapping[str, int] = field(default_factory=dict)
    members: int = 0
    groups: tuple[str, ...] = ()


class UpstreamWatch(Protocol):
    """Polls an upstream over one connection. Not thread-safe."""

    def incarnations(self, topics: Sequence[str]) -> Mapping[str, str | None]:
        """The current incarnation of each topic; deleted topics are missing. Raises OSError if the upstream does not
        answer."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class RecordFetcher(Protocol):
    """Fetches small batches in this process, over connections that stay open. One thread fetches at a time."""

    def connect(self, splits: Sequence[str]) -> None:
        """Opens the connections that the first fetch of these splits needs, and does not wait long.

        Raises nothing if the upstream does not respond; the first fetch then fails instead.
        """
        ...

    def fetch(self, ranges: Mapping[str, tuple[int, int]]) -> pa.Table | None:
        """The records ``[start, end)`` of each split, with the columns of :meth:`Connector.read_stream`.

        None if Spark's reader should read them; that reader then also reports any error.
        """
        ...

    def close(self) -> None:
        """Closes the connections; a fetch in progress ends without a result."""
        ...


@runtime_checkable
class FetchingConnector(Protocol):
    """A connector with its own reader for small batches, for which Spark's reader is slow."""

    def fetcher(self, options: Mapping[str, str], *, with_headers: bool = False) -> RecordFetcher:
        """A fetcher for one run of a source's reader. Does not contact the upstream yet."""
        ...


@runtime_checkable
class NamingConnector(Protocol):
    """A connector whose sources make something upstream that needs a name."""

    def filled_in(self, options: Mapping[str, str], unique: str) -> dict[str, str]:
        """The options with generated names where they are missing: ``unique`` is a word of letters and digits."""
        ...


@runtime_checkable
class KeepingConnector(Protocol):
    """A connector that keeps connections open between requests."""

    def reconnect(self, options: Mapping[str, str]) -> None:
        """Uses new connections from now on, because host names may now refer to other servers."""
        ...


def look_anew(kind: Connector, options: Mapping[str, str]) -> Upstream:
    """:meth:`Connector.look` over new connections, as a reader that starts now would see the upstream."""
    if isinstance(kind, KeepingConnector):
        kind.reconnect(options)
    return kind.look(options)


class Connector(Protocol):
    """One kind of upstream. An instance is stateless and has no connection; it serves all sources of its kind.

    ``options`` below are a source's whole WITH list with references resolved (connection merged in, secrets replaced by
    their values), checked against the spec, without ``connector``.
    """

    @property
    def spec(self) -> ConnectorSpec:
        """The options it accepts, from ``sources/<name>.toml``."""
        ...

    def is_shareable(self) -> bool:
        """True if one reader can serve all dependents of a source."""
        ...

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent, without contacting the upstream. Raises INVALID_PROPERTY,
        MISSING_PROPERTY."""
        ...

    def check_columns(self, options: Mapping[str, str], columns: Mapping[str, str]) -> None:
        """Checks the options against the columns (name → canonical type), without contacting the upstream. Raises
        SqlError."""
        ...

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """Lists the splits that the options name, with their bounds. Upstream errors are returned, never raised."""
        ...

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """Per split, the offset of the first record at or after a time in milliseconds since 1970; its end if there is
        none."""
        ...

    def sparse_topics(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, str]:
        """The topics (as :meth:`split_topic` names them) whose offsets do not count records, with the reason.

        Upstream errors are returned as a reason, never raised.
        """
        ...

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """The time when the record at each split's offset was written, in milliseconds since 1970; left out if not
        known soon."""
        ...

    def group_offsets(
        self,
        options: Mapping[str, str],
        group: str,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> GroupOffsets:
        """A consumer group's committed offsets of the splits. Raises SqlError NOT_SUPPORTED if there are no groups."""
        ...

    def start_offset(self, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]) -> int:
        """The first offset of a split without a state, by ``scan.startup.mode``; ``at_times`` are the offsets for
        timestamp mode."""
        ...

    def startup_time(self, options: Mapping[str, str]) -> int | None:
        """The milliseconds since 1970 of ``scan.startup.mode = 'timestamp'``; None for other modes."""
        ...

    def split_topic(self, split: str) -> str:
        """The upstream part that a split belongs to (Kafka: its topic). Positions are not valid across parts."""
        ...

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The upstream parts that the options name; splits of other parts are orphans."""
        ...

    def watch(self, options: Mapping[str, str]) -> UpstreamWatch | None:
        """A watch on the incarnations of the upstream's parts; None if incarnations never change."""
        ...

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """The split id for a split in a statement: Kafka accepts ``'0'`` for ``'orders:0'`` if there is one topic."""
        ...

    def encode_state(self, state: SplitState) -> str:
        """The state as JSON, keys sorted."""
        ...

    def decode_state(self, split: str, text: str) -> SplitState:
        """The state from JSON or from a bare number. Raises SqlError INVALID_SPLIT_STATE with the reason."""
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
        ``timestamp`` timestamp, ``headers`` array<struct<key string, value binary>>. ``max_records`` limits one batch;
        with None the connector decides. ``headers`` is NULL unless ``with_headers``. ``columns`` are the source's own
        columns (name → canonical type), for connectors that generate rows from them.
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
        """A DataFrame of the records ``[start, end)`` of each split, with the columns of :meth:`read_stream`.

        Reading fails if the first record of a range no longer exists; later gaps (compacted records, transaction
        markers) are no error.
        """
        ...

    def read_positions(self, source_offset: str) -> dict[str, int]:
        """The next offset per split from a Spark offset entry of this reader (one line of ``offsets/N``)."""
        ...

    def write_positions(self, positions: Mapping[str, int]) -> str:
        """The entry that :meth:`read_positions` reads, with exactly these splits."""
        ...

    def beginning(self, positions: Mapping[str, int]) -> str | None:
        """The content of ``sources/0/0`` in a checkpoint, where Spark's source stores its first offset; None: Spark
        writes it."""
        ...

    def spark_packages(self) -> tuple[str, ...]:
        """``ivy://`` coordinates to load by ADD JAR before the first read; empty for a Python reader."""
        ...


@runtime_checkable
class SnapshotReader(Protocol):
    """A connector that REFRESH TABLE can read: it returns all rows of the upstream at once."""

    def read_snapshot(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        encode: str = "NATIVE",
        encode_options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """All current rows of the upstream, with exactly ``columns`` (name → Spark type), in that order.

        ``encode`` is FORMAT PLAIN's encoding (CSV, JSON, PARQUET, NATIVE) in upper case, ``encode_options`` its
        options. Reading may be lazy. The caller keeps the DataFrame until everything derived from it is done, so that
        resources may be tied to its lifetime. A missing upstream column, a value that does not fit its type and a
        record that does not decode are errors, now or at the action: a refresh that cannot read everything changes
        nothing. Of several rows with the same key, the method may return any one.
        """
        ...


@runtime_checkable
class LineReader(Protocol):
    """A :class:`SnapshotReader` whose records are lines of text, for ENCODE CSV or JSON."""

    def read_lines(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Sequence[str],
        *,
        encode: str,
        encode_options: Mapping[str, str],
    ) -> DataFrame:
        """All current lines of the upstream as undecoded records (``value``, ``_rw_split``, ``_rw_offset``).

        ``columns`` are the names of the fields; lines of CSV with a header are reordered to match. Used instead of
        :meth:`SnapshotReader.read_snapshot` for such records, with the same guarantees.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMisfit:
    """A declared column that the upstream cannot provide: the error, and a hint."""

    column: str
    message: str
    hint: str
    is_missing: bool = False


@runtime_checkable
class ColumnChecker(Protocol):
    """A connector whose upstream has typed columns."""

    def column_misfit(self, options: Mapping[str, str], columns: Mapping[str, str]) -> ColumnMisfit | None:
        """The first of ``columns`` (name → Spark type) that the upstream cannot provide; None if it has all.

        None also if the upstream does not respond, which a look reports.
        """
        ...


@runtime_checkable
class ColumnLister(ColumnChecker, Protocol):
    """A connector whose sources may leave their columns out: they then have those of the upstream."""

    def columns(self, options: Mapping[str, str]) -> Mapping[str, str]:
        """The upstream's columns with their types in canonical SQL, in order. Raises SqlError UPSTREAM_UNREACHABLE."""
        ...


@runtime_checkable
class ColumnReader(ColumnChecker, Protocol):
    """A :class:`SnapshotReader` whose upstream has typed columns."""

    def row_estimate(self, options: Mapping[str, str]) -> int | None:
        """The approximate number of rows; None if not known soon. Raises nothing if the upstream does not respond."""
        ...

    def read_columns(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Mapping[str, str],
        misfit: Callable[[str, Column, Mapping[str, Column]], Column],
    ) -> DataFrame:
        """As :meth:`SnapshotReader.read_snapshot`, with the error text for a value that does not fit.

        ``misfit`` returns that text from the column's name, its value as text, and the texts of all columns.
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
    """The unread part of a split: offsets ``[start, end)``. ``is_whole``: it must be read in one batch."""

    split: str
    start: int
    end: int
    is_whole: bool = False
