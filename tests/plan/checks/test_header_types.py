"""The types with which INCLUDE header may declare a header's value."""

from __future__ import annotations

import pytest

from rw_sql.errors import SqlError
from tests.plan.canned import HERE, CannedWorld


def source(included: str) -> str:
    where = f"WITH (connector = 'kafka', properties.bootstrap.server = '{HERE}', topic = 't')"
    return f"CREATE SOURCE s (id INT) INCLUDE header {included} {where} FORMAT PLAIN ENCODE JSON"


@pytest.fixture
def world() -> CannedWorld:
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    return world


@pytest.mark.parametrize("kind", ["INT", "TIMESTAMP", "VARCHAR[]"])
def test_a_header_is_text_or_bytes(world: CannedWorld, kind: str) -> None:
    with pytest.raises(SqlError) as told:
        world.plan(source(f"'h' {kind}"))
    assert told.value.code == "RW206"
    assert told.value.message.startswith("the value of header 'h' is bytes or text, not ")
    assert told.value.hint == "INCLUDE header 'h' VARCHAR; a materialized view can CAST the text"
    table = source(f"'h' {kind}").replace("SOURCE s (id INT)", "TABLE s (id INT)")
    with pytest.raises(SqlError, match="is bytes or text, not"):
        world.plan(table)


@pytest.mark.parametrize("kind", ["'h' VARCHAR", "'h' JSONB", "'h' BYTEA", "'h'", ""])
def test_a_header_without_another_type_is_accepted(world: CannedWorld, kind: str) -> None:
    world.run(source(kind))
