"""Whether the records of a backfill are still those of the log in which they were when the view was created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.model.backfill_ranges import BackfillChunk
from rw_sql.runtime.backfill.checks import require_same_log
from rw_sql.runtime.support.failures import StalledError
from tests.runtime.jobs.test_log_terms import SPLIT, Logs

if TYPE_CHECKING:
    from collections.abc import Mapping


def check(logs: Logs, end: int, known: Mapping[str, int]) -> None:
    chunk = (BackfillChunk(split=SPLIT, start=0, end=end),)
    require_same_log("m", cast("Any", logs), {}, chunk, known, logs.terms({}, (SPLIT,)))


def test_chunks_below_the_cut_are_read_and_others_are_not() -> None:
    logs = Logs(end=20)
    check(logs, 20, {SPLIT: 0})
    assert logs.asked == []  # The leader stays.
    logs.elect()
    logs.write(10)
    check(logs, 20, {SPLIT: 0})
    logs.elect(cut=12)
    logs.write(30)
    check(logs, 12, {SPLIT: 0})
    check(logs, 20, {})  # Of a view that was created before histories had terms.
    with pytest.raises(StalledError) as stalled:
        check(logs, 20, {SPLIT: 0})
    assert stalled.value.is_final
    assert stalled.value.reason == (
        "DIVERGED orders:0 at 12: the log was cut at this offset before its backfill was complete, and has other "
        "records from there on: REBUILD MATERIALIZED VIEW m starts again with the existing records"
    )
