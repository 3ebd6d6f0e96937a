"""Split states as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.support.split_state_json import MAX_OFFSET, decode_state, encode_state
from rw_sql.errors import SqlError

words = st.none() | st.text(max_size=30)
offsets = st.integers(min_value=0, max_value=MAX_OFFSET)
terms = st.none() | st.integers(min_value=0, max_value=2**31 - 1)


@given(offsets, words, words, terms)
def test_what_is_encoded_is_decoded(
    offset: int, cluster: str | None, incarnation: str | None, term: int | None
) -> None:
    state = SplitState(split="orders:0", offset=offset, cluster=cluster, incarnation=incarnation, term=term)
    text = encode_state(state)
    assert decode_state("orders:0", text) == state
    order = ["cluster", "incarnation", "term", "offset"]
    assert list(json.loads(text)) == [name for name in order if name in json.loads(text)]
    # A person may write the fields in any order.
    fields = dict(reversed(json.loads(text).items()))
    assert decode_state("orders:0", json.dumps(fields)) == state


@given(st.lists(st.tuples(offsets, words, words), max_size=8))
def test_states_that_differ_in_little_are_distinguished(written: list[tuple[int, str | None, str | None]]) -> None:
    states = [SplitState(split="s", offset=at, cluster=cluster, incarnation=life) for at, cluster, life in written]
    assert [decode_state("s", text) for text in map(encode_state, states)] == states


@given(offsets)
def test_a_bare_number_is_an_offset(offset: int) -> None:
    assert decode_state("s", f" {offset} ") == SplitState(split="s", offset=offset)


@given(st.text())
@example("0\x1f")
def test_any_text_is_a_state_or_a_coded_error(text: str) -> None:
    assert _offset_or_code(text) in (None, "RW210")


def _offset_or_code(text: str) -> str | None:
    try:
        state = decode_state("s", text)
    except SqlError as error:
        return error.code
    return None if 0 <= state.offset <= MAX_OFFSET else f"offset {state.offset}"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("-1", "the offset -1 is negative"),
        ("9223372036854775808", "the offset is greater than 9223372036854775807, the greatest possible offset"),
        ("1" * 5000, "the offset is greater than 9223372036854775807, the greatest possible offset"),
        ("abc", "'abc' is neither a number nor JSON"),
        ("", "'' is neither a number nor JSON"),
        ("[1]", "'[1]' is not an object with an offset"),
        ("null", "'null' is not an object with an offset"),
        ("{}", 'the field "offset" is missing'),
        ('{"offset": "5"}', "the offset '5' is not a whole number"),
        ('{"offset": 1.5}', "the offset '1.5' is not a whole number"),
        ('{"offset": true}', "the offset 'True' is not a whole number"),
        ('{"offset": 1, "topic": "t"}', "it has no field 'topic'; its fields are offset, cluster, incarnation"),
        ('{"offset": 1, "cluster": 7}', 'the field "cluster" is not a string'),
        ('{"cluster":7,"offset":1}', 'the field "cluster" is not a string'),
        ('{"topic":"t","offset":1}', "it has no field 'topic'; its fields are offset, cluster, incarnation"),
        ('{"offset":007}', "'{\"offset\":007}' is neither a number nor JSON"),
        ('{"offset":1}{"offset":2}', '\'{"offset":1}{"offset":2}\' is neither a number nor JSON'),
        ('{"cluster":"c\\","offset":1}', '\'{"cluster":"c\\","offset":1}\' is neither a number nor JSON'),
    ],
)
def test_what_is_wrong_with_a_state_is_reported(text: str, what: str) -> None:
    with pytest.raises(SqlError) as caught:
        decode_state("orders:0", text)
    assert caught.value.code == "RW210"
    assert caught.value.message == f'invalid state of split "orders:0": {what}'
