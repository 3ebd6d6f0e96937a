"""Describes the slot of a source that captures the changes to a database."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDetails:
    """The columns of SHOW SOURCE SPLITS for a slot.

    ``retained_bytes`` is the size of the log that the server keeps for the slot. ``lag_bytes`` is the size of the
    log after the acknowledged position. ``status`` is PostgreSQL's ``wal_status``: reserved, extended, unreserved or
    lost. ``safe_bytes`` is the number of bytes of log that can still be written before the server may invalidate the
    slot; None if there is no limit.

    MySQL has no slots. For MySQL, ``name`` is the oldest file of its binary log, ``status`` is the time for which the
    server keeps files, ``files`` are the first position and the size in bytes of each file, and ``per_byte`` is the
    number of positions per byte.
    """

    name: str
    acknowledged: int | None
    restart: int | None
    end: int
    status: str | None
    retained_bytes: int | None
    lag_bytes: int | None
    safe_bytes: int | None
    active_pid: int | None
    cluster: str
    incarnation: str | None
    files: tuple[tuple[int, int], ...] = ()
    per_byte: int = 1

    def bytes_behind(self, position: int) -> int:
        """The bytes of the server's log between ``position`` and the end of the log."""
        if not self.files:
            return max(0, self.end - position)
        firsts = [first for first, _ in self.files[1:]]
        behind = 0
        for (first, size), after in zip(self.files, [*firsts, None], strict=True):
            if after is None or position < after:
                last = min(size, max(0, self.end - first) // self.per_byte)  # Encrypted files have a header.
                behind += max(0, last - max(0, position - first) // self.per_byte)
        return behind
