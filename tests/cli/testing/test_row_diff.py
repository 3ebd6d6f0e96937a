"""The display of rows that differ."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rw_sql.cli.testing.row_diff import compare_lists, compare_rows

ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.sampled_from("12")), max_size=8)


def test_the_report_names_what_is_missing_unexpected_and_changed() -> None:
    found = compare_rows(
        ["customer", "orders", "amount"],
        [("ann", "2", "30"), ("bob", "1", "20"), ("cid", "1", "7"), ("eve", "9", "9")],
        [("ann", "2", "25"), ("bob", "1", "20"), ("dan", "4", "4"), ("cid", "2", "8")],
    )
    assert found.summary == "1 missing, 1 unexpected, 2 changed rows; 1 as expected"
    assert found.render() == (
        "  customer | orders | amount\n"
        "  ---------+--------+--------\n"
        "~ ann      | 2      | 30 → 25\n"
        "~ cid      | 1 → 2  | 7 → 8\n"
        "- eve      | 9      | 9\n"
        "+ dan      | 4      | 4\n"
        "  (~ changed, expected → found; - missing; + unexpected)"
    )


def test_a_row_that_occurs_twice_is_two_rows() -> None:
    found = compare_rows(["a"], [("1",)], [("1",), ("1",)])
    assert (found.missing, found.unexpected, found.changed, found.equal) == ((), (("1",),), (), 1)


def test_long_tables_and_cells_are_cut() -> None:
    found = compare_rows(["a", "b"], [], [(str(i), "x" * 500 + "\n") for i in range(100)])
    text = found.render()
    assert "… and 60 more" in text
    assert max(map(len, text.splitlines())) < 80
    assert len(text.splitlines()) == 2 + 40 + 2


def test_where_the_order_counts() -> None:
    assert compare_lists(["a"], [("1",), ("2",)], [("1",), ("2",)]) is None
    assert compare_lists(["a"], [("1",), ("2",)], [("2",), ("1",)]) == (
        "the rows are as expected, but in another order: row 1 is (2), not (1)"
    )
    assert "- 3" in (compare_lists(["a"], [("1",), ("3",)], [("1",)]) or "")


@given(ROWS, ROWS)
def test_nothing_is_left_out(expected: list[tuple[str, ...]], found: list[tuple[str, ...]]) -> None:
    told = compare_rows(["a", "b", "c"], expected, found)
    assert told.is_empty == (sorted(expected) == sorted(found))
    assert len(told.missing) + len(told.changed) + told.equal == len(expected)
    assert len(told.unexpected) + len(told.changed) + told.equal == len(found)
    if not told.is_empty:
        lines = told.render().splitlines()
        assert len(lines) == 3 + len(told.missing) + len(told.unexpected) + len(told.changed)
