"""Defines the records of refreshable tables: the refresh state of a table, and the progress of a refresh."""

from __future__ import annotations

from dataclasses import dataclass, field

IDLE, REFRESHING, FINISHING = "IDLE", "REFRESHING", "FINISHING"
"""The refresh states of a table, with RisingWave's names.

IDLE: no refresh is in progress. REFRESHING: all rows of the upstream are being loaded into a staging table. FINISHING:
the rows that differ between the staging table and the table are being merged into the table. Afterwards, the staging
table is dropped.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRecord:
    """The refresh state of a table. A table has this record only if it is refreshable.

    ``refresh`` is the number of refreshes that have started so far. ``interval_s`` is the interval of automatic
    refreshes. ``triggered_ms`` is the start of the last refresh, and ``succeeded_ms`` is the end of the last successful
    refresh. ``failure`` is the error of the last refresh; None if it did not fail. In the state FINISHING, the table's
    job merges ``chunks`` chunks with ``rows`` rows in total, one chunk per batch. The first chunk is merged by the
    batch ``first_batch``.
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
    """The progress of one chunk of a refresh. The chunk number -1 stands for the loading phase before the merge.

    ``position`` is the last key of the chunk, as JSON. ``rows`` is the number of rows of the chunk that differ between
    the upstream and the table. ``epoch`` is the catalog's epoch at the time of the merge, and ``run`` is the run of the
    table's job.
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
