"""Parses the messages of pgoutput, except messages with rows, and collects the messages of a transaction.

See PostgreSQL's documentation, "Logical Replication Message Formats", protocol version 1 (PostgreSQL 10 to 17).
"""

from __future__ import annotations

import struct
import tempfile
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BEGIN, COMMIT, ORIGIN, RELATION, TYPE = ord("B"), ord("C"), ord("O"), ord("R"), ord("Y")
INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE = ord("I"), ord("U"), ord("D"), ord("T"), ord("M")
ROWS = frozenset((INSERT, UPDATE, DELETE))

POSTGRES_EPOCH_MICROSECONDS = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970, the origin of the server's times."""

_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_LENGTH = struct.Struct(">I")


class BrokenMessageError(ValueError):
    """Raised if a message deviates from the documented format."""


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a relation. ``is_key`` is true if the column is part of the replica identity."""

    name: str
    type: int
    modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """The columns of a table at a position of the log.

    ``identity`` is the replica identity: d (default), n (nothing), f (full) or i (index).
    """

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(slots=True)
class Transaction:
    """A committed transaction. The object contains the messages between Begin and Commit, in memory or in a file.

    ``position`` is the end of the transaction's commit record, ``time`` is the time of the commit in microseconds since
    1970, and ``count`` is the number of messages. ``size`` is the number of bytes of the messages in memory, and
    ``spooled`` is the number of bytes of the messages in the file.
    """

    xid: int
    time: int
    position: int = 0
    messages: list[bytes] = field(default_factory=list)
    size: int = 0
    count: int = 0
    spooled: int = 0
    spool: IO[bytes] | None = None

    def spill(self) -> None:
        """Moves the messages from memory to a file that no other process can open."""
        if self.spool is None:
            self.spool = tempfile.TemporaryFile(prefix="rw_sql-transaction-")  # noqa: SIM115
        self.spool.write(b"".join(piece for body in self.messages for piece in (_LENGTH.pack(len(body)), body)))
        self.messages = []
        self.spooled, self.size = self.spooled + self.size, 0

    def pieces(self, most_messages: int, most_bytes: int) -> Iterator[list[bytes]]:
        """The messages, in the order in which they arrived, in lists of limited size. Can be called only once."""
        if self.spool is None:
            yield from _cut(iter(self.messages), most_messages, most_bytes)
            return
        last, self.messages = self.messages, []
        self.spool.seek(0)
        yield from _cut(_read(self.spool), most_messages, most_bytes)
        self.spool.close()
        yield from _cut(iter(last), most_messages, most_bytes)

    def close(self) -> None:
        """Removes the file."""
        if self.spool is not None:
            self.spool.close()


def _read(file: IO[bytes]) -> Iterator[bytes]:
    while head := file.read(_LENGTH.size):
        yield file.read(_LENGTH.unpack(head)[0])


def _cut(messages: Iterator[bytes], most_messages: int, most_bytes: int) -> Iterator[list[bytes]]:
    made: list[bytes] = []
    size = 0
    for message in messages:
        made.append(message)
        size += len(message)
        if len(made) >= most_messages or size >= most_bytes:
            yield made
            made, size = [], 0
    if made:
        yield made


def parse_begin(message: bytes) -> tuple[int, int, int]:
    """Parses a Begin message. Returns the position of the commit record, the commit's time in microseconds since 1970,
    and the xid."""
    final, time, xid = _BEGIN.unpack_from(message, 1)
    return final, time + POSTGRES_EPOCH_MICROSECONDS, xid


def parse_commit(message: bytes) -> tuple[int, int]:
    """Parses a Commit message. Returns the start and the end of the commit record."""
    _, start, end, _ = _COMMIT.unpack_from(message, 1)
    return start, end


def parse_relation(message: bytes) -> Relation:
    """Parses a Relation message. (Such messages have the LSN 0/0 in the stream, which is not a position.)"""
    try:
        (oid,) = _LENGTH.unpack_from(message, 1)
        schema, at = _text(message, 5)
        name, at = _text(message, at)
        identity = chr(message[at])
        (count,) = struct.unpack_from(">H", message, at + 1)
        at += 3
        columns = []
        for _ in range(count):
            is_key = bool(message[at] & 1)
            column, at = _text(message, at + 1)
            kind, modifier = struct.unpack_from(">Ii", message, at)
            at += 8
            columns.append(RelationColumn(column, kind, modifier, is_key))
    except (IndexError, struct.error, ValueError) as error:
        raise BrokenMessageError("broken Relation message") from error
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def parse_truncate(message: bytes) -> tuple[int, ...]:
    """Parses a Truncate message. Returns the oids of the truncated tables."""
    (count,) = _LENGTH.unpack_from(message, 1)
    return struct.unpack_from(f">{count}I", message, 6)


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1
