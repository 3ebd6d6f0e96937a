"""One ALTER reaches all users of a connection or a secret. A refused ALTER changes nothing, and no row is lost."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.errors import SqlError
from rw_sql.runtime.support.secrets import KEY_VARIABLE
from tests.integration.attached import produce_json, wait_until
from tests.integration.test_live_sinks import consumed
from tests.integration.world import nothing_changes
from tests.support.secured import set_scram_password

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession
    from tests.support.secured import Secured

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

DEAD = "127.0.0.1:1"


def produce(bootstrap: str, topics: list[str], ids: range) -> None:
    for topic in topics:
        produce_json(bootstrap, topic, [{"id": id_} for id_ in ids], 0)


def create_source(session: AttachedSession, name: str, topic: str, connection: str = "c") -> None:
    session.run(
        f"CREATE SOURCE {name} (id INT) WITH (connector = 'kafka', connection = {connection}, topic = '{topic}')"
        " FORMAT PLAIN ENCODE JSON",
        f"CREATE MATERIALIZED VIEW v{name} AS SELECT id FROM {name}",
    )


def runs(session: AttachedSession) -> dict[str, int | None]:
    return {name: job.run for name, job in session.jobs().items() if not name.startswith("v")}


def restarted(session: AttachedSession, before: dict[str, int | None]) -> set[str]:
    """The jobs whose run is a new one, once all run."""
    wait_until(lambda: {job.state for job in session.jobs().values()} == {"RUNNING"}, "all run")
    after = runs(session)
    return {name for name in before if before[name] != after[name]}


def refusal(session: AttachedSession, text: str) -> SqlError:
    with nothing_changes(session.warehouse), pytest.raises(SqlError) as caught:
        session.sql(text)
    return caught.value


@pytest.fixture
def secret_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(os.urandom(32)).decode())


@pytest.mark.usefixtures("secret_key")
def test_passwords_rotate_under_running_sources_and_sinks(
    session: AttachedSession, secured: Secured, topic_name: str, tmp_path: Path
) -> None:
    names = ["a", "b", "d"]
    topics = [f"{topic_name}.{name}" for name in names]
    for topic in (*topics, topic_name):
        create_topic(secured.plain, topic, 1)
    plain = [f'rotated {number}, it\'s "q" \\' for number in range(3)]
    passwords = [password.replace("'", "''") for password in plain]
    user = f"user-{topic_name}"
    set_scram_password(secured.plain, user, plain[0])

    def connection(name: str, secret: str) -> str:
        return (
            f"CREATE CONNECTION {name} WITH (type = 'kafka', properties.bootstrap.server = '{secured.by_password}',"
            " properties.security.protocol = 'sasl_ssl', properties.sasl.mechanism = 'SCRAM-SHA-512',"
            f" properties.sasl.username = '{user}', properties.sasl.password = SECRET {secret},"
            f" properties.ssl.ca.location = '{secured.authority_file}')"
        )

    session.let_no_job_rest()
    session.run(
        # Eight jobs start at once, in a Spark that may just have started itself.
        "SET statement_timeout = '120s'",
        f"CREATE SECRET pw WITH (backend = 'meta') AS '{passwords[0]}'",
        "CREATE SECRET wrong WITH (backend = 'meta') AS 'no'",
        connection("c", "pw"),
    )
    for name, topic in zip(names, topics, strict=True):
        create_source(session, name, topic)
    session.run(
        f"CREATE SINK k FROM va WITH (connector = 'kafka', connection = c, topic = '{topic_name}')"
        " FORMAT PLAIN ENCODE JSON",
        f"CREATE SINK delta FROM vb WITH (connector = 'deltalake', location = '{tmp_path / 'delta'}')",
    )
    produce(secured.plain, topics, range(10))
    session.sql("FLUSH")
    before = runs(session)

    for wrong in (
        connection("e", "wrong"),
        "ALTER SECRET pw AS 'not it'",
        "ALTER CONNECTION c SET (properties.sasl.password = SECRET wrong)",
        "ALTER CONNECTION c SET (properties.sasl.password = SECRET wrong), DROP (properties.ssl.ca.location)",
        "ALTER SOURCE a CONNECTOR WITH (properties.client.id = 'x', properties.sasl.password = SECRET wrong)",
    ):
        error = refusal(session, wrong)
        assert error.code in ("RW401", "RW212"), error
        assert "not it" not in str(error)
    assert restarted(session, before) == set()

    produce(secured.plain, topics, range(10, 20))
    set_scram_password(secured.plain, user, plain[1])
    session.run(f"ALTER SECRET pw AS '{passwords[1]}'")
    assert restarted(session, before) == {*names, "k"}
    produce(secured.plain, topics, range(20, 30))

    before = runs(session)
    set_scram_password(secured.plain, user, plain[2])
    session.run(
        f"CREATE SECRET other WITH (backend = 'meta') AS '{passwords[2]}'",
        "ALTER CONNECTION c SET (properties.sasl.password = SECRET other)",
    )
    assert restarted(session, before) == {*names, "k"}
    produce(secured.plain, topics, range(30, 40))
    session.sql("FLUSH")
    for name in names:
        assert session.rows_of(f"v{name}", "id") == [(id_,) for id_ in range(40)]
    written = DeltaTable(str(tmp_path / "delta")).to_pyarrow_table().column("id").to_pylist()
    assert sorted(written) == list(range(40))
    assert {value["id"] for _, value in consumed(secured.plain, topic_name)} == set(range(40))


def take_up(session: AttachedSession, source: str, topic: str, offset: int) -> None:
    """Makes a source continue in another cluster, at its position in the first one."""
    session.run(
        f"PAUSE SOURCE {source}",
        f"RESET SOURCE SPLITS {source} WITH (FORGET_OFFSETS = true)",
        f"INJECT SOURCE OFFSETS {source} VALUES ('{topic}:0' = {offset})",
        f"RESUME SOURCE {source}",
    )


def test_a_connection_moves_to_another_cluster_and_back_and_to_a_dead_address(
    session: AttachedSession, broker: BrokerInfo, second_broker: BrokerInfo, topic_name: str
) -> None:
    both = (broker.bootstrap, second_broker.bootstrap)
    for at in both:
        create_topic(at, topic_name, 1)
    session.run(f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{both[0]}')")
    create_source(session, "a", topic_name)

    def move(at: str, more: str = "") -> str:
        return f"ALTER CONNECTION c SET (properties.bootstrap.server = '{at}'){more}"

    def mirrored(ids: range) -> None:
        for at in both:
            produce(at, [topic_name], ids)

    mirrored(range(10))
    session.sql("FLUSH")
    assert refusal(session, move(both[1])).code == "RW303"
    session.allow_unsafe()
    rows = 10
    for at in (both[1], both[0]):
        session.sql(move(at))
        wait_until(lambda: "OTHER_CLUSTER" in session.job("a").reason, "it stands still")
        assert "UNKNOWN (other cluster)" in session.questions[-1].preview
        mirrored(range(rows, rows + 10))
        assert session.rows_of("va", "id") == [(id_,) for id_ in range(rows)]
        take_up(session, "a", topic_name, rows)
        rows += 10
        assert session.flushed_rows_of("va", "id") == [(id_,) for id_ in range(rows)]

    create_source(session, "b", topic_name)
    session.sql("FLUSH")
    assert refusal(session, move(DEAD)).code == "RW401"
    session.sql(move(DEAD, " WITH (VALIDATE = false)"))
    for source in ("a", "b"):
        assert session.job(source).state == "STALLED"
        assert DEAD in session.job(source).reason
    (shown,) = session.sql("SHOW CREATE CONNECTION c")
    assert f"properties.bootstrap.server = '{DEAD}'" in shown.create_sql
    mirrored(range(rows, rows + 10))
    session.run("ALTER SYSTEM SET enable_unsafe_ops = false", move(both[0]))
    assert session.flushed_rows_of("va", "id") == [(id_,) for id_ in range(rows + 10)]
    assert session.rows_of("vb", "id") == [(id_,) for id_ in range(rows + 10)]


def test_only_those_restart_whose_configuration_differs(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    for topic in (topic_name, f"{topic_name}.out"):
        create_topic(broker.bootstrap, topic, 1)
    at = f"properties.bootstrap.server = '{broker.bootstrap}'"
    session.let_no_job_rest()
    session.run(
        f"CREATE CONNECTION c WITH (type = 'kafka', {at})",
        f"CREATE CONNECTION e WITH (type = 'kafka', {at}, properties.client.id = 'e')",
    )
    for name, connection in (("a", "c"), ("b", "c"), ("d", "e")):
        create_source(session, name, topic_name, connection)
    session.sql(
        f"CREATE SINK k FROM va WITH (connector = 'kafka', connection = c, topic = '{topic_name}.out')"
        " FORMAT PLAIN ENCODE JSON"
    )
    produce(broker.bootstrap, [topic_name], range(5))
    session.sql("FLUSH")
    for statement, who in (
        ("ALTER CONNECTION c SET (properties.client.id = 'c')", {"a", "b", "k"}),
        ("ALTER CONNECTION c SET (properties.fetch.max.bytes = 1000000)", {"a", "b"}),
        ("ALTER CONNECTION c SET (properties.queued.min.messages = 10, properties.fetch.wait.max.ms = 1)", set()),
        ("ALTER SOURCE a SET CONNECTION e", {"a"}),
        ("ALTER SOURCE a SET CONNECTION NONE", set()),
        ("ALTER SOURCE b CONNECTOR WITH (group.id.prefix = 'mine')", {"b"}),
        ("ALTER CONNECTION e SET (properties.client.id = 'x')", {"d"}),
    ):
        before = runs(session)
        session.sql(statement)
        assert restarted(session, before) == who, statement
    produce(broker.bootstrap, [topic_name], range(5, 10))
    session.sql("FLUSH")
    for name in ("a", "b", "d"):
        assert session.rows_of(f"v{name}", "id") == [(id_,) for id_ in range(10)]
