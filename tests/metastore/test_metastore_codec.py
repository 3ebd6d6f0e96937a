from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.errors import SqlError
from rw_sql.metastore import changes_from_json, changes_to_json, record_from_json, record_to_json
from rw_sql.metastore.records import (
    AssignSplits,
    Change,
    DropObject,
    ForgetSplitStates,
    ObjectRecord,
    PauseRecord,
    PutObject,
    PutSplitStates,
    UnassignSplits,
)

texts = st.text(max_size=20)
# Derived from the annotations, so that a new kind of record is covered as soon as it exists.
records = st.one_of(
    *(st.builds(record, **{f.name: ... for f in fields(record) if f.init}) for record in get_args(ObjectRecord))
)
names = st.lists(texts).map(tuple)
changes = st.one_of(
    st.builds(PutObject, record=records),
    st.builds(DropObject, id=st.integers()),
    st.builds(AssignSplits, fragment=texts, splits=names),
    st.builds(UnassignSplits, fragment=texts, splits=names),
    st.builds(PutSplitStates, fragment=texts, states=st.dictionaries(texts, texts), log_version=st.integers(-1, 9)),
    st.builds(ForgetSplitStates, fragment=texts, splits=names),
)


@given(records)
def test_a_record_survives_json(record: ObjectRecord) -> None:
    assert record_from_json(record_to_json(record)) == record


@pytest.mark.long
@given(st.lists(changes).map(tuple))
def test_changes_survive_json(changed: tuple[Change, ...]) -> None:
    assert changes_from_json(changes_to_json(changed)) == changed


def test_every_kind_of_change_is_covered() -> None:
    assert len(get_args(Change)) == 6


def test_a_field_of_a_later_version_takes_its_default_where_it_is_missing() -> None:
    data = json.loads(record_to_json(PauseRecord(id=1, name="p", source_id=None)))
    del data["reason"]
    assert record_from_json(json.dumps(data)) == PauseRecord(id=1, name="p", source_id=None)


VIEW = '"id": 1, "name": "v", "definition": "", "query": "", "inputs": [], "schema": ""'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"kind": "index", "id": 1}', '"index"'),
        ('{"kind": "parameter", "id": 1, "name": "n", "scope": 1}', 'a parameter has a field "scope"'),
        (
            f'{{"kind": "materialized_view", {VIEW}, "maintenance": {{"lag": 1}}}}',
            'a view\'s maintenance has a field "lag"',
        ),
        (
            '{"kind": "rebuild", "id": 1, "name": "r", "view_id": 1, "generation": 2, "view": '
            f'{{"kind": "materialized_view", {VIEW}, "color": 1}}}}',
            'a materialized_view has a field "color"',
        ),
    ],
)
def test_what_a_newer_version_wrote_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(SqlError) as refused:
        record_from_json(text)
    assert refused.value.code == "RW308"
    assert named in refused.value.message


def test_a_change_of_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(SqlError, match="swap_splits") as refused:
        changes_from_json('[{"change": "swap_splits"}]')
    assert refused.value.code == "RW308"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "not a record: it has no kind"),
        ("[]", "not a record: it has no kind"),
        ("{", "Input data was truncated"),
        (
            '{"kind": "parameter", "id": 1}',
            "not a parameter record: Object missing required field `name`",
        ),
        (
            '{"kind": "parameter", "id": "1", "name": "n", "value": "v"}',
            "not a parameter record: Expected `int`, got `str` - at `$.id`",
        ),
        (
            f'{{"kind": "materialized_view", {VIEW}, "maintenance": {{"partition": ["a", 1]}}}}',
            "not a materialized_view record: Expected `str`, got `int` - at `$.maintenance.partition[1]`",
        ),
    ],
)
def test_what_is_no_record_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        record_from_json(text)
