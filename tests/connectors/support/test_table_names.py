"""Names of tables as options have them."""

from __future__ import annotations

import pytest

from rw_sql.connectors.support.table_names import two_parts


@pytest.mark.parametrize(
    ("text", "quotes", "parts"),
    [
        ("shop.orders", '"', ("shop", "orders")),
        (" shop . orders ", '"', ("shop", "orders")),
        ('"a.b".c', '"', ("a.b", "c")),
        ('"a""b".c', '"', ('a"b', "c")),
        ('`x`."y"', '`"', ("x", "y")),
        ("`x`.y", '"', ("`x`", "y")),
        ('"a"x.c', '"', None),
        ('"a.b', '"', None),
        ("a", '"', None),
        ("a.b.c", '"', None),
        ("", '"', None),
    ],
)
def test_a_name_has_two_parts(text: str, quotes: str, parts: tuple[str, str] | None) -> None:
    assert two_parts(text, quotes) == parts
