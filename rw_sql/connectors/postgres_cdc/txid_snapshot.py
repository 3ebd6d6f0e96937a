"""Represents PostgreSQL's snapshots. A snapshot determines the transactions whose changes a query sees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result of ``txid_current_snapshot()``, which determines the transactions that are visible in a database
    snapshot."""

    minimum: int
    maximum: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Parses PostgreSQL's text form, ``xmin:xmax:xid,xid``."""
        minimum, maximum, running = text.split(":")
        return cls(int(minimum), int(maximum), frozenset(int(xid) for xid in running.split(",") if xid))

    def sees(self, xid: int) -> bool:
        """True if the transaction, given by its 32-bit xid, is visible in the snapshot."""
        full = (self.maximum & ~0xFFFFFFFF) | xid
        if full > self.maximum + 0x80000000:
            full -= 1 << 32
        elif full < self.maximum - 0x80000000:
            full += 1 << 32
        return full < self.minimum or (full < self.maximum and full not in self.running)
