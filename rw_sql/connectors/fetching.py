"""The interface of connectors that read small batches in this process, because Spark's reader takes long even for a few
records.

Such a connector returns a :class:`RecordFetcher` for each run of a source's reader. If the fetcher is a
:class:`FollowingFetcher` that can follow the source, small batches need no streaming query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa


class RecordFetcher(Protocol):
    """Fetches small batches in this process, over connections that stay open. One thread fetches at a time."""

    def connect(self, splits: Sequence[str]) -> None:
        """Opens the connections that the first fetch of these splits needs. If the upstream is slow, returns before the
        connections are open.

        Raises no error if the upstream does not respond. In this case, the first fetch opens the connections, or
        reports the error.
        """
        ...

    def fetch(self, ranges: Mapping[str, tuple[int, int]]) -> pa.Table | None:
        """Fetches the records ``[start, end)`` of each split, with the columns of :meth:`Connector.read_stream`.

        Returns None if the caller should use Spark's reader. If there is an error, Spark's reader then reports the
        error.
        """
        ...

    def close(self) -> None:
        """Closes the connections. A fetch in progress ends without a result."""
        ...


@runtime_checkable
class FollowingFetcher(RecordFetcher, Protocol):
    """A fetcher that receives records as soon as they are written, without a request per batch."""

    @property
    def can_follow(self) -> bool:
        """True if the fetcher can receive the records of this source as soon as they are written."""
        ...

    def follow(self, positions: Mapping[str, int]) -> None:
        """Begins to receive the records of all splits in the background, from the position of each split. Does not
        wait, and raises no error. :meth:`arrived` reports failures."""
        ...

    def arrived(self, seconds: float, *, most: int) -> Mapping[str, int] | None:
        """Waits for at most ``seconds`` until records have arrived. Returns, for each split, the offset after the last
        record that has arrived.

        Splits without new records may be absent. After more than ``most`` records have arrived, no more records are
        received until those records are fetched. A call of :meth:`fetch` for records before the returned offsets does
        not wait. Returns None if the caller should use Spark's reader.
        """
        ...

    def unfollow(self) -> None:
        """Stops receiving records, and discards the records that have arrived."""
        ...


@runtime_checkable
class TermFetcher(Protocol):
    """A fetcher of a :class:`TermConnector`. ``terms`` maps each split to the greatest term of the records that the
    last fetch returned."""

    terms: Mapping[str, int]


@runtime_checkable
class FetchingConnector(Protocol):
    """A connector that reads small batches in this process."""

    def fetcher(self, options: Mapping[str, str], *, with_headers: bool = False) -> RecordFetcher:
        """A fetcher for one run of a source's reader. Does not contact the upstream yet."""
        ...


class UnreadableRecordError(OSError):
    """The upstream has a record at ``offset`` that no reader of this source can read. The error's message contains no
    remedy, because the remedy depends on the reader that fails."""

    def __init__(self, split: str, offset: int, why: str) -> None:
        super().__init__(f"UNREADABLE {split}: {why}")
        self.split = split
        self.offset = offset


@runtime_checkable
class PartlyStreamingConnector(Protocol):
    """A connector whose ``read_batch`` reads some records that its ``read_stream`` cannot read."""

    def unstreamable(self, options: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]) -> Mapping[str, int]:
        """Returns the splits whose range ``[start, end)`` the stream may fail to read. The result maps each of these
        splits to the offset of its first record that the stream cannot read. This offset may be before ``start``.
        Contacts the upstream."""
        ...
