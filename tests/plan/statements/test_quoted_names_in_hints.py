"""Hints name the object of the statement as SQL writes it, if its name is valid only in quotes."""

from __future__ import annotations

import pytest

from rw_sql.errors import SqlError
from rw_sql.syntax import parse_statement
from tests.plan.canned import HERE, CannedWorld, create_source, refused


def quoted_world() -> CannedWorld:
    """A connection ``Broker``, a source ``Orders`` on none, and a schema."""
    world = CannedWorld()
    world.put_topic("old", (0, 5))
    world.run(
        "CREATE SCHEMA raw",
        "CREATE SECRET pw WITH (backend = 'meta') AS 'x'",
        f"CREATE CONNECTION \"Broker\" WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')",
        create_source('"Orders"', "old"),
        create_source('raw."My orders"', "old"),
    )
    return world


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        (
            "ALTER CONNECTION \"Broker\" CONNECTOR WITH (connector = 'nats')",
            'CREATE CONNECTION "Broker_2" … WITH (connector = …); then DROP CONNECTION "Broker"',
        ),
        (
            "ALTER SOURCE raw.\"My orders\" CONNECTOR WITH (connector = 'nats')",
            'CREATE SOURCE raw."My orders_2" … WITH (connector = …); then DROP SOURCE raw."My orders"',
        ),
        (
            'ALTER SOURCE "Orders" CONNECTOR WITH (connection = "Broker")',
            'ALTER SOURCE "Orders" SET CONNECTION "Broker"',
        ),
        (
            'ALTER SOURCE "Orders" SET RESOURCE_GROUP TO 3',
            "ALTER SOURCE \"Orders\" SET RESOURCE_GROUP TO 'a_group'",
        ),
        (
            "CREATE SOURCE \"Shop\" INCLUDE timestamp WITH (connector = 'postgres-cdc', hostname = 'h', "
            "username = 'u', password = SECRET pw, database.name = 'd', slot.name = 's')",
            "CREATE TABLE t (*) INCLUDE timestamp FROM \"Shop\" TABLE 'schema.table'",
        ),
    ],
)
def test_a_hint_names_the_object_in_its_quotes(statement: str, hint: str) -> None:
    assert refused(quoted_world(), statement).hint == hint


def test_a_hint_names_the_source_of_a_cdc_table_in_its_quotes() -> None:
    with pytest.raises(SqlError) as caught:
        parse_statement("CREATE SOURCE \"Shop\" (id INT) WITH (connector = 'postgres-cdc')")
    assert caught.value.hint == "omit the columns: CREATE TABLE … FROM \"Shop\" TABLE '…' names them"
