"""Wrong statements about connections are refused with the recorded text, and do not change the catalog.

``tests/fixtures/errors/planned/*.sql``, with the errors of their statements beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import FIXTURES
from tests.plan.canned import ELSEWHERE, HERE, refusals, refused
from tests.plan.statements.connection.test_connections import connected_world
from tests.plan.tables import create_table, tables_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.plan.canned import CannedWorld

DEAD = "127.0.0.1:1"


def refusing_world() -> CannedWorld:
    """Connections of every kind, sources that use them, and an address without a server."""
    world = connected_world()
    world.put_topic("t", (0, 3), at=DEAD)
    world.put_topic("u", (0, 3), at=ELSEWHERE)

    def connection(name: str, at: str, *options: str) -> str:
        more = "".join(f", {option}" for option in options)
        return f"CREATE CONNECTION {name} WITH (type = 'kafka', properties.bootstrap.server = '{at}'{more})"

    tls = ("properties.security.protocol = 'ssl'", "properties.ssl.ca.location = '/etc/ca.pem'")
    world.run(
        connection("tls", HERE, *tls),
        connection("named", HERE, "properties.client.id = 'me'"),
        connection("elsewhere", ELSEWHERE),
        connection("lacking", ELSEWHERE, "properties.client.id = 'me'"),
        connection("dead", DEAD),
        f"CREATE SOURCE down (id INT) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = '{DEAD}')"
        " FORMAT PLAIN ENCODE JSON",
        "CREATE SOURCE named_source (id INT) WITH (connector = 'kafka', connection = named, topic = 't')"
        " FORMAT PLAIN ENCODE JSON",
        "CREATE SOURCE needy (id INT) WITH (connector = 'kafka', connection = tls, topic = 't',"
        " properties.ssl.endpoint.identification.algorithm = 'none') FORMAT PLAIN ENCODE JSON",
        "CREATE SOURCE other (id INT) WITH (connector = 'datagen')",
        "ALTER SOURCE d UNSAFE SET (properties.client.id = 'd')",
    )
    world.silent.add(DEAD)
    world.run(
        "CREATE CONNECTION pg WITH (type = 'jdbc', jdbc.url = 'jdbc:postgresql://db/shop', user = 'writer')",
        "CREATE CONNECTION lake WITH (type = 's3', s3.region = 'eu-central-1')",
        "CREATE SOURCE files (id INT) WITH (connector = 's3', connection = lake, s3.bucket_name = 'b')"
        " FORMAT PLAIN ENCODE JSON",
        "CREATE SINK k FROM va WITH (connector = 'kafka', connection = c, topic = 't') FORMAT PLAIN ENCODE JSON",
        "CREATE SINK p FROM va WITH (connector = 'jdbc', connection = pg, table.name = 't', type = 'append-only')",
        f"CREATE SINK own FROM va WITH (connector = 'kafka', properties.bootstrap.server = '{HERE}', topic = 't')"
        " FORMAT PLAIN ENCODE JSON",
    )
    return world


@pytest.mark.parametrize("path", sorted((FIXTURES / "errors" / "planned").glob("*.sql")), ids=lambda path: path.stem)
def test_refusal(path: Path, recorded: Callable[[Path, str], None]) -> None:
    world = refusing_world()
    shown = refusals(world, path)
    recorded(path.with_suffix(".txt"), "\n\n".join(shown))
    for text, statement in zip(shown, path.read_text(encoding="utf-8").strip().split("\n\n"), strict=True):
        assert "hunter2" not in text.removeprefix(statement)


def test_the_hint_for_a_table_and_a_connection_with_other_values_is_a_statement_of_tables() -> None:
    connection = f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{ELSEWHERE}')"
    world = tables_world(connection, create_table("id INT PRIMARY KEY"))
    error = refused(world, "ALTER TABLE t SET CONNECTION c")
    assert error.message == 'table "t" and connection "c" set different values of properties.bootstrap.server'
    assert error.hint == f"ALTER TABLE t UNSAFE SET (properties.bootstrap.server = '{ELSEWHERE}') first"
