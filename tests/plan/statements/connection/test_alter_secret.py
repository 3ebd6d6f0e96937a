"""ALTER SECRET tries the new value where the secret is used."""

from __future__ import annotations

import pytest

from tests.plan.canned import refused
from tests.plan.canned_inspector import CannedUpstreams
from tests.plan.statements.source.test_schema_registry import ORDER, REGISTRY, of, record, world_with

LOGIN = f"{REGISTRY}, schema.registry.username = 'me', schema.registry.password = SECRET pw"
CONNECTION = f"CREATE CONNECTION r WITH (type = 'schema_registry', {LOGIN})"


@pytest.mark.parametrize(
    ("statements", "user"),
    [
        ((f"CREATE SOURCE s {of(options=LOGIN)}",), ("source", "s")),
        ((CONNECTION,), ("connection", "r")),
        ((CONNECTION, f"CREATE SOURCE s {of(options='connection = r')}"), ("connection", "r")),
        (
            (
                f"CREATE SOURCE s {of()}",
                "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
                f"CREATE SINK k FROM v {of(options=LOGIN)}",
            ),
            ("sink", "k"),
        ),
    ],
    ids=["a source", "a connection", "a source with a connection", "a sink"],
)
def test_a_login_that_the_registry_refuses_is_not_stored(statements: tuple[str, ...], user: tuple[str, str]) -> None:
    world = world_with(value=record(ORDER))
    world.run("CREATE SECRET pw WITH (backend = 'meta') AS 'one'", *statements)
    world.registry_error = "401 Unauthorized"
    error = refused(world, "ALTER SECRET pw AS 'two'")
    kind, name = user
    assert error.code == "RW401"
    assert error.message.startswith(f'the schema registry of {kind} "{name}" ')
    assert f"SHOW CREATE {kind.upper()} {name}" in (error.hint or "")
    (asked,) = [call for call in world.asked_of(CannedUpstreams.registry_error) if call["candidates"]]
    assert [secret.name for secret in asked["candidates"]] == ["pw"]
    world.registry_error = None
    world.run("ALTER SECRET pw AS 'two'")


def test_a_registry_without_the_secret_is_not_asked() -> None:
    world = world_with(value=record(ORDER))
    world.run("CREATE SECRET pw WITH (backend = 'meta') AS 'one'", f"CREATE SOURCE s {of()}")
    world.registry_error = "401 Unauthorized"
    world.run("ALTER SECRET pw AS 'two'")
