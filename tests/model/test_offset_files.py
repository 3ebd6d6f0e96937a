"""Offsets in the forms of other tools: each form is recognized, read, and written as its tool accepts it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.errors import SqlError
from rw_sql.model.offset_files import FORMS, read_offsets, write_offsets


def read(text: str) -> tuple[str, dict[str, str | None]]:
    found = read_offsets(text, "f")
    return found.form, {entry.split: entry.bound or entry.state for entry in found.entries}


CONNECT = {
    "offsets": [
        {"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": 7}},
        {"partition": {"kafka_topic": "t", "kafka_partition": 1}, "offset": None},
    ]
}


@pytest.mark.parametrize(
    ("text", "form", "entries"),
    [
        ('{"t:0": 7, "t:1": null}', "map", {"t:0": "7", "t:1": None}),
        ('{"0": {"offset": 7}}', "map", {"0": '{"offset": 7}'}),
        ('{"0": "7"}', "map", {"0": "7"}),
        ('\ufeff{"0": 7}', "map", {"0": "7"}),
        (json.dumps(CONNECT), "connect", {"t:0": "7", "t:1": None}),
        ("t,0,7\nt,1,8\n", "csv", {"t:0": "7", "t:1": "8"}),
        ('"t",0,7\r\n', "csv", {"t:0": "7"}),
        ("g,t,0,7\ng,u,0,8\n\n", "csv", {"t:0": "7", "u:0": "8"}),
        ("t 0 7\nu\t1   8\n", "rpk", {"t:0": "7", "u:1": "8"}),
        ('{"t":{"0":7,"1":-2},"u":{"0":-1}}', "spark", {"t:0": "7", "t:1": "earliest", "u:0": "latest"}),
    ],
)
def test_every_form_is_recognized_by_its_content(text: str, form: str, entries: dict[str, str | None]) -> None:
    assert read(text) == (form, entries)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("[1]", "does not contain a JSON object"),
        ("{}", "names no split"),
        ('{"t:0": }', "is not JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"t:0": 1, "t:0": 2}', 'names "t:0" more than once'),
        ('{"t:0": true}', "which is not a whole number"),
        ('{"t": {"0": 1.5}}', "which is not a whole number"),
        ('{"t": {"x": 1}}', "in the place of a partition's number"),
        ('{"offsets": [{"partition": {"cluster": "a"}, "offset": {"offset": 1}}]}', "entry 1"),
        ('{"offsets": []}', "names no split"),
        ("topic,partition,offset", "in the place of a partition's number"),
        ("t,0,-1", "which is not a whole number"),
        ("t,0", "has 2 fields in line 1"),
        ("t 0 1\nt 0 2", 'names "t:0" more than once'),
        ("g,t,0,1\nh,t,1,1", "several groups: g, h"),
    ],
)
def test_what_is_no_offsets_file_says_why(text: str, says: str) -> None:
    with pytest.raises(SqlError) as caught:
        read(text)
    assert caught.value.code == "RW403"
    assert says in caught.value.message
    assert caught.value.hint


names = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
splits = st.builds(lambda topic, number: f"{topic}:{number}", names, st.integers(0, 9999))


@given(st.dictionaries(splits, st.integers(0, 2**63 - 1), min_size=1), st.sampled_from(FORMS), st.none() | names)
def test_what_is_written_is_read_again(offsets: dict[str, int], form: str, group: str | None) -> None:
    read_form, entries = read(write_offsets(form, offsets, group=group))
    assert read_form == form
    assert entries == {split: str(offset) for split, offset in offsets.items()}


def test_only_a_map_names_what_is_no_partition() -> None:
    assert read(write_offsets("map", {"4-0": 7})) == ("map", {"4-0": "7"})
    with pytest.raises(ValueError, match="only a map"):
        write_offsets("csv", {"4-0": 7})
