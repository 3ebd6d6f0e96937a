"""Reads the messages in ranges of a stream's sequence numbers. Each request returns several messages.

An ephemeral pull consumer begins at the first sequence number and acknowledges nothing. A range can therefore be read
any number of times, and the server keeps no state after a read. If the first messages of a range were removed,
JetStream silently begins at a later message. Therefore, each read checks whether the stream's first message is after
the beginning of the range.

In a cluster, the consumer may run on a server whose copy of the stream lags behind the leader's copy, for example after
a restart. The consumer then ends before the last message, without an error. Therefore, at the end of each read, the
reader checks with a request to the leader whether messages are missing.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from rw_sql.connectors.nats.client import POOL, FilterRefusedError, NatsError, StreamMissingError, api, info_of
from rw_sql.connectors.nats.subjects import is_covered, least, matcher
from rw_sql.connectors.support.records.record_columns import HEADERS, record_ddl, record_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from rw_sql.connectors.nats.client import Address, NatsClient, StreamInfo

T = TypeVar("T")

AT_ONCE = 5_000
"""The maximum number of messages in one request."""

AT_ONCE_BYTES = 8 * 1024 * 1024
"""The maximum size in bytes of the messages in one request. A single message that is larger is requested alone."""

_ANSWER_SECONDS = 10.0
_READ_SECONDS = 600.0
_IDLE_NANOSECONDS = 60_000_000_000
_LAG_SECONDS = 0.25
"""The pause in seconds before a read is repeated because the copy of the stream on the consumer's server lags behind
the leader's copy. The consumer of the next attempt may run on another server.
"""

SCHEMA = record_schema(more=(("subject", pa.string()),))
"""The Arrow schema of records: the columns of ``Connector.read_stream``, and the subject."""

RECORDS = record_ddl(SCHEMA)
"""The schema of records as Spark's DDL."""


class RangeLostError(NatsError):
    """Raised if messages of the range were removed before they were read, or if the stream was recreated."""


class CopyBehindError(NatsError):
    """Raised if the server's copy of the stream lacks messages that the leader's copy has. A later read may find these
    messages."""


class TooLargeError(Exception):
    """Raised if the messages of the range exceed the caller's size limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRange:
    """The sequence numbers ``[start, end)`` of a stream. ``created`` is the expected incarnation of the stream; None
    accepts any."""

    stream: str
    start: int
    end: int
    created: str | None = None


def read_range(
    address: Address,
    wanted: StreamRange,
    subjects: tuple[str, ...],
    *,
    with_headers: bool = False,
    most_bytes: int | None = None,
) -> pa.Table:
    """Reads the messages in a range that have one of the ``subjects``, in the order of their sequence numbers.

    Raises RangeLostError if messages were removed before they were read. Raises TooLargeError if the messages exceed
    ``most_bytes``; None sets no limit. Raises NatsError if the server does not respond, or if its copy of the stream
    still lags behind the leader's copy after _ANSWER_SECONDS.
    """
    if wanted.end <= wanted.start:
        return SCHEMA.empty_table()

    def ask(client: NatsClient) -> pa.Table:
        found = _Found(wanted=wanted, subjects=subjects, with_headers=with_headers, most_bytes=most_bytes)
        client.run(found.read, _READ_SECONDS)
        return found.table()

    return POOL.use(address, lambda client: _of_whole_copy(lambda: ask(client), _ANSWER_SECONDS))


def _of_whole_copy(read: Callable[[], T], seconds: float) -> T:
    """Calls ``read`` and returns its result. If ``read`` raises CopyBehindError, repeats the call for at most
    ``seconds`` seconds, and then raises the error."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return read()
        except CopyBehindError:
            if time.monotonic() + _LAG_SECONDS > deadline:
                raise
        time.sleep(_LAG_SECONDS)


def first_at(address: Address, stream: str, milliseconds: int, timeout: float) -> int:
    """The sequence number of the first message at or after ``milliseconds``; the stream's end if no such message
    exists."""

    async def ask(nc: Client) -> int:
        info = await info_of(nc, stream, timeout)
        seconds, rest = divmod(milliseconds, 1000)
        begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:03d}Z"
        config = {"deliver_policy": "by_start_time", "opt_start_time": begin}
        found: list[tuple[int, int]] = []
        pull = _Pull(nc, stream, lambda message: found.append(_parsed(message)[:2]))
        await pull.open(config)
        try:
            if pull.left:
                await pull.next(1, None)
        finally:
            await pull.close()
        if not found:
            newest = await _message_at_leader(nc, stream, {"last_by_subj": ">"}, timeout)
            if newest is not None and _milliseconds(newest["time"]) >= milliseconds:
                raise CopyBehindError(_behind(stream))
            return info.end
        ((sequence, nanoseconds),) = found
        if nanoseconds < milliseconds * 1_000_000:  # See _Found._note.
            raise CopyBehindError(_behind(stream))
        return sequence

    return POOL.use(address, lambda client: _of_whole_copy(lambda: client.run(ask, timeout), timeout))


def time_of(address: Address, stream: str, sequence: int, timeout: float) -> int | None:
    """The time of a message in milliseconds since 1970; None if the message does not exist."""

    async def ask(nc: Client) -> Mapping[str, Any] | None:
        return await _message_at_leader(nc, stream, {"seq": sequence}, timeout)

    found = POOL.use(address, lambda client: client.run(ask, timeout))
    return None if found is None else _milliseconds(found["time"])


async def _message_at_leader(
    nc: Client, stream: str, wanted: Mapping[str, Any], timeout: float
) -> Mapping[str, Any] | None:
    """Requests from the stream's leader the message that ``wanted`` selects. The result contains ``seq``, ``subject``
    and ``time`` of the message; None if there is no such message."""
    try:
        found: Mapping[str, Any] = (await api(nc, f"STREAM.MSG.GET.{stream}", wanted, timeout))["message"]
    except StreamMissingError:
        return None
    return found


def _behind(stream: str) -> str:
    return f"the server's copy of stream {stream} lags behind the leader's: the server is catching up"


def _milliseconds(text: str) -> int:
    """Converts a time in the server's format to milliseconds since 1970."""
    # Python's parser accepts at most six digits after the decimal point of the seconds. The server writes up to nine
    # digits.
    whole, _, fraction = text.removesuffix("Z").partition(".")
    moment = datetime.fromisoformat(f"{whole}+00:00")
    return int(moment.timestamp()) * 1000 + int((fraction + "000")[:3])


@dataclass(slots=True)
class _Found:
    """The messages of a range that one read has found so far."""

    wanted: StreamRange
    subjects: tuple[str, ...]
    with_headers: bool
    most_bytes: int | None
    rows: list[tuple[int, int, str, bytes, Any]] = field(default_factory=list)
    size: int = 0
    matches: tuple[Callable[[str], object], ...] = ()
    is_merged: bool = False

    async def read(self, nc: Client) -> None:
        """Reads the whole range."""
        wanted = self.wanted
        info = await info_of(nc, wanted.stream, _ANSWER_SECONDS)
        self._require_there(info)
        # The subjects of a stream may change while the stream still has messages with earlier subjects. The stream is
        # therefore filtered by the source's subjects, even if the stream no longer lists them.
        is_all = info.is_copy or all(any(is_covered(each, mine) for mine in self.subjects) for each in info.subjects)
        chosen = (">",) if is_all else least(self.subjects)
        pulls: list[_Pull] = []
        try:
            try:
                for subject in chosen:
                    pulls.append(await self._opened(nc, subject))
            except FilterRefusedError:
                # A server may refuse a subject that the stream does not list.
                chosen = (">",)
                pulls.insert(0, await self._opened(nc, ">"))
            if ">" in chosen and ">" not in self.subjects:
                self.matches = tuple(map(matcher, self.subjects))
            self.is_merged = len(chosen) > 1
            for pull in pulls[: len(chosen)]:
                await self._drain(pull)
            # The number of the stream's first message only increases, and a stream that is created again has another
            # incarnation. If this check passes now, it would have passed at any time during the read.
            self._require_there(await info_of(nc, wanted.stream, _ANSWER_SECONDS), is_read=True)
        finally:
            for pull in pulls:
                await pull.close()

    async def _opened(self, nc: Client, subject: str) -> _Pull:
        """Opens a consumer that delivers the messages with a subject, beginning at the start of the range. Raises
        FilterRefusedError or NatsError."""
        pull = _Pull(nc, self.wanted.stream, self._note, subject)
        await pull.open({"deliver_policy": "by_start_sequence", "opt_start_seq": self.wanted.start})
        return pull

    async def _drain(self, pull: _Pull) -> None:
        at = self.wanted.start
        most: int | None = AT_ONCE_BYTES
        while pull.left and at < self.wanted.end:
            count = 1 if most is None else min(AT_ONCE, self.wanted.end - at)
            taken = await pull.next(count, most)
            if not taken and most is None:
                break
            # A message that exceeds the limit of a request is requested alone, without a limit.
            most = AT_ONCE_BYTES if taken else None
            at = pull.last + 1
            if self.most_bytes is not None and self.size > self.most_bytes:
                raise TooLargeError
        at = max(at, self.wanted.start)
        if at < self.wanted.end:
            await pull.require_none_left(at, self.wanted.end)

    def _note(self, message: Msg) -> None:
        sequence, nanoseconds, _, _ = _parsed(message)
        # In a cluster whose servers are older than 2.11, a consumer on a copy that lags behind may begin too early.
        is_wanted = self.wanted.start <= sequence < self.wanted.end
        if is_wanted and (not self.matches or any(match(message.subject) for match in self.matches)):
            headers = message.headers if self.with_headers else None
            self.rows.append((sequence, nanoseconds // 1000, message.subject, message.data, headers))
            self.size += len(message.data)

    def _require_there(self, info: StreamInfo, *, is_read: bool = False) -> None:
        """Checks that the stream was not recreated, and that no message was removed before it was read. ``is_read`` is
        true after the read: messages that have been read may then be removed. Raises RangeLostError."""
        wanted = self.wanted
        if wanted.created is not None and info.created != wanted.created:
            raise RangeLostError(
                f"RECREATED {wanted.stream}: the stream was deleted, and created again at {info.created}. "
                f"The source has read the stream that was created at {wanted.created}"
            )
        first = min(info.first, wanted.end)
        if first <= wanted.start:
            return
        # If all messages before the first existing message were read, no message was missed.
        if is_read and len({row[0] for row in self.rows if row[0] < first}) == first - wanted.start:
            return
        raise RangeLostError(
            f"EXPIRED {wanted.stream}: the stream's first message is {info.first}, after the position {wanted.start}"
        )

    def table(self) -> pa.Table:
        """The messages, in the order of their sequence numbers."""
        if self.is_merged:
            # Each subject is read separately, so overlapping subjects return a message several times.
            self.rows = sorted({row[0]: row for row in self.rows}.values(), key=lambda row: row[0])
        return _table(self.wanted.stream, self.rows)


class _Pull:
    """An ephemeral pull consumer that delivers the messages with a subject.

    ``left`` is the number of messages that the consumer has not delivered yet.
    """

    def __init__(self, nc: Client, stream: str, note: Callable[[Msg], None], subject: str = ">") -> None:
        self._nc = nc
        self._stream = stream
        self._note = note
        self._subject = subject
        self._name = ""
        self._inbox = ""
        self._subscription: Any = None
        self._delivered = 0
        self._asked = self._taken = 0
        self._done = asyncio.Event()
        self._error: NatsError | None = None
        self.left = 0
        self.last = 0

    async def open(self, config: Mapping[str, Any]) -> None:
        """Creates the consumer. Raises StreamMissingError or NatsError."""
        # The server removes a consumer that gets no request for ``inactive_threshold``. A consumer is thus removed even
        # if this process is killed.
        request = {
            "stream_name": self._stream,
            "config": {
                "ack_policy": "none",
                "replay_policy": "instant",
                "max_deliver": -1,
                "inactive_threshold": _IDLE_NANOSECONDS,
                "mem_storage": True,
                "num_replicas": 1,
                **({} if self._subject == ">" else {"filter_subject": self._subject}),
                **config,
            },
        }
        made = await api(self._nc, f"CONSUMER.CREATE.{self._stream}", request, _ANSWER_SECONDS)
        self._name = str(made["name"])
        self.left = int(made.get("num_pending") or 0)
        self._inbox = self._nc.new_inbox()
        self._subscription = await self._nc.subscribe(
            self._inbox, cb=self._take, pending_msgs_limit=4 * AT_ONCE, pending_bytes_limit=64 * AT_ONCE_BYTES
        )

    async def next(self, count: int, most_bytes: int | None) -> int:
        """Requests up to ``count`` messages and waits for them. Returns the number of messages received. The result is
        0 if there is no message, or if the next message is larger than ``most_bytes`` bytes; None sets no limit."""
        self._done.clear()
        self._asked, self._taken = count, 0
        request: dict[str, Any] = {"batch": count, "no_wait": True}
        if most_bytes is not None:
            request["max_bytes"] = most_bytes
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        await self._nc.publish(subject, json.dumps(request).encode(), reply=self._inbox)
        while not self._done.is_set():
            before = self._taken
            try:
                await asyncio.wait_for(self._done.wait(), _ANSWER_SECONDS)
            except TimeoutError:
                # A slow connection is not an error as long as messages arrive.
                if self._taken == before:
                    raise NatsError("the server does not answer in time") from None
        if self._error is not None:
            raise self._error
        return self._taken

    async def require_none_left(self, start: int, end: int) -> None:
        """Checks that the leader has no message in ``[start, end)`` with the consumer's subject. Raises
        CopyBehindError."""
        wanted = {"seq": start, "next_by_subj": self._subject}
        found = await _message_at_leader(self._nc, self._stream, wanted, _ANSWER_SECONDS)
        # A server of a version before 2.9 ignores the subject and returns the message with this number.
        if found is not None and int(found["seq"]) < end and matcher(self._subject)(str(found["subject"])):
            raise CopyBehindError(_behind(self._stream))

    async def close(self) -> None:
        """Removes the consumer. Raises no error, because the server removes an unused consumer after
        _IDLE_NANOSECONDS."""
        try:
            if self._subscription is not None:
                await self._subscription.unsubscribe()
            if self._name:
                await self._nc.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._name}", b"")
        except Exception:  # noqa: BLE001 - the connection may have ended
            return

    async def _take(self, message: Msg) -> None:
        if not message.reply:
            self._end(message)
            return
        try:
            self.last, _, number, self.left = _parsed(message)
            if number != self._delivered + 1:
                raise NatsError(f"message {self._delivered + 1} of the consumer was lost in transit")
            self._delivered = number
            self._note(message)
        except NatsError as error:
            self._error = error
            self._done.set()
            return
        self._taken += 1
        if self._taken == self._asked or not self.left:
            self._done.set()

    def _end(self, message: Msg) -> None:
        """Handles a status message, which reports that the request has ended or failed."""
        headers = message.headers or {}
        status, told = headers.get("Status", ""), headers.get("Description", "")
        # Status 404 means that there are no more messages, and status 408 that there are fewer messages than requested.
        # Status 409 with "MaxBytes" means that the next message is too large.
        if status not in ("404", "408") and "maxbytes" not in told.lower().replace(" ", ""):
            self._error = NatsError(f"the consumer of stream {self._stream} has ended: {told or status}")
        if status == "404" and not self._taken:
            self.left = 0
        self._done.set()


def _parsed(message: Msg) -> tuple[int, int, int, int]:
    """Parses a message's reply subject. Returns the sequence number in the stream, the time in nanoseconds since 1970,
    the sequence number in the consumer, and the number of messages that the consumer has not delivered yet.

    JetStream's reply subject has the form
    ``$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<number>.<time>.<left>``. Newer servers add a domain and an
    account before the stream, and a token at the end.
    """
    parts = message.reply.split(".")
    at = 5 if len(parts) < 11 else 7
    return int(parts[at]), int(parts[at + 2]), int(parts[at + 1]), int(parts[at + 3])


def _table(stream: str, rows: list[tuple[int, int, str, bytes, Any]]) -> pa.Table:
    count = len(rows)
    headers = [
        None if row[4] is None else [{"key": key, "value": str(value).encode()} for key, value in row[4].items()]
        for row in rows
    ]
    return pa.Table.from_arrays(
        [
            pa.array([stream] * count, pa.string()),
            pa.array([row[0] for row in rows], pa.int64()),
            pa.nulls(count, pa.binary()),
            pa.array([row[3] for row in rows], pa.binary()),
            pa.array([stream] * count, pa.string()),
            pa.array([row[1] for row in rows], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            pa.array(headers, HEADERS),
            pa.array([row[2] for row in rows], pa.string()),
        ],
        schema=SCHEMA,
    )
