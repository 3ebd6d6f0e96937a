"""The generated names of the objects that a source's reader creates upstream: no statement changes them by the way."""

from __future__ import annotations

import pytest

from rw_sql.plan.deploy.changes import compare
from rw_sql.plan.deploy.folder import read_folder
from tests.plan.canned import CannedWorld
from tests.plan.tables import source, table, tables_world

MQTT = "connector = 'mqtt', url = 'tcp://broker:1883', topic = 'plant/#'"
PULSAR = "connector = 'pulsar', service.url = 'pulsar://broker:6650', topic = 'orders'"
DATABASE = "hostname = 'db', username = 'u', database.name = 'shop'"
NAMED = [(MQTT, "client_id"), (PULSAR, "subscription.name")]
"""A WITH list, and the name that it leaves out."""


def create_table(options: str, columns: str = "id INT, name VARCHAR", name: str = "t") -> str:
    return f"CREATE TABLE {name} ({columns}, PRIMARY KEY (id)) WITH ({options}) FORMAT PLAIN ENCODE JSON"


def difference(world: CannedWorld, text: str) -> list[str]:
    """The statements that make the catalog match a folder with this definition."""
    changes = compare(world.snapshot, read_folder([("a.sql", f"{text};\n")], {}))
    return [" ".join(statement.split()) for change in changes for statement in change.texts]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD COLUMN n INT",
        "ALTER TABLE t DROP COLUMN name",
        "ALTER TABLE t RENAME COLUMN name TO title",
        "ALTER TABLE t SET SOURCE_RATE_LIMIT = 10",
        "ALTER TABLE t UNSAFE SET (topic = 'other')",
        "CREATE OR REPLACE {}",
    ],
)
@pytest.mark.parametrize(("options", "key"), NAMED)
def test_a_table_s_reader_keeps_its_generated_name(options: str, key: str, statement: str) -> None:
    world = tables_world(create_table(options))
    name = dict(source(world).options)[key]
    replaced = create_table(options, "id INT, title VARCHAR FROM name, n INT").removeprefix("CREATE ")
    world.run(statement.format(replaced))
    assert dict(source(world).options)[key] == name
    world.run("ALTER TABLE t ADD COLUMN m INT", "ALTER TABLE t DROP COLUMN m", "ALTER TABLE t RENAME TO u")
    assert dict(source(world, "u").options)[key] == name


@pytest.mark.parametrize(("options", "key"), NAMED)
def test_two_tables_of_one_upstream_keep_different_names(options: str, key: str) -> None:
    world = tables_world(create_table(options), create_table(options, name="u"))
    world.run("ALTER TABLE t ADD COLUMN n INT", "ALTER TABLE u ADD COLUMN n INT")
    assert dict(source(world).options)[key] != dict(source(world, "u").options)[key]


@pytest.mark.parametrize(("options", "key"), NAMED)
def test_a_folder_without_the_name_is_no_difference(options: str, key: str) -> None:
    world = tables_world(create_table(options))
    changed = create_table(f"{options}, source_rate_limit = 200")
    assert difference(world, changed) == ["ALTER TABLE t SET SOURCE_RATE_LIMIT = 200"]
    world.run(*difference(world, changed))
    assert key in table(world).definition
    assert difference(world, changed) == []
    assert world.answers(changed.replace("CREATE", "CREATE OR REPLACE")) == [
        ("NOTHING", "it already has this definition")
    ]
    wider = create_table(f"{options}, source_rate_limit = 200", "id INT, name VARCHAR, n INT")
    assert difference(world, wider) == ["ALTER TABLE t ADD COLUMN n INT"]
    renamed = changed.replace("CREATE TABLE t", "-- rw: renamed from t\nCREATE TABLE u")
    assert difference(world, renamed) == ["ALTER TABLE t RENAME TO u"]
    own = create_table(f"{options}, source_rate_limit = 200, {key} = 'mine'")
    assert difference(world, own) == [f"ALTER TABLE t UNSAFE SET ({key} = 'mine')"]


@pytest.mark.parametrize(
    ("created", "key", "value"),
    [
        (f"CREATE SOURCE t (id INT) WITH ({MQTT}{{}}) FORMAT PLAIN ENCODE JSON", "client_id", "mine"),
        (f"CREATE SOURCE t (id INT) WITH ({PULSAR}{{}}) FORMAT PLAIN ENCODE JSON", "subscription.name", "mine"),
        (create_table(MQTT + "{}"), "client_id", "mine"),
        (f"CREATE SOURCE t WITH (connector = 'postgres-cdc', {DATABASE}{{}})", "slot.name", "mine"),
        (f"CREATE SOURCE t WITH (connector = 'postgres-cdc', {DATABASE}{{}})", "publication.name", "mine"),
        (f"CREATE SOURCE t WITH (connector = 'mysql-cdc', {DATABASE}{{}})", "server.id", "7"),
    ],
)
def test_unset_brings_the_generated_name_back(created: str, key: str, value: str) -> None:
    kind = created.split()[1]
    world = tables_world(created.format(""))
    generated = dict(source(world).options)[key]
    world.run(f"ALTER {kind} t UNSAFE SET ({key} = '{value}') ALLOW GAPS")
    assert dict(source(world).options)[key] == value
    plan = world.run(f"ALTER {kind} t UNSAFE UNSET ({key}) ALLOW GAPS")
    assert dict(source(world).options)[key] == generated
    assert plan.preview is not None
    assert plan.preview.properties == ((key, value, generated),)
