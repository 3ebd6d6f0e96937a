"""The reasons why a reader cannot start, with statements that help and that move no other split."""

from __future__ import annotations

import pytest

from rw_sql.connectors.base import SplitState, Upstream, UpstreamSplit
from rw_sql.runtime.jobs.startable import require_readable
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
