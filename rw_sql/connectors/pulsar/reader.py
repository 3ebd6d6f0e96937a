"""Reads messages of a partition as Arrow tables. A range can be read any number of times while the broker has its
messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from rw_sql.connectors.pulsar.bounds import first_message
from rw_sql.connectors.pulsar.client import (
    NothingError,
    PulsarError,
    close,
    fetched_message,
    next_message,
    open_reader,
    repeated,
)
from rw_sql.connectors.pulsar.ids import BEGINNING, EntryId, entry_of, offset_of, place_of
from rw_sql.connectors.pulsar.names import full_name, partition_of
from rw_sql.connectors.support.records.fetched_ranges import FetchedRanges
from rw_sql.connectors.support.records.record_columns import HEADERS, record_ddl, record_schema
from rw_sql.connectors.support.wide_offsets import offset_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from rw_sql.connectors.pulsar.client import Address

T = TypeVar("T")

PAGE_BYTES = 16 * 1024 * 1024
"""The size in bytes at which a page ends. The reader also fetches up to QUEUE messages after the page."""

PAGE_MESSAGES = 10_000
QUEUE = 2_000
WAIT_SECONDS = 1.0
"""The time in seconds for which the reader waits for a message after the broker has reported a further message. If no
message arrives, the reported entry may be a part of an incomplete message."""

_LOOK_BACK = (16, 256, 4096)
"""The numbers of entries before its position at which a reader begins, one number for each attempt. The reader begins
early because the entries before the position may be parts of the message at the position."""

SCHEMA = record_schema(pa.string(), (("message_id", pa.string()), ("message_id_data", pa.binary())))
"""The Arrow schema of messages: the columns of ``Connector.read_stream``, with the offset as text, and the message
id."""

RECORDS = record_ddl(SCHEMA)
"""The schema of messages as Spark's DDL."""

FETCHED = FetchedRanges(SCHEMA, 256 * 1024 * 1024)
"""The messages that pollers of this process have read, by :func:`fetched_key`."""

_PARTS = re.compile(r"\((\d+),(\d+),-?\d+,-?\d+\);\(")


class RangeLostError(PulsarError):
    """Raised if messages of the range were removed before they were read, or if the topic was re-created. ``split`` is
    the partition. ``is_certain`` is false if the messages may still exist, because the broker may only have sent them
    too late."""

    def __init__(self, message: str, split: str, *, is_certain: bool = False) -> None:
        super().__init__(message)
        self.split = split
        self.is_certain = is_certain


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMessage:
    """One message, converted from pulsar-client's object. ``first`` is the entry with the message's first part, and
    ``entry`` is the entry with the message's last part. The two entries differ if the message was sent in chunks.
    ``key`` is empty if the message has no key, or if the key is not UTF-8. ``properties`` is None if one of the
    properties is not UTF-8."""

    offset: int
    first: EntryId
    entry: EntryId
    place: int
    id_data: bytes
    data: bytes | None
    key: str
    properties: dict[str, str] | None
    at_ms: int


class PartitionReader:
    """Reads the messages of one partition in their order, beginning at any position. Only one thread at a time uses the
    reader."""

    def __init__(self, address: Address, split: str, *, is_compacted: bool) -> None:
        self._address, self._split, self._is_compacted = address, split, is_compacted
        self._reader: Any = None
        self._at: int | None = None
        # The offset of the last message before the position, if the open reader returned that message.
        self._before: int | None = None

    def page(self, position: int, most: int) -> list[RawMessage]:
        """Returns at most ``most`` messages from ``position`` on. The result is empty if the partition has no new
        message.

        Raises RangeLostError if a message after the position no longer exists, and PulsarError if the broker does not
        respond.
        """
        return repeated(self._page_now)(position, most)

    def _page_now(self, position: int, most: int) -> list[RawMessage]:
        is_new = self._reader is None or self._at != position
        try:
            found = self._first_page(position, most) if is_new else self._page(position, most)
            # The broker removes whole ledgers, the oldest first. If the messages after the position still exist now,
            # they existed when the page was read.
            if is_new or (found and found[-1].entry.ledger != entry_of(position).ledger):
                self._require_whole(position)
        except BaseException:
            self.close()
            raise
        self._at = found[-1].offset + 1 if found else position
        return found

    def close(self) -> None:
        """Closes the reader at the broker. Raises no error."""
        if self._reader is not None:
            close(self._reader)
        self._reader = self._at = self._before = None

    def _require_whole(self, position: int) -> None:
        if not self._is_compacted:
            require_whole(self._address, self._split, position)

    def _first_page(self, position: int, most: int) -> list[RawMessage]:
        """Opens a reader and returns its first page. A reader that begins between the parts of a message would omit
        that message. The reader therefore begins a few entries before the position (see _LOOK_BACK). If entries are
        missing, the method opens another reader that begins earlier. Raises RangeLostError if the message before the
        position does not exist, for example in a topic that was created again."""
        for entries in _LOOK_BACK:
            self._open(position, entries)
            found = self._page(position, most)
            is_known = self._is_compacted or self._before == position - 1 or not place_of(position)
            if is_known and not _has_gap(position, found):
                break
        if not is_known:
            # The message before the position does not exist. If the messages after the position were removed too, the
            # error of _require_whole is more precise.
            self._require_whole(position)
            raise RangeLostError(
                f"EXPIRED {self._split}: the message before {shown(position)} does not exist: it was removed, or the "
                "topic was created again",
                self._split,
            )
        return found

    def _open(self, position: int, entries: int) -> None:
        import pulsar

        self.close()
        start: Any = pulsar.MessageId.earliest
        if position != BEGINNING:
            at = entry_of(position)
            start = pulsar.MessageId(-1, at.ledger, max(0, at.entry - entries), -1)
        self._reader = open_reader(
            self._address, full_name(self._split), start, queue=QUEUE, is_compacted=self._is_compacted
        )

    def _page(self, position: int, most: int) -> list[RawMessage]:
        found: list[RawMessage] = []
        size, has_come = 0, False
        while len(found) < most and size < PAGE_BYTES:
            message = fetched_message(self._address, self._reader) if has_come else None
            try:
                message = message or next_message(self._address, self._reader, WAIT_SECONDS)
            except NothingError:
                break
            if message is None:
                break
            has_come = True
            raw = raw_message(message)
            if raw.offset < position:
                self._before = raw.offset
            else:
                found.append(raw)
                size += len(raw.data or b"")
        return found


def _has_gap(position: int, found: Sequence[RawMessage]) -> bool:
    """True if an entry between the position and the last message in ``found`` belongs to none of these messages. Such
    an entry may be a part of a message that begins before the reader's first entry."""
    if position == BEGINNING or not found:
        return False
    at = entry_of(position)
    # If the position is inside a batch, the batch's first messages were read before, so the entry is not missing.
    covered = at.entry if place_of(position) else at.entry - 1
    ledger = at.ledger
    for message in found:
        if message.entry.ledger != ledger:
            ledger, covered = message.entry.ledger, -1
        if message.first.ledger == ledger and message.first.entry > covered + 1:
            return True
        covered = max(covered, message.entry.entry)
    return False


def raw_message(message: Any) -> RawMessage:
    """Converts a message of pulsar-client.

    A key or property that is not UTF-8 is omitted. Brokers forward such bytes, but pulsar-client has no method that
    returns them.
    """
    id_ = message.message_id()
    entry, place = EntryId(id_.ledger_id(), id_.entry_id()), id_.batch_index()
    first = entry
    if place < 0 and (parts := _PARTS.match(str(id_))) is not None:
        first = EntryId(int(parts[1]), int(parts[2]))
    return RawMessage(
        offset=offset_of(entry.ledger, entry.entry, place),
        first=first,
        entry=entry,
        place=place,
        id_data=id_.serialize(),
        data=None if message.has_null_value() else message.data(),
        key=_unless_other_bytes(message.partition_key) or "",
        properties=_unless_other_bytes(message.properties),
        at_ms=message.publish_timestamp(),
    )


def _unless_other_bytes(read: Callable[[], T]) -> T | None:
    """The result of a method of pulsar-client; None if this result would contain bytes that are not UTF-8."""
    try:
        return read()
    except UnicodeDecodeError:
        return None


def require_whole(address: Address, split: str, position: int) -> None:
    """Checks that no message at or after ``position`` was removed. Raises RangeLostError.

    Without this check, the broker would silently begin at the oldest existing message. The broker removes the oldest
    messages first. If any message before the position still exists, no message after the position was removed. The
    source's subscription keeps the last committed message for this check.
    """
    if position == BEGINNING:
        return
    first = first_message(address, split)
    if first is None:
        raise RangeLostError(
            f"EXPIRED {split}: the partition has no messages now: messages after the position {shown(position)} may "
            "have been removed, or the topic was created again",
            split,
        )
    if first > position:
        raise RangeLostError(
            f"EXPIRED {split}: the partition's first message is {shown(first)}, after the position {shown(position)}: "
            "messages were removed, or the topic was created again",
            split,
            is_certain=True,
        )


def fetched_key(address: Address, split: str, *, is_compacted: bool) -> Hashable:
    """The key of a partition's messages in ``FETCHED``. The key contains ``is_compacted``, because a compacted read of
    a range may omit messages."""
    return address, split, is_compacted


def shown(position: int) -> str:
    """A position as ``ledger:entry:batch``."""
    entry = entry_of(position)
    return f"{entry.ledger}:{entry.entry}:{place_of(position)}"


def read_range(address: Address, split: str, start: int, end: int, *, is_compacted: bool) -> Iterator[pa.Table]:
    """Reads the messages of a partition in ``[start, end)``, in the order of their offsets, one table per page.

    Raises RangeLostError if some of the messages no longer exist, and PulsarError if the broker does not respond.
    """
    reader = PartitionReader(address, split, is_compacted=is_compacted)
    position = start
    try:
        while position < end:
            page = reader.page(position, PAGE_MESSAGES)
            messages = [message for message in page if message.offset < end]
            if messages:
                yield table_of(split, messages)
            if not page:
                raise RangeLostError(
                    f"EXPIRED {split}: message {shown(end - 1)} was removed before it was read, or the topic was "
                    "created again",
                    split,
                )
            position = page[-1].offset + 1
    finally:
        reader.close()


def table_of(split: str, messages: Sequence[RawMessage]) -> pa.Table:
    """The messages as a table."""
    count, partition = len(messages), partition_of(split)
    headers = [
        None
        if message.properties is None
        else [{"key": key, "value": value.encode()} for key, value in message.properties.items()]
        for message in messages
    ]
    ids = [f"{each.entry.ledger}:{each.entry.entry}:{partition}:{each.place}" for each in messages]
    return pa.Table.from_arrays(
        [
            pa.array([split] * count, pa.string()),
            pa.array([offset_text(message.offset) for message in messages], pa.string()),
            pa.array([message.key.encode() if message.key else None for message in messages], pa.binary()),
            pa.array([message.data for message in messages], pa.binary()),
            pa.array([split] * count, pa.string()),
            pa.array([message.at_ms * 1000 for message in messages], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            pa.array(headers, HEADERS),
            pa.array(ids, pa.string()),
            pa.array([message.id_data for message in messages], pa.binary()),
        ],
        schema=SCHEMA,
    )
