"""Deployments that reach the folder's definitions: nothing is dropped for it, and a second run finds no difference."""

from __future__ import annotations

import pytest

from rw_sql.errors import SqlError
from tests.plan.deploy.test_changes import CONNECTION, SOURCE, VIEW, bring, differ
from tests.plan.statements.table.test_cdc_tables import SOURCE as DATABASE
from tests.plan.statements.table.test_cdc_tables import TABLE as OF_DATABASE
from tests.plan.statements.table.test_cdc_tables import cdc_world
from tests.plan.tables import sink, tables_world

SECRET = "CREATE SECRET pw WITH (backend = 'env', name = 'PASSWORD')"


def connection(*options: str) -> str:
    return CONNECTION.replace(")", "".join(f", {option}" for option in options) + ")")


def source(*options: str) -> str:
    return SOURCE.replace("topic", "".join(f"{option}, " for option in options) + "topic")


LOGIN = connection(
    "properties.security.protocol = 'SASL_PLAINTEXT'",
    "properties.sasl.mechanism = 'PLAIN'",
    "properties.sasl.username = 'me'",
    "properties.sasl.password = SECRET pw",
)


@pytest.mark.parametrize("changed", ["backend = 'env', name = 'OTHER'", "backend = 'file', path = '/run/pw'"])
def test_a_changed_secret_is_refused_and_nothing_is_dropped(changed: str) -> None:
    world = tables_world()
    bring(world, SECRET, LOGIN, SOURCE, VIEW)
    with pytest.raises(SqlError) as caught:
        differ(world, f"CREATE SECRET pw WITH ({changed})", LOGIN, SOURCE, VIEW)
    assert caught.value.message == (
        'secret "pw" at a.sql:1 differs from the secret in the warehouse: the backend of a secret and the properties '
        "of the backend cannot change"
    )
    assert caught.value.hint == (
        "write CREATE SECRET pw_2 WITH (…) in the folder instead, and SECRET pw_2 in the objects that use the secret: "
        "connection c, source s, materialized view v"
    )
    texts = (f"CREATE SECRET pw_2 WITH ({changed})", LOGIN.replace("SECRET pw", "SECRET pw_2"), SOURCE, VIEW)
    assert [(action, name) for action, name, _ in differ(world, *texts)] == [("create", "pw_2"), ("alter", "c")]
    bring(world, *texts)
    assert differ(world, *texts) == []


def test_a_changed_secret_that_nothing_uses_is_dropped_by_hand() -> None:
    world = tables_world()
    world.run("CREATE SECRET pw WITH (backend = 'meta') AS 'x'")
    with pytest.raises(SqlError) as caught:
        differ(world, SECRET)
    assert caught.value.hint == (
        "no object uses it: DROP SECRET pw, then run the same command again; to change only its value, omit the secret "
        "from the folder, and ALTER SECRET pw AS '…'"
    )


def test_the_letter_case_of_a_backend_is_no_change() -> None:
    world = tables_world()
    bring(world, SECRET)
    assert differ(world, SECRET.replace("'env'", "'ENV'")) == []


def test_the_rate_of_a_database_table_changes_in_place() -> None:
    world = cdc_world(OF_DATABASE)
    for given, limit in ((" WITH (backfill_rate_limit = 5)", 5), (" WITH (backfill_rate_limit = '7')", 7), ("", None)):
        texts = (DATABASE, OF_DATABASE.replace(" FROM", f"{given} FROM"))
        statement = f"ALTER TABLE orders SET BACKFILL_RATE_LIMIT = {'DEFAULT' if limit is None else limit}"
        assert differ(world, *texts) == [("alter", "orders", (statement,))]
        bring(world, *texts)
        assert differ(world, *texts) == []


ID = "properties.client.id = 'x'"
OTHER_ID = "properties.client.id = 'y'"
DETACH, ATTACH = "ALTER SOURCE s SET CONNECTION NONE", "ALTER SOURCE s SET CONNECTION c"


@pytest.mark.parametrize(
    ("before", "wanted", "expected"),
    [
        (
            (connection(), source(ID)),
            (connection(ID), source()),
            [DETACH, f"ALTER CONNECTION c SET ({ID})", ATTACH],
        ),
        (
            (connection(), source(ID)),
            (connection(OTHER_ID), source()),
            [f"ALTER SOURCE s UNSAFE SET ({OTHER_ID})", DETACH, f"ALTER CONNECTION c SET ({OTHER_ID})", ATTACH],
        ),
        (
            (connection(ID), source()),
            (connection(), source(ID)),
            [DETACH, "ALTER CONNECTION c DROP (properties.client.id)", ATTACH],
        ),
        (
            (connection(ID), source()),
            (connection(), source(OTHER_ID)),
            [
                DETACH,
                "ALTER CONNECTION c DROP (properties.client.id)",
                ATTACH,
                f"ALTER SOURCE s CONNECTOR WITH ({OTHER_ID})",
            ],
        ),
    ],
    ids=["into it", "into it with another value", "out of it", "out of it with another value"],
)
def test_a_property_moves_between_a_source_and_its_connection(
    before: tuple[str, ...], wanted: tuple[str, ...], expected: list[str]
) -> None:
    for until in range(4):
        world = tables_world()
        bring(world, *before, VIEW)
        assert [text for _, _, texts in differ(world, *wanted, VIEW) for text in texts] == expected
        bring(world, *wanted, VIEW, until=until)
        bring(world, *wanted, VIEW)
        assert differ(world, *wanted, VIEW) == []
        assert world.states("s") == {"old:0": 10, "old:1": 0}


def test_a_property_of_a_sink_moves_into_its_connection() -> None:
    old = sink("PLAIN", "v").replace("properties.bootstrap.server = '127.0.0.1:9092'", f"connection = c, {ID}")
    new = old.replace(f", {ID}", "")
    assert old != new
    world = tables_world()
    bring(world, connection(), source(), VIEW, old)
    wanted = (connection(ID), source(), VIEW, new)
    assert [text for _, _, texts in differ(world, *wanted) for text in texts] == [
        "ALTER SINK k SET CONNECTION NONE",
        f"ALTER CONNECTION c SET ({ID})",
        "ALTER SINK k SET CONNECTION c",
    ]
    bring(world, *wanted)
    assert differ(world, *wanted) == []


def test_a_secret_as_a_file_differs_from_the_secret() -> None:
    def texts(tail: str) -> tuple[str, ...]:
        ca = f"properties.ssl.ca.location = SECRET pw{tail}"
        return SECRET, connection("properties.security.protocol = 'SSL'", ca), SOURCE, VIEW

    world = tables_world()
    bring(world, *texts(""))
    bring(world, *texts(" AS FILE"))
    assert differ(world, *texts(" AS FILE")) == []


def test_a_connection_that_changes_otherwise_too_is_refused_before_anything_is_detached() -> None:
    """SET CONNECTION NONE would copy the old value of the other property into the source."""
    world = tables_world()
    bring(world, connection("properties.fetch.max.bytes = '1000'"), source(ID), VIEW)
    wanted = (connection("properties.fetch.max.bytes = '2000'", ID), source(), VIEW)
    texts = [text for _, _, texts in differ(world, *wanted) for text in texts]
    assert not [text for text in texts if "SET CONNECTION NONE" in text]
    with pytest.raises(SqlError):
        bring(world, *wanted)
    assert differ(world, connection("properties.fetch.max.bytes = '1000'"), source(ID), VIEW) == []
