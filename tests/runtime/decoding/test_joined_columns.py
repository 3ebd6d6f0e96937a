"""Conditions on hundreds of columns, as one expression."""

from __future__ import annotations

from typing import Any

import pytest

from rw_sql.runtime.decoding.json_text import joined


def depth(tree: Any) -> int:
    return 1 + max(map(depth, tree)) if isinstance(tree, tuple) else 0


def leaves(tree: Any) -> list[int]:
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple) else [tree]


@pytest.mark.parametrize(("count", "deep"), [(1, 0), (2, 1), (3, 2), (300, 9), (1000, 10)])
def test_an_expression_of_many_parts_is_not_deep(count: int, deep: int) -> None:
    """Spark's analyzer is recursive: with a chain of 300 conditions, its stack overflows."""
    pair: Any = lambda one, other: (one, other)  # noqa: E731
    parts: Any = list(range(count))
    tree = joined(pair, parts)
    assert depth(tree) == deep
    assert leaves(tree) == parts
