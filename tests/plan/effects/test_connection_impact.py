"""Whether a change of a connection may lead to another upstream or target."""

from __future__ import annotations

import pytest

from rw_sql.connectors.spec import load_sink_spec
from rw_sql.plan.effects.connection_impact import may_move

SHOP = "jdbc:postgresql://db/shop"


@pytest.mark.parametrize(
    "same",
    [
        "jdbc:postgresql://db:5432/shop",
        "jdbc:postgresql://DB/shop",
        "jdbc:postgresql://w@db/shop",
        "jdbc:postgresql://db/%73hop",
        "jdbc:postgresql://db:5432/shop?sslmode=require",
    ],
)
def test_spellings_of_an_address_are_the_same_target(same: str) -> None:
    spec = load_sink_spec("jdbc")
    assert not may_move(spec, (("jdbc.url", SHOP, same),))
    assert not may_move(spec, (("jdbc.url", same, SHOP),))


def test_the_case_of_a_secret_s_name_counts() -> None:
    assert may_move(load_sink_spec("jdbc"), (("jdbc.url", 'SECRET "a"', 'SECRET "A"'),))


@pytest.mark.parametrize(
    "other",
    [
        "",
        "jdbc:postgresql://db:6432/shop",
        "jdbc:postgresql://db:0/shop",
        "jdbc:postgresql://db:x/shop",
        "jdbc:postgresql://[db/shop",
        "jdbc:postgresql://db/Shop",
        "jdbc:postgresql://db/shop/",
        "jdbc:postgresql://db2/shop?sslmode=require",
        "jdbc:other://db/shop",
        "SECRET url",
    ],
)
def test_another_address_may_be_another_target(other: str) -> None:
    spec = load_sink_spec("jdbc")
    assert may_move(spec, (("jdbc.url", SHOP, other),))
    assert may_move(spec, (("jdbc.url", other, SHOP),))
