"""Connections and secrets in lowering: the objects that they affect, refusals, and no secret value in a plan."""

from __future__ import annotations

import pytest

from rw_sql.errors import SqlError
from rw_sql.model.job_specs import IngestSpec, desired_jobs
from rw_sql.plan.result.plan import Plan
from rw_sql.syntax import parse_statement
from tests.plan.canned import ELSEWHERE, HERE, CannedWorld, refused
from tests.plan.canned_inspector import CannedSecrets

VALUE = "correct horse battery staple"


def connected_world() -> CannedWorld:
    """Sources ``a`` and ``b`` on connection ``c``, ``d`` on none, a view on each; read to the middle."""
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    world.run(
        f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')",
        *(
            f"CREATE SOURCE {name} (id INT) WITH (connector = 'kafka', {where}, topic = 't') FORMAT PLAIN ENCODE JSON"
            for name, where in (
                ("a", "connection = c"),
                ("b", "connection = c"),
                ("d", f"properties.bootstrap.server = '{HERE}'"),
            )
        ),
        *(f"CREATE MATERIALIZED VIEW v{name} AS SELECT id FROM {name}" for name in "abd"),
    )
    world.moved = {"t:0": 5}
    world.read = {"t:0"}
    return world


def ingest(world: CannedWorld) -> dict[str, IngestSpec]:
    return {spec.name: spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, IngestSpec)}


def restarted(plan: Plan) -> list[str]:
    return [step.subject for step in plan.steps if step.action == "RestartJob"]


def test_one_alter_reaches_every_source_of_the_connection_and_no_other() -> None:
    world = connected_world()
    before = ingest(world)
    plan = world.run("ALTER CONNECTION c SET (properties.client.id = 'me')")
    after = ingest(world)
    assert [row.change for row in plan.changes] == ["ALTERED", "FOLLOWS", "FOLLOWS"]
    assert {name for name in before if before[name] != after[name]} == {"a", "b"}
    assert restarted(plan) == [before["a"].job, before["b"].job]
    assert not plan.is_unsafe
    assert {name: spec.definition for name, spec in after.items()} == {n: s.definition for n, s in before.items()}


def test_a_change_to_what_is_there_already_changes_nothing() -> None:
    world = connected_world()
    plan = world.run(f"ALTER CONNECTION c SET (properties.bootstrap.server = '{HERE}')")
    assert plan.operation is None
    assert [row.change for row in plan.changes] == ["NOTHING"]


def test_another_cluster_is_an_unsafe_operation() -> None:
    world = connected_world()
    world.put_topic("t", (0, 3), at=ELSEWHERE)
    plan = world.plan(f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}')")
    assert plan.is_unsafe
    assert plan.preview is not None
    assert {split.verdict for split in plan.preview.splits} == {"UNKNOWN (other cluster)"}


def test_what_one_dependent_cannot_use_changes_nothing_anywhere() -> None:
    world = connected_world()
    world.topics[ELSEWHERE, "u"] = world.topics[HERE, "t"]
    error = refused(world, f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}')")
    assert error.code == "RW402"


def test_unvalidated_a_dead_address_is_stored_as_an_unsafe_operation() -> None:
    world = connected_world()
    world.silent.add(ELSEWHERE)
    move = f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}')"
    assert refused(world, move).code == "RW401"
    assert world.run(f"{move} WITH (VALIDATE = false)").is_unsafe


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            "SET (properties.client.id = 'a'), SET (properties.client.id = 'b')",
            "properties.client.id specified more than once",
        ),
        (
            "SET (properties.client.id = 'a'), DROP (properties.client.id)",
            "cannot both SET and DROP/RESET options properties.client.id",
        ),
        (
            "RESET (properties.bootstrap.server)",
            'property "properties.bootstrap.server" is required and cannot be reset',
        ),
        ("SET (topic = 'x')", 'connections of type "kafka" have no property "topic"'),
        ("SET (type = 'jdbc')", "the type of a connection cannot change"),
        ("DROP (properties.client.id)", 'connection "c" has no property "properties.client.id" to drop'),
    ],
)
def test_changes_that_contradict(changes: str, message: str) -> None:
    assert refused(connected_world(), f"ALTER CONNECTION c {changes}").message == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("properties.bootstrap.server = 'x:1'", 'Required property "type" is not provided'),
        (
            "type = 'redis', properties.bootstrap.server = 'x:1'",
            'Connection type "redis" is not supported',
        ),
        ("type = 'datagen', datagen.seed = '1'", 'Connection type "datagen" is not supported'),
        ("type = 'kafka', connection = c", "connection reference is not allowed in options in CREATE CONNECTION"),
        ("type = 'ssh tunnel', host = 'x'", "SSH tunnels are not supported"),
        ("type = 'privatelink', host = 'x'", "PrivateLink is not supported"),
    ],
)
def test_connections_that_are_refused(options: str, message: str) -> None:
    assert refused(connected_world(), f"CREATE CONNECTION e WITH ({options})").message == message


def test_a_property_has_one_home() -> None:
    text = (
        "CREATE SOURCE e (id INT) WITH (connector = 'kafka', connection = c, topic = 't', "
        f"properties.bootstrap.server = '{HERE}') FORMAT PLAIN ENCODE JSON"
    )
    assert refused(connected_world(), text).code == "RW212"


def test_drop_names_the_users_or_takes_them_along() -> None:
    world = connected_world()
    error = refused(world, "DROP CONNECTION c")
    assert error.code == "RW306"
    assert 'source "a"' in error.message
    assert 'materialized view "vb"' in error.message
    plan = world.run("DROP CONNECTION c CASCADE")
    assert {row.object for row in plan.changes} == {"a", "b", "c", "va", "vb"}
    assert [source.name for source in world.snapshot.all("source")] == ["d"]


def secret_world() -> CannedWorld:
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    world.run(
        f"CREATE SECRET pw WITH (backend = 'meta') AS '{VALUE}'",
        f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{HERE}', "
        "properties.security.protocol = 'sasl_plaintext', properties.sasl.mechanism = 'PLAIN', "
        "properties.sasl.username = 'u', properties.sasl.password = SECRET pw)",
        "CREATE SOURCE a (id INT) WITH (connector = 'kafka', connection = c, topic = 't') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW va AS SELECT id FROM a",
    )
    return world


def test_a_new_value_restarts_the_users_of_the_secret() -> None:
    world = secret_world()
    before = ingest(world)
    plan = world.run(f"ALTER SECRET pw AS '{VALUE} 2'")
    assert restarted(plan) == [before["a"].job]
    assert ingest(world)["a"] != before["a"]


def test_no_value_is_in_a_plan() -> None:
    world = secret_world()
    for text in (f"CREATE SECRET other WITH (backend = 'meta') AS '{VALUE}'", f"ALTER SECRET pw AS '{VALUE}'"):
        plan = world.plan(text)
        assert plan.operation is not None
        assert VALUE not in repr(plan)
        assert VALUE not in plan.operation.statement
        assert VALUE not in repr([asked for asked in world.asked if asked.method != CannedSecrets.seal.__qualname__])


def test_a_secret_option_takes_no_literal() -> None:
    text = (
        f"CREATE CONNECTION e WITH (type = 'kafka', properties.bootstrap.server = '{HERE}', "
        "properties.security.protocol = 'sasl_plaintext', properties.sasl.mechanism = 'PLAIN', "
        "properties.sasl.username = 'u', properties.sasl.password = 'hunter2')"
    )
    error = refused(secret_world(), text)
    assert error.code == "RW208"
    assert "hunter2" not in error.message
    assert error.hint is not None
    assert "CREATE SECRET" in error.hint


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("WITH (backend = 'paper') AS 'x'", "secret backend 'paper' is not supported"),
        ("WITH (backend = 'env', name = 'X') AS 'x'", "credential must be null for env backend"),
        ("WITH (backend = 'file')", 'missing property "path" of backend file'),
        ("WITH (backend = SECRET pw) AS 'x'", "secret references are not allowed when creating a secret"),
        (
            "WITH (backend = 'hashicorp_vault', addr = 'http://v', path = 'p', field = 'f', auth_token = 't')",
            'property "auth_token" cannot be set here: credentials of the vault come from the environment',
        ),
        (
            "WITH (backend = 'hashicorp_vault', addr = 'http://u:pa55word@v', path = 'p', field = 'f')",
            'property "addr" must not contain a password',
        ),
        (
            "WITH (backend = 'hashicorp_vault', addr = 'https://t0ken@v', path = 'p', field = 'f')",
            'property "addr" must not contain a password',
        ),
    ],
)
def test_secrets_that_cannot_be(rest: str, message: str) -> None:
    error = refused(secret_world(), f"CREATE SECRET s {rest}")
    assert error.message == message
    assert "pa55word" not in error.render()
    assert "t0ken" not in error.render()


@pytest.mark.parametrize("name", ["pw", '"My pw"', 'raw."select"'])
def test_the_hint_for_a_secret_without_backend_creates_the_same_secret(name: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_statement(f"CREATE SECRET {name}")
    assert caught.value.hint == f"CREATE SECRET {name} WITH (backend = 'meta') AS 'the content'"
    parse_statement(caught.value.hint)


@pytest.mark.parametrize("content", ["", " AS NULL", " AS null"])
def test_a_value_kept_elsewhere_is_null(content: str) -> None:
    plan = secret_world().plan(f"CREATE SECRET s WITH (backend = 'env', name = 'X'){content}")
    assert plan.operation is not None
    assert plan.operation.statement == "CREATE SECRET s WITH (backend = 'env', name = 'X')"


def test_drop_of_a_used_secret_is_refused() -> None:
    assert refused(secret_world(), "DROP SECRET pw").code == "RW306"
