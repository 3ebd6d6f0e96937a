"""The interface of a source connector: the spec of its options, the ids and states of its splits, metadata of its
upstream, checks of options and columns, and readers.

:mod:`rw_sql.connectors.registry` lists the built-in connectors and finds others through the entry-point group
``rw_sql.connectors``. A split state is the position of *the next record to read*, never the position of the last record
that was read. A *look* is one request for the upstream's current state (:meth:`Connector.look`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol, runtime_checkable

# Connectors of other packages import these names from here, as in version 0.1.0.
from rw_sql.connectors.fetching import FetchingConnector, RecordFetcher, TermFetcher  # noqa: F401
from rw_sql.connectors.snapshots import (  # noqa: F401
    ColumnChecker,
    ColumnLister,
    ColumnMisfit,
    ColumnReader,
    LineReader,
    SnapshotReader,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.spec import ConnectorSpec

EXACTLY, AT_MOST = "exactly", "at most"
"""The values of :attr:`PlainConnector.offsets_count`. EXACTLY: a range has as many records as offsets. AT_MOST: a range
may have fewer records than offsets."""

RESOLVE_TIMEOUT_SECONDS = 8.0
"""The default time limit of a request, in seconds. An upstream that does not respond within this time counts as
unreachable."""


CREATE_TOPIC = "create it: kafka-topics.sh --create --topic {name} --bootstrap-server HOST:PORT"
"""The hint for a missing topic: the shell command that creates it, with ``{name}`` for its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitState:
    """The position of one split. ``offset`` is the offset of the next record to read.

    ``incarnation`` changes when a split is deleted and recreated under the same name (Kafka: topic id). ``cluster``
    identifies the upstream (Kafka: cluster id). ``incarnation`` and ``cluster`` are None if unknown.
    :meth:`Connector.encode_state` writes a state as JSON.

    ``term`` is a term of the split's log (Kafka: a leader epoch, see :class:`TermConnector`) during which the log
    contained all records before the position; None if no such term is known.
    """

    split: str
    offset: int
    cluster: str | None = None
    incarnation: str | None = None
    term: int | None = None


ENDLESS = 2**62
"""The value of :attr:`UpstreamSplit.end` for a split without an end. The records of such a split are generated when
they are read. A record can be generated for any offset below ``ENDLESS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSplit:
    """One split as the upstream reports it, with the offsets ``[start, end)`` of its records.

    ``is_endless`` is true if records are generated when they are read. Such a split has no lag and is never read to its
    end; ``end`` only limits the offsets that may be requested. All positions from ``end - slack`` to ``end`` denote the
    end of the log. ``is_empty`` is true if the split has no record and its end is unknown. In this case, every position
    from ``start`` on is valid. ``incarnation`` of an empty split is None if the split may have records that cannot be
    read at present. ``has_open_start`` is true if the position 0 is before every record and stays valid when records
    are removed. ``term`` is the current term of the split's log; None if unknown. If offsets count bytes of a log that
    consists of files, ``files`` contains the first offset and the size in bytes of each file, in the order of the log.
    Each byte then has ``slack + 1`` offsets.
    """

    split: str
    start: int
    end: int
    cluster: str | None = None
    incarnation: str | None = None
    is_endless: bool = False
    is_empty: bool = False
    slack: int = 0
    has_open_start: bool = False
    term: int | None = None
    files: tuple[tuple[int, int], ...] = ()

    @property
    def has_end(self) -> bool:
        """True if ``end`` is a valid position: either the split ends at ``end``, or its next record will have this
        offset."""
        return not self.is_endless or self.end < ENDLESS

    def has_lost(self, offset: int) -> bool:
        """True if the upstream may have removed records at or after ``offset``. A reader that starts at ``offset``
        would then begin with a later record."""
        return offset < self.start and not (self.has_open_start and offset == 0)

    def behind(self, offset: int) -> int:
        """The number of positions from ``offset`` to the end. Offsets that denote the same position count once."""
        if self.files:
            return max(0, self.place(self.end) - self.place(offset))
        return max(0, self.end - max(offset, self.start)) // (self.slack + 1)

    def place(self, offset: int) -> int:
        """The number of bytes of the log's ``files`` before ``offset``; without ``files``, ``offset`` divided by
        ``slack + 1``. All offsets that denote the same position have the same place."""
        if not self.files:
            return offset // (self.slack + 1)
        return sum(min(size, max(0, offset - first) // (self.slack + 1)) for first, size in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The state of the upstream at one moment.

    If the upstream cannot be read, ``error`` is the reason, and ``splits`` is empty. If the client refuses the value of
    an option, it sends no request. In this case, ``refused_key`` is the option's key, and ``hint`` is the remedy.

    ``missing`` contains those names in the options, such as the names of topics, that do not exist upstream. If a name
    is missing, ``present`` contains those existing names that the upstream lists. ``part`` is the noun for a missing
    object, such as "topic". ``remedy`` is the command that creates the object; in this command, ``{name}`` stands for
    the object's name. ``sparse`` maps a topic whose offsets do not count its records (compacted, transactional) to the
    reason; :meth:`Connector.look` leaves ``sparse`` empty.
    """

    splits: Mapping[str, UpstreamSplit] = field(default_factory=dict)
    cluster: str | None = None
    error: str | None = None
    refused_key: str | None = None
    hint: str | None = None
    missing: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    part: str = "topic"
    remedy: str = CREATE_TOPIC
    sparse: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_reachable(self) -> bool:
        """True if the upstream could be read."""
        return self.error is None


def missing_hint(wanted: str, present: Iterable[str], remedy: str = CREATE_TOPIC) -> str:
    """A hint for a missing name. The hint lists the existing names that are similar to it. If no name is similar, the
    hint contains ``remedy`` with the missing name, and some existing names."""
    known = sorted(present)
    place = "cluster" if remedy == CREATE_TOPIC else "upstream"
    alike = [name for name in known if name.lower() == wanted.lower()]
    if near := alike or get_close_matches(wanted, known, n=_MOST_TOPICS, cutoff=0.6):
        others = " and ".join(f'"{name}"' for name in near[1:])
        return f'did you mean "{near[0]}"?{f" This {place} has {others} too" if others else ""}'
    create = remedy.replace("{name}", wanted)
    listed = ", ".join(f'"{name}"' for name in known[:_MOST_TOPICS]) + (" …" if len(known) > _MOST_TOPICS else "")
    return f"{create}; this {place} has {listed}" if listed else create


_MOST_TOPICS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsets:
    """The offsets that a consumer group has committed.

    ``offsets`` maps each split to the offset of the next record to read. Splits without a committed offset are absent.
    ``members`` is the group's current number of consumers. While there are consumers, the offsets may advance. If the
    group has committed nothing, ``groups`` lists the existing groups.
    """

    offsets: Mapping[str, int] = field(default_factory=dict)
    members: int = 0
    groups: tuple[str, ...] = ()


class UpstreamWatch(Protocol):
    """Polls an upstream over one connection. Not thread-safe."""

    def incarnations(self, topics: Sequence[str]) -> Mapping[str, str | None]:
        """Maps each topic to its current incarnation. Deleted topics are absent.

        Raises OSError if the upstream does not respond.
        """
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


@runtime_checkable
class TermConnector(Protocol):
    """A connector whose upstream divides the history of each split's log into numbered *terms* (Kafka: leader epochs).

    A log may lose records, for example because a new leader does not have them. In this case, a term with a greater
    number begins, and new records are written at the lost offsets.
    """

    def terms(
        self, options: Mapping[str, str], splits: Collection[str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, int]:
        """The current terms of the splits. Splits with an unknown term are absent. Raises OSError if the upstream does
        not respond."""
        ...

    def diverged(
        self, options: Mapping[str, str], states: Mapping[str, SplitState], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, int]:
        """The splits whose log has lost records before the positions in ``states``, each with the first lost offset.

        Splits whose state has no term are not checked. Raises OSError if the upstream does not respond.
        """
        ...


@runtime_checkable
class NamingConnector(Protocol):
    """A connector whose sources create objects upstream, each of which needs a name."""

    def filled_in(self, options: Mapping[str, str], unique: str) -> dict[str, str]:
        """The options, completed with a name for each object whose name is missing. The names contain ``unique``, which
        consists of letters and digits."""
        ...


@runtime_checkable
class HoldingConnector(Protocol):
    """A connector whose readers create an object upstream, such as a slot or a subscription. Because of this object,
    the upstream keeps records until rw_sql has committed them. The object is removed after the source is dropped.
    """

    def release(self, options: Mapping[str, str], *, slot: bool, publication: bool, timeout: float) -> tuple[str, ...]:
        """Removes objects that a reader created upstream. If ``slot`` is true, removes the object that keeps the
        records. If ``publication`` is true, removes the object that selects the records. The caller may repeat the
        call.

        Returns a notice for each object that only a user can remove. Raises OSError if the call failed and must be
        repeated.
        """
        ...


@runtime_checkable
class KeepingConnector(Protocol):
    """A connector that keeps connections open between requests."""

    def reconnect(self, options: Mapping[str, str]) -> None:
        """Replaces all open connections with new connections, because host names may now resolve to other servers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledTopic:
    """The incarnation of a topic, and the ids of its splits. :meth:`PooledConnector.pooled_topics` returns these
    objects."""

    incarnation: str | None
    splits: frozenset[str]


@runtime_checkable
class PooledConnector(Protocol):
    """A connector that can request information about the splits of many sources from its upstream in one request.

    While the readers of sources are stopped because no records arrive, these requests check for new records. A request
    for many sources costs the upstream hardly more than a request for one source.
    """

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """See :meth:`Connector.named_topics`."""
        ...

    def pool_key(self, options: Mapping[str, str]) -> Hashable:
        """Returns a value that is equal for sources whose splits can be requested together. Such sources have the same
        servers and the same login, and either all of them or none of them read uncommitted records."""
        ...

    def pooled_ends(
        self, options: Mapping[str, str], splits: Collection[str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, int]:
        """The end offsets of these splits, which may be splits of several sources with the same :meth:`pool_key`.

        The result omits a split if its topic was deleted, if the user lacks the permission to read the split, or if
        another broker is becoming the split's leader. If the split remains absent, the caller starts the reader of its
        source. This reader then reports the reason. Raises OSError if the upstream does not respond.
        """
        ...

    def pooled_topics(
        self, options: Mapping[str, str], topics: Collection[str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, PooledTopic]:
        """The topics that exist and can be read, under the names that :meth:`Connector.split_topic` returns. Raises
        OSError if the upstream does not respond."""
        ...


def look_anew(kind: Connector, options: Mapping[str, str]) -> Upstream:
    """Calls :meth:`Connector.look` over new connections, as a newly started reader would do."""
    if isinstance(kind, KeepingConnector):
        kind.reconnect(options)
    return kind.look(options)


class Connector(Protocol):
    """One kind of upstream. An instance has no state that belongs to one source: it serves all sources of its kind.

    In the methods, ``options`` are all options of the source's WITH list except ``connector``. They include the options
    of the source's connection and the values of secrets, and have been checked against the spec.
    """

    @property
    def spec(self) -> ConnectorSpec:
        """The options that the connector accepts, from ``sources/<name>.toml``."""
        ...

    def is_shareable(self) -> bool:
        """True if a single reader can serve all views and tables that use a source."""
        ...

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent, without contacting the upstream. Raises SqlError INVALID_PROPERTY or
        MISSING_PROPERTY."""
        ...

    def check_columns(self, options: Mapping[str, str], columns: Mapping[str, str]) -> None:
        """Checks the options against the columns (name → canonical type), without contacting the upstream. Raises
        SqlError."""
        ...

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """Lists the splits that the options name, with their bounds. If the upstream cannot be read, the method raises
        nothing, but returns the reason in :attr:`Upstream.error`."""
        ...

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """Returns, for each split, the offset of the first record at or after ``milliseconds`` (since 1970). If a split
        has no such record, returns the split's end."""
        ...

    def sparse_topics(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, str]:
        """Maps each topic whose offsets do not count records to the reason. Topics have the names that
        :meth:`split_topic` returns.

        If the upstream cannot be read, the method raises nothing, but returns the error as the reason.
        """
        ...

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """The write time of the record at each split's offset, in milliseconds since 1970.

        Splits whose time cannot be read quickly are absent.
        """
        ...

    def group_offsets(
        self,
        options: Mapping[str, str],
        group: str,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> GroupOffsets:
        """The offsets that the consumer group ``group`` has committed for the splits.

        Raises SqlError NOT_SUPPORTED if the upstream has no consumer groups.
        """
        ...

    def start_offset(self, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]) -> int:
        """The offset at which reading begins in a split without a state, according to the option ``scan.startup.mode``.
        For the mode ``timestamp``, ``at_times`` contains this offset for each split."""
        ...

    def startup_time(self, options: Mapping[str, str]) -> int | None:
        """The time of ``scan.startup.mode = 'timestamp'``, in milliseconds since 1970; None for other modes."""
        ...

    def split_topic(self, split: str) -> str:
        """The part of the upstream (Kafka: the topic) that contains a split.

        A position in one part is not valid in another part.
        """
        ...

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The parts of the upstream (Kafka: the topics) that the options name. Splits of other parts are orphans."""
        ...

    def watch(self, options: Mapping[str, str]) -> UpstreamWatch | None:
        """Returns a watch that polls the incarnations of the upstream's parts; None if incarnations never change."""
        ...

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """The split id for a split as written in a statement.

        For example, Kafka accepts ``'0'`` for ``'orders:0'`` if there is one topic.
        """
        ...

    def encode_state(self, state: SplitState) -> str:
        """Encodes a state as JSON. Equal states give equal strings."""
        ...

    def decode_state(self, split: str, text: str) -> SplitState:
        """Decodes a state from JSON or from a bare number. Raises SqlError INVALID_SPLIT_STATE with the reason."""
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
        """A streaming DataFrame that reads exactly the splits in ``positions``, each split from its position.

        Columns: ``_rw_split`` string, ``_rw_offset`` long, ``key`` binary, ``value`` binary, ``partition`` string,
        ``timestamp`` timestamp, ``headers`` array<struct<key string, value binary>>. ``max_records`` limits the records
        of one batch; if it is None, the connector chooses a limit. ``headers`` is NULL unless ``with_headers`` is true.
        ``columns`` are the source's own columns (name → canonical type), for connectors that generate rows from them.
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

        Reading fails if the first record of a range no longer exists. Later gaps are not errors, because records may
        have been compacted, and transaction markers have offsets too.
        """
        ...

    def read_positions(self, source_offset: str) -> dict[str, int]:
        """Parses the line that Spark writes for this reader in a file of Spark's offset log (``offsets/N``). Returns
        the next offset of each split."""
        ...

    def write_positions(self, positions: Mapping[str, int]) -> str:
        """Returns the line that :meth:`read_positions` reads, with exactly these splits."""
        ...

    def beginning(self, positions: Mapping[str, int]) -> str | None:
        """The content for the checkpoint file ``sources/0/0``, in which Spark's reader stores its first offset.

        Returns None if Spark should write the file itself.
        """
        ...

    def spark_packages(self) -> tuple[str, ...]:
        """The ``ivy://`` coordinates of the jars that must be loaded with ADD JAR before the first read; empty for a
        reader in Python."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a split. ``value`` contains the bytes that ENCODE decodes."""

    offset: int
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The offsets ``[start, end)`` of a split, which have not been read. If ``is_whole`` is true, one batch must read
    all of them."""

    split: str
    start: int
    end: int
    is_whole: bool = False
