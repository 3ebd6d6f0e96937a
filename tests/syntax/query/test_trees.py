"""Copies of trees, and their texts, against sqlglot's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sqlglot import parse_one
from sqlglot.errors import SqlglotError

from rw_sql.syntax.query.trees import copy_of, spark_sql, spent_sql

ROOT = Path(__file__).parents[3]
_QUERY = re.compile(r"\bAS\s+((?:SELECT|WITH)\b.*?)(?:;|\Z)", re.DOTALL | re.IGNORECASE)


def queries() -> list[str]:
    files = [*(ROOT / "tests" / "fixtures").rglob("*.sql"), *(ROOT / "examples").rglob("*.sql")]
    return sorted({found for file in files for found in _QUERY.findall(file.read_text(encoding="utf-8"))})


@pytest.mark.filterwarnings("ignore")
def test_a_copy_and_its_text_are_those_of_sqlglot() -> None:
    compared = 0
    for query in queries():
        try:
            tree = parse_one(query, read="spark")
        except SqlglotError:
            continue
        theirs, ours = tree.copy(), copy_of(tree)
        for one, other, own in zip(theirs.walk(), ours.walk(), tree.walk(), strict=True):
            assert type(one) is type(other)
            assert (one.arg_key, one.index, one.comments, one.meta) == (
                other.arg_key,
                other.index,
                other.comments,
                other.meta,
            )
            assert other is not own
            assert other.parent is None or other.parent is not own.parent
        assert ours == theirs
        assert spent_sql(ours) == spark_sql(tree)
        compared += 1
    assert compared > 150
