"""The reasons why a reader cannot start, with statements that help and that move no other split."""

from __future__ import annotations

import pytest

from rw_sql.connectors.base import SplitState, Upstream, UpstreamSplit
from rw_sql.connectors.kinesis.shards import ENDED
from rw_sql.connectors.ranged import RangedConnector
from rw_sql.connectors.registry import connector
from rw_sql.connectors.support.records.range_stream import LostRecordsError
from rw_sql.runtime.jobs.startable import expired_splits, require_readable
from rw_sql.runtime.support.failures import StalledError
from rw_sql.syntax import parse_statement, render


def reason(
    states: dict[str, int], upstream: dict[str, tuple[int, int]], *, life: str = "l", cluster: str = "c"
) -> tuple[str, bool]:
    """The reason for these states and an upstream with these bounds, and whether it is final."""
    known = {
        split: SplitState(split=split, offset=offset, cluster="c", incarnation="l") for split, offset in states.items()
    }
    seen = {
        split: UpstreamSplit(split=split, start=start, end=end, cluster=cluster, incarnation=life)
        for split, (start, end) in upstream.items()
    }
    with pytest.raises(StalledError) as caught:
        require_readable("the source", tuple(states), known, Upstream(splits=seen))
    return caught.value.reason, caught.value.is_final


def statements(told: str) -> list[str]:
    """The statements that a reason ends with, in canonical text."""
    return [render(parse_statement(text)) for text in told.partition(": ")[2].split("; ")]


def test_expired_moves_only_what_expired() -> None:
    told, is_final = reason({"t:0": 5, "t:1": 5, "t:2": 5}, {"t:0": (9, 20), "t:1": (0, 20), "t:2": (6, 20)})
    assert told.startswith("EXPIRED t:0, t:2, 5 records: ")
    assert is_final
    assert statements(told) == [
        'PAUSE SOURCE "the source"',
        "INJECT SOURCE OFFSETS \"the source\" TO EARLIEST FOR SPLITS ('t:0', 't:2')",
        'RESUME SOURCE "the source"',
    ]


def test_where_all_expired_none_is_named() -> None:
    told, _ = reason({"t:0": 5}, {"t:0": (9, 20)})
    assert statements(told)[1] == 'INJECT SOURCE OFFSETS "the source" TO EARLIEST'


def test_ahead_goes_back_to_the_end() -> None:
    told, is_final = reason({"t:0": 5, "t:1": 50}, {"t:0": (0, 20), "t:1": (0, 20)})
    assert told.startswith("AHEAD t:1: ")
    assert is_final
    assert statements(told)[1] == "INJECT SOURCE OFFSETS \"the source\" TO LATEST FOR SPLITS ('t:1')"


@pytest.mark.parametrize("is_certain", [True, False])
def test_a_split_whose_records_are_all_gone_moves_with_the_other_empty_splits(is_certain: bool) -> None:
    splits = ("t:0", "t:1", "t:2", "t:3")
    states = {split: SplitState(split=split, offset=50, incarnation="l") for split in splits}
    seen = {
        split: UpstreamSplit(split=split, start=start, end=end, incarnation="l", is_empty=start == end)
        for split, start, end in (("t:0", 0, 60), ("t:1", 0, 0), ("t:2", 50, 50), ("t:3", 0, 0))
    }
    require_readable("the source", splits, states, Upstream(splits=seen))
    error = LostRecordsError("EXPIRED t:3: the split has no records now", "t:3", is_certain=is_certain)
    with (
        pytest.raises(StalledError) as caught,
        expired_splits("the source", splits, states, Upstream(splits=seen)),
    ):
        raise error
    told = caught.value.reason
    assert told.startswith("EXPIRED t:1, t:3, unread records may be lost: ")
    # A reader whose upstream may only have answered slowly is tried again.
    assert (caught.value.is_final, caught.value.is_lasting) == (is_certain, True)
    assert statements(told) == [
        'PAUSE SOURCE "the source"',
        "INJECT SOURCE OFFSETS \"the source\" TO EARLIEST FOR SPLITS ('t:1', 't:3')",
        'RESUME SOURCE "the source"',
    ]


def test_a_shard_that_was_read_to_its_end_is_not_moved() -> None:
    kind = connector("kinesis")
    assert isinstance(kind, RangedConnector)
    states = {split: SplitState(split=split, offset=offset) for split, offset in (("s", ENDED), ("t", 50))}
    seen = {split: UpstreamSplit(split=split, start=0, end=0, is_empty=True) for split in states}
    with pytest.raises(StalledError) as caught, expired_splits("k", ("s", "t"), states, Upstream(splits=seen), kind):
        raise LostRecordsError("EXPIRED t: the split has no records now", "t", is_certain=True)
    assert caught.value.reason.startswith("EXPIRED t, unread records may be lost: ")


def test_other_errors_of_a_stream_are_no_stall() -> None:
    with pytest.raises(OSError, match="no answer"), expired_splits("s", (), {}, Upstream()):
        raise OSError("no answer")


@pytest.mark.parametrize(
    ("other", "word"), [({"life": "m"}, "RECREATED"), ({"cluster": "d"}, "OTHER_CLUSTER"), ({}, "ORPHAN")]
)
def test_what_is_not_the_same_needs_reset(other: dict[str, str], word: str) -> None:
    upstream = {"t:0": (0, 20)} if other else {"t:1": (0, 20)}
    told, is_final = reason({"t:0": 5}, upstream, **other)
    assert told == f'{word} t:0: RESET SOURCE SPLITS "the source"'
    assert is_final


def test_identity_is_reported_before_bounds() -> None:
    told, _ = reason({"t:0": 5, "t:1": 5}, {"t:0": (9, 20), "t:1": (0, 20)}, life="m")
    assert told.startswith("RECREATED t:0, t:1: ")
