"""The names that hints suggest for an unknown name."""

from __future__ import annotations

import pytest

from rw_sql.connectors.base import missing_hint
from rw_sql.errors import near_names


@pytest.mark.parametrize(
    ("wanted", "known", "near"),
    [
        ("ordrs", ["payments", "orders"], ["orders"]),
        ("ORDERS", ["payments", "orders"], ["orders"]),
        ("O", ["o", "p"], ["o"]),
        ("LATE SHIPMENTS", ["Late Shipments", "late"], ["Late Shipments"]),
        ("orderid", ["order_id", "orderId"], ["orderId"]),
        ("orders", ["orders"], ["orders"]),
        ("GRÖSSE", ["größe", "grösse"], ["grösse"]),
        ("unlike", ["payments", "orders"], []),
    ],
)
def test_a_name_in_another_case_is_the_nearest(wanted: str, known: list[str], near: list[str]) -> None:
    assert near_names(wanted, known) == near


def test_a_topic_in_another_case_is_suggested() -> None:
    assert missing_hint("ORDERS", ["orders", "payments"]) == 'did you mean "orders"?'
    assert missing_hint("Orders", ["ORDERS", "orders"]) == 'did you mean "ORDERS"? This cluster has "orders" too'
