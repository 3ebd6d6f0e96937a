"""Whether a reader may start at its positions, and the checks that apply only to a running one."""

from __future__ import annotations

import pytest

from rw_sql.connectors.base import SplitState, Upstream, UpstreamSplit
from rw_sql.connectors.sink import SinkLook
from rw_sql.runtime.jobs.startable import (
    require_incarnations,
    require_readable,
    require_same,
    require_splits,
    require_usable,
)
from rw_sql.runtime.support.failures import StalledError


def upstream(start: int = 0, end: int = 10, *, cluster: str = "here", life: str = "first") -> Upstream:
    seen = UpstreamSplit(split="t:0", start=start, end=end, cluster=cluster, incarnation=life)
    return Upstream(splits={"t:0": seen}, cluster=cluster)


def at(offset: int) -> dict[str, SplitState]:
    return {"t:0": SplitState(split="t:0", offset=offset, cluster="here", incarnation="first")}


SPLITS = ("t:0",)


@pytest.mark.parametrize(
    ("offset", "seen", "reason"),
    [
        (
            2,
            upstream(start=5),
            "EXPIRED t:0, 3 records: PAUSE SOURCE s; INJECT SOURCE OFFSETS s TO EARLIEST; RESUME SOURCE s",
        ),
        (12, upstream(), "AHEAD t:0: PAUSE SOURCE s; INJECT SOURCE OFFSETS s TO LATEST; RESUME SOURCE s"),
    ],
)
def test_bounds_are_requested_at_the_start_only(offset: int, seen: Upstream, reason: str) -> None:
    require_same("s", SPLITS, at(offset), seen)
    with pytest.raises(StalledError) as raised:
        require_readable("s", SPLITS, at(offset), seen)
    assert (raised.value.reason, raised.value.is_final) == (reason, True)


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (upstream(life="second"), "RECREATED t:0: RESET SOURCE SPLITS s"),
        (upstream(cluster="there"), "OTHER_CLUSTER t:0: RESET SOURCE SPLITS s"),
        (Upstream(), "ORPHAN t:0: RESET SOURCE SPLITS s"),
    ],
)
def test_another_upstream_is_refused_always(seen: Upstream, reason: str) -> None:
    for check in (require_same, require_readable):
        with pytest.raises(StalledError) as raised:
            check("s", SPLITS, at(5), seen)
        assert (raised.value.reason, raised.value.is_final) == (reason, True)


def test_a_batch_of_a_topic_that_is_not_there_is_tried_again() -> None:
    known = {"t": "first", "u": None}
    require_incarnations("s", known, {"t": "first"})
    require_incarnations("s", known, {"t": None})
    for now, reason, is_final in (
        ({"u": "any"}, "MISSING t: it does not exist now", False),
        ({"t": "second"}, "RECREATED t: RESET SOURCE SPLITS s", True),
    ):
        with pytest.raises(StalledError) as raised:
            require_incarnations("s", known, now)
        assert (raised.value.reason, raised.value.is_final) == (reason, is_final)


@pytest.mark.parametrize(
    ("splits", "seen", "reason"),
    [
        (SPLITS, Upstream(error="no answer"), "UNREACHABLE no answer"),
        (SPLITS, Upstream(missing=("t",)), "MISSING topic t"),
        ((), upstream(), "DISCOVERING the splits are not known yet"),
    ],
)
def test_what_may_come_is_waited_for(splits: tuple[str, ...], seen: Upstream, reason: str) -> None:
    with pytest.raises(StalledError) as raised:
        require_splits(splits, seen)
    assert (raised.value.reason, raised.value.is_final) == (reason, False)


@pytest.mark.parametrize("look", [Upstream, SinkLook])
def test_a_refused_property_is_not_a_silent_upstream(look: type[Upstream] | type[SinkLook]) -> None:
    """Nothing was asked, so the job must not be retried as one whose upstream is down."""
    with pytest.raises(StalledError) as raised:
        require_usable(look(error='property "k" contains a line break', refused_key="k", hint="write k on one line"))
    assert raised.value.reason == 'property "k" contains a line break: write k on one line'
    assert raised.value.is_lasting
    with pytest.raises(StalledError) as raised:
        require_usable(look(error="no answer within 8 s"))
    assert (raised.value.reason, raised.value.is_lasting) == ("UNREACHABLE no answer within 8 s", False)
