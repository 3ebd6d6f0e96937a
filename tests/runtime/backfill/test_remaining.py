"""Which offsets of a backfill the source has read again after the upstream lost their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.model.backfill_ranges import BackfillChunk
from rw_sql.runtime.backfill.remaining import replaced_spans
from rw_sql.runtime.support.failures import StalledError
from tests.runtime.jobs.test_log_terms import SPLIT, Logs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import SplitState


def again(start: int, end: int, term: int) -> BackfillChunk:
    return BackfillChunk(split=SPLIT, start=start, end=end, term=term)


def test_records_from_the_cut_on_are_replaced_and_others_are_not() -> None:
    logs = Logs(end=20)
    logs.elect()
    logs.write(10)
    kind = cast("Any", logs)
    # Another leader alone replaces nothing.
    assert replaced_spans(kind, {}, (again(0, 20, 0), again(20, 30, 1))) == {}
    logs.elect(cut=12)
    logs.write(30)
    parts = (again(0, 8, 0), again(4, 14, 0), again(10, 20, 0))
    assert replaced_spans(kind, {}, parts) == {SPLIT: ((12, 20),)}
    assert replaced_spans(kind, {}, ()) == {}


def test_nothing_is_replaced_by_a_connector_without_terms() -> None:
    assert replaced_spans(cast("Any", object()), {}, (again(0, 8, 0),)) == {}


def test_the_backfill_waits_for_an_upstream_that_does_not_answer() -> None:
    logs = Logs(end=20)

    def silent(options: Mapping[str, str], states: Mapping[str, SplitState]) -> Mapping[str, int]:
        raise OSError("no answer")

    logs.diverged = silent  # type: ignore[method-assign,assignment]
    with pytest.raises(StalledError, match="UNREACHABLE no answer"):
        replaced_spans(cast("Any", logs), {}, (again(0, 8, 0),))
