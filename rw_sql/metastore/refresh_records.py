"""What the metastore holds of tables that are loaded as a whole: their state, and how far a refresh has come."""

from __future__ import annotations

from dataclasses import dataclass, field

IDLE, REFRESHING, FINISHING = "IDLE", "REFRESHING", "FINISHING"
"""The states of a refreshable table, as RisingWave's catalog has them: nothing goes on; its whole upstream is loaded
beside it; what differs is being merged into it, and then what was loaded goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRecord:
    """What a refreshable table is doing about its REFRESH. A table is refreshable where it has one.

    ``refresh`` counts those that were begun; ``interval_s`` is how often one begins by itself. ``triggered_ms`` is when
    the newest began, ``succeeded_ms`` when the newest that came to its end did; ``failure`` is why the newest did not.
    While it is FINISHING ``chunks`` are merged as the batches of the table's job from ``first_batch`` on, ``rows`` in
    all.
    """

    id: int
    name: str
    table_id: int
    interval_s: int | None = None
    status: str = IDLE
    refresh: int = 0
    triggered_ms: int | None = None
    succeeded_ms: int | None = None
    failure: str | None = None
    first_batch: int = 0
    chunks: int = 0
    rows: int = 0
    kind: str = field(default="refresh", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshChunk:
    """How far one chunk of a table's refresh has come: chunk -1 stands for the loading before any is merged.

    ``position`` is the key up to which it reaches, as JSON; ``rows`` are those that differ in it. ``epoch`` is that of
    the catalog when it was merged, ``run`` the run of the table's job.
    """

    table_id: int
    refresh: int
    chunk: int
    position: str | None
    rows: int
    epoch: int
    run: int
    is_done: bool
    updated_ms: int
