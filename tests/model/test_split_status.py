"""The status of splits that the upstream no longer lists."""

from __future__ import annotations

import pytest

from rw_sql.connectors.base import SplitState, Upstream
from rw_sql.connectors.kinesis.shards import ENDED
from rw_sql.connectors.registry import connector
from rw_sql.model.split_status import OK, ORPHAN, continuing_status, still_asked


@pytest.mark.parametrize(
    ("name", "finished", "unfinished"),
    [
        (
            "posix_fs",
            SplitState(split="a", offset=9, incarnation="9-1"),
            SplitState(split="a", offset=8, incarnation="9-1"),
        ),
        ("kinesis", SplitState(split="a", offset=ENDED), SplitState(split="a", offset=8)),
        ("kafka", None, SplitState(split="a", offset=8)),
    ],
)
def test_a_source_continues_although_a_split_that_it_has_read_to_its_end_is_removed(
    name: str, finished: SplitState | None, unfinished: SplitState
) -> None:
    kind = connector(name)
    assert continuing_status(kind, unfinished, None) == ORPHAN
    assert still_asked(kind, ("a",), {"a": unfinished}, Upstream()) == ("a",)
    assert continuing_status(kind, None, None) == ORPHAN
    assert still_asked(kind, ("a",), {}, Upstream()) == ("a",)
    if finished is not None:
        assert continuing_status(kind, finished, None) == OK
        assert still_asked(kind, ("a",), {"a": finished}, Upstream()) == ()
