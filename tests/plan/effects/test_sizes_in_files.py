"""The counts of a preview for a log that consists of files: bytes of these files, not differences of positions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rw_sql.connectors.base import SplitState, Upstream, UpstreamSplit
from rw_sql.connectors.mysql_cdc.positions import FIRST, STEPS, number_of
from rw_sql.connectors.registry import connector
from rw_sql.model.offset_ranges import ReadIncarnation, with_read
from rw_sql.plan.effects.verdicts import preview_splits
from rw_sql.plan.ports.positions import Positions
from rw_sql.plan.result.plan import SplitPreview
from rw_sql.plan.result.preview_text import total_text

FILES = ((number_of(2, 0), 1000), (number_of(3, 0), 500), (number_of(4, 0), 300))
SEEN = UpstreamSplit(
    split="shop", start=number_of(2, FIRST), end=number_of(4, 300), cluster="u", slack=STEPS - 1, files=FILES
)
UPSTREAM = Upstream(splits={"shop": SEEN}, cluster="u", sparse={"shop": "bytes"})


def moved(new: int | None, *reads: tuple[int, int], old: int | None = number_of(4, 200)) -> SplitPreview:
    lives: tuple[ReadIncarnation, ...] = ()
    for start, end in reads:
        lives = with_read(lives, start, end, cluster="u", incarnation=None)
    states = {} if old is None else {"shop": SplitState(split="shop", offset=old, cluster="u")}
    positions = Positions(states=states, read_splits=frozenset({"shop"}), lives={"shop": lives} if lives else {})
    after = {"shop": None if new is None else SplitState(split="shop", offset=new, cluster="u")}
    (row,) = preview_splits(connector("mysql-cdc"), UPSTREAM, positions, after)
    return row


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (number_of(4, 200), "NONE"),
        (number_of(4, 300), "GAP at most 100 (bytes)"),
        (number_of(4, 150), "DUPLICATES at most 50 (bytes)"),
        (number_of(3, 400), "DUPLICATES at most 300 (bytes)"),
        (number_of(2, 900), "DUPLICATES at most 800 (bytes)"),
        # The server no longer has file 1.
        (number_of(1, 900), "DUPLICATES at most 1700 (bytes)"),
    ],
)
def test_a_preview_counts_bytes_of_files(new: int, said: str) -> None:
    for row in (moved(new, (number_of(1, 4), number_of(4, 200))), moved(new)):
        assert row.verdict == said
        assert said == "NONE" or said.removesuffix(" (bytes)") in total_text([row])


def test_only_bytes_that_were_read_are_repeated() -> None:
    row = moved(number_of(3, 100), (number_of(1, 4), number_of(3, 200)), (number_of(4, 100), number_of(4, 200)))
    assert row.verdict == "DUPLICATES at most 200 (bytes)"
    # The counts of offsets, with which commits are compared, stay as they are.
    assert row.duplicates == 200 * STEPS
    assert row.sizes == (200, 0)
    assert total_text([row]) == "DUPLICATES at most 200, GAP 0"


def test_the_size_of_files_that_the_server_has_removed_is_unknown() -> None:
    for row in (
        moved(number_of(2, FIRST), (number_of(1, 4), number_of(1, 500)), old=number_of(1, 500)),
        moved(number_of(2, FIRST), old=number_of(1, 500)),
    ):
        assert row.verdict == "GAP of unknown size (bytes)"
        assert total_text([row]) == "DUPLICATES 0, GAP of unknown size"
    read = (number_of(1, 4), number_of(3, 100)), (number_of(1, 4), number_of(1, 500))
    assert moved(number_of(3, 200), *read, old=number_of(1, 500)).verdict.endswith("at most 100 (bytes)")


def test_a_row_whose_effect_was_corrected_counts_no_bytes() -> None:
    row = replace(moved(number_of(3, 400)), verdict="NONE", duplicates=0, gaps=0)
    assert total_text([row]) == "DUPLICATES 0, GAP 0"


def test_positions_at_one_place_of_the_log_have_no_bytes_between_them() -> None:
    row = moved(number_of(4, 200), old=number_of(4, 200) + 3)
    assert (row.verdict, row.duplicates) == ("DUPLICATES at most 0 (bytes)", 3)


def test_what_a_source_leaves_behind_is_counted_in_bytes() -> None:
    positions = Positions(states={"shop": SplitState(split="shop", offset=number_of(3, 400), cluster="u")})
    (row,) = preview_splits(
        connector("mysql-cdc"), Upstream(), positions, {"shop": None}, left=replace(UPSTREAM, sparse={})
    )
    assert row.verdict == "GAP 400 (left unread)"


def test_the_lag_of_a_log_of_files_is_a_number_of_bytes() -> None:
    cases = ((number_of(4, 300), 0), (number_of(4, 300) + 7, 0), (number_of(3, 400), 400), (number_of(1, 4), 1800))
    for position, behind in cases:
        assert SEEN.behind(position) == behind
    assert [SEEN.place(position) for position in (0, number_of(2, 10), number_of(9, 4))] == [0, 10, 1800]
