"""Which offsets were read from one incarnation of a split, although its identity was unknown at times."""

from __future__ import annotations

import pytest

from rw_sql.model.offset_ranges import IncarnationReads, ReadIncarnation, Spans, reads_of, with_read

Reading = tuple[str | None, str | None, int, int]
"""Cluster, incarnation, and the offsets."""


def lives_of(*readings: Reading) -> tuple[ReadIncarnation, ...]:
    lives: tuple[ReadIncarnation, ...] = ()
    for cluster, incarnation, start, end in readings:
        lives = with_read(lives, start, end, cluster=cluster, incarnation=incarnation)
    return lives


def found(cluster: str | None, incarnation: str | None, *readings: Reading) -> IncarnationReads:
    reads = reads_of(lives_of(*readings), cluster, incarnation)
    assert reads is not None
    return reads


@pytest.mark.parametrize("now", [None, "T"])
@pytest.mark.parametrize(("first", "second"), [("T", None), (None, "T"), ("T", "T"), (None, None)])
def test_readings_with_and_without_an_identity_are_of_one_incarnation(
    now: str | None, first: str | None, second: str | None
) -> None:
    reads = found(None, now, (None, first, 0, 1000), (None, second, 200, 500))
    assert (reads.spans, reads.reached) == (((0, 1000),), 500)
    assert reads.is_certain


def test_a_cluster_that_was_unknown_at_times_is_one_cluster() -> None:
    reads = found("c", "T", (None, "T", 0, 10), ("c", "T", 20, 30), ("c", None, 30, 40))
    assert reads.spans == ((0, 10), (20, 40))
    assert reads.is_certain


def test_other_incarnations_are_left_out() -> None:
    lives = lives_of(("c", "A", 0, 90), ("c", "B", 0, 10), ("d", "B", 50, 60))
    reads = reads_of(lives, "c", "B")
    assert reads is not None
    assert (reads.spans, reads.is_certain) == (((0, 10),), True)
    assert reads_of(lives, "c", "C") is None
    assert reads_of((), None, None) is None


def test_an_unknown_identity_is_that_of_the_newest_reading() -> None:
    reads = found("c", None, ("c", "A", 0, 90), ("c", "B", 0, 10))
    assert (reads.spans, reads.reached, reads.is_certain) == (((0, 10),), 10, True)


def test_a_reading_that_may_be_of_another_incarnation_is_not_certain() -> None:
    reads = found("c", "B", ("c", "A", 0, 90), ("c", None, 90, 120), ("c", "B", 0, 10))
    assert (reads.spans, reads.reached) == (((0, 10), (90, 120)), 10)
    assert (reads.certain_spans, reads.certain_reached, reads.is_certain) == (((0, 10),), 10, False)
    reads = found("c", "B", ("c", "A", 0, 90), ("c", None, 90, 120))
    assert (reads.spans, reads.certain_spans, reads.certain_reached) == (((90, 120),), (), None)


@pytest.mark.parametrize(
    ("cluster", "spans"),
    [
        # A topic of this cluster that was replaced does not come back.
        ("c", ((0, 10),)),
        # Without an identity of the cluster, the source may have gone to another one and back.
        (None, ((0, 10), (90, 120))),
    ],
)
def test_a_reading_before_another_topic_replaced_the_split_is_not_of_the_present_topic(
    cluster: str | None, spans: Spans
) -> None:
    reads = found(cluster, "B", (cluster, None, 90, 120), (cluster, "A", 0, 90), (cluster, "B", 0, 10))
    assert reads.spans == spans
