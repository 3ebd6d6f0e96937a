"""Offsets beyond 64 bits: their texts keep order and digits, and what counts offsets says that it cannot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.connectors.base import SplitState, UpstreamSplit
from rw_sql.connectors.registry import connector_names, has_wide_offsets
from rw_sql.connectors.support.wide_offsets import DIGITS, MOST, MOST_COUNTED, number_of_records, offset_text
from rw_sql.model.definitions import log_columns
from rw_sql.model.split_status import AHEAD, OK, split_status
from rw_sql.plan.effects.verdicts import counted
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateSource

offsets = st.integers(min_value=0, max_value=MOST)


@given(offsets, offsets)
def test_texts_have_the_order_of_the_numbers(one: int, other: int) -> None:
    assert (offset_text(one) < offset_text(other)) == (one < other)
    assert int(offset_text(one)) == one
    assert len(offset_text(one)) == DIGITS


@pytest.mark.parametrize("wrong", [-1, MOST + 1])
def test_what_is_no_offset(wrong: int) -> None:
    with pytest.raises(ValueError, match="no offset of 60 digits"):
        offset_text(wrong)


def test_an_uncountable_distance_is_reported() -> None:
    why = "sequence numbers do not count records"
    found = counted(MOST_COUNTED, 3, is_exact=False, why=why)
    assert found.text == f"GAP at most 3, DUPLICATES of unknown size ({why})"
    assert (found.duplicates, found.gaps) == (MOST_COUNTED - 1, 3)
    assert counted(0, MOST, is_exact=False).text == "GAP of unknown size"
    assert number_of_records(MOST) == "an unknown number of records"
    assert number_of_records(12) == "12 records"


def test_a_log_stores_them_as_texts() -> None:
    statement = parse_statement(
        "CREATE SOURCE s (n INT) WITH (connector = 'kinesis', stream = 's', aws.region = 'r') FORMAT PLAIN ENCODE JSON"
    )
    assert isinstance(statement, CreateSource)
    assert dict(log_columns(statement))["_rw_offset"] == "STRING"
    assert [name for name in connector_names() if has_wide_offsets(name)] == ["kinesis", "pulsar"]
    assert not has_wide_offsets("nothing")


def test_an_empty_split_has_no_known_end() -> None:
    state = SplitState(split="s", offset=9)
    assert split_status(state, UpstreamSplit(split="s", start=0, end=0)) == AHEAD
    assert split_status(state, UpstreamSplit(split="s", start=0, end=0, is_empty=True)) == OK
