"""SET CONNECTION, CONNECTOR WITH and the rules of ALTER CONNECTION in lowering: the stored options, and the jobs that
restart."""

from __future__ import annotations

import pytest

from rw_sql.connectors.registry import connector
from rw_sql.connectors.sink import SinkLook
from rw_sql.metastore.records import ConnectionRecord, SinkRecord, SourceRecord
from rw_sql.plan.lower import lower
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import UnsafeBlock
from tests.plan.canned import ELSEWHERE, HERE, CannedWorld, refused
from tests.plan.statements.connection.test_connections import connected_world, ingest, restarted

ON_THE_FLY = (
    "group.id.prefix",
    "sync.call.timeout",
    "security.protocol",
    "ssl.endpoint.identification.algorithm",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "message.max.bytes",
    "receive.message.max.bytes",
    "statistics.interval.ms",
    "client.id",
    "enable.ssl.certificate.verification",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "socket.connection.setup.timeout.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "queued.min.messages",
    "queued.max.messages.kbytes",
    "fetch.wait.max.ms",
    "fetch.queue.backoff.ms",
    "fetch.max.bytes",
    "enable.auto.commit",
    "auto.commit.interval.ms",
)
"""The options that RisingWave lets ALTER SOURCE … CONNECTOR WITH change, without ``properties.``"""


def definition(world: CannedWorld, name: str = "a", kind: str = "source") -> str:
    record = world.snapshot.find(kind, name)
    assert isinstance(record, ConnectionRecord | SourceRecord | SinkRecord)
    return " ".join(record.definition.split())


def with_connection(world: CannedWorld, name: str, at: str, *options: str) -> CannedWorld:
    more = "".join(f", {option}" for option in options)
    world.run(f"CREATE CONNECTION {name} WITH (type = 'kafka', properties.bootstrap.server = '{at}'{more})")
    return world


def test_another_connection_to_the_same_cluster_is_no_unsafe_operation() -> None:
    world = with_connection(connected_world(), "e", HERE, "properties.client.id = 'me'")
    before = ingest(world)
    plan = world.run("ALTER SOURCE a SET CONNECTION e")
    assert not plan.is_unsafe
    assert [(row.object, row.change, row.detail) for row in plan.changes] == [
        ("a", "ALTERED", "connection = e (was c)"),
        ("a", "ALTERED", "properties.client.id = me (new)"),
    ]
    assert restarted(plan) == [before["a"].job]
    assert "connection = e, topic = 't'" in definition(world)
    assert [user.name for user in world.snapshot.users_of(_id(world, "e"))] == ["a"]
    assert [user.name for user in world.snapshot.users_of(_id(world, "c"))] == ["b"]
    assert ingest(world)["a"].splits == before["a"].splits


def test_another_connection_with_the_same_properties_restarts_nothing() -> None:
    world = with_connection(connected_world(), "e", HERE)
    plan = world.run("ALTER SOURCE a SET CONNECTION e")
    assert plan.operation is not None
    assert restarted(plan) == []


def test_a_detached_source_has_the_properties_of_its_connection_and_does_not_restart() -> None:
    world = connected_world()
    before = ingest(world)
    plan = world.run("ALTER SOURCE a SET CONNECTION NONE REASON 'alone'")
    assert plan.operation is not None
    assert (plan.operation.kind, plan.operation.reason) == ("SET CONNECTION", "alone")
    assert [row.detail for row in plan.changes] == ["connection = NONE (was c)"]
    assert restarted(plan) == []
    assert ingest(world) == before
    assert f"connector = 'kafka', properties.bootstrap.server = '{HERE}', topic = 't'" in definition(world)
    world.run("DROP SOURCE b CASCADE", "DROP CONNECTION c")
    assert ingest(world)["a"] == before["a"]


def test_an_attached_source_loses_the_properties_that_its_connection_has_too() -> None:
    world = connected_world()
    before = ingest(world)
    plan = world.run("ALTER SOURCE d SET CONNECTION c")
    assert not plan.is_unsafe
    assert restarted(plan) == []
    assert ingest(world) == before
    assert "connector = 'kafka', connection = c, topic = 't'" in definition(world, "d")


def test_a_secret_is_taken_over_by_reference() -> None:
    world = connected_world()
    login = (
        "properties.security.protocol = 'sasl_plaintext', properties.sasl.mechanism = 'PLAIN', "
        "properties.sasl.username = 'u', properties.sasl.password = SECRET pw"
    )
    world.run("CREATE SECRET pw WITH (backend = 'meta') AS 'x'")
    with_connection(world, "e", HERE, login)
    world.run("ALTER SOURCE a SET CONNECTION e")
    before = ingest(world)["a"]
    world.run("ALTER SOURCE a SET CONNECTION NONE")
    assert "properties.sasl.password = SECRET pw" in definition(world)
    assert ingest(world)["a"] == before
    assert [user.name for user in world.snapshot.users_of(_id(world, "pw", "secret"))] == ["a", "e"]
    assert restarted(world.run("ALTER SECRET pw AS 'y'")) == [before.job]
    assert restarted(world.run("ALTER SOURCE a SET CONNECTION e")) == []


def test_another_cluster_is_an_unsafe_operation_and_nothing_is_continued_by_number() -> None:
    world = connected_world()
    world.put_topic("t", (0, 3), at=ELSEWHERE)
    with_connection(world, "e", ELSEWHERE)
    plan = world.run("ALTER SOURCE a SET CONNECTION e")
    assert plan.is_unsafe
    assert plan.operation is not None
    assert plan.operation.is_unsafe
    assert plan.preview is not None
    assert [(split.old, split.new, split.verdict) for split in plan.preview.splits] == [
        (5, None, "UNKNOWN (other cluster)")
    ]
    assert plan.preview.notices == ("OTHER_CLUSTER: the source stalls until RESET SOURCE SPLITS a",)
    assert {state.cluster for state in world.full_states("a").values()} == {f"cluster {HERE}"}


def test_brokers_that_do_not_report_their_cluster_may_be_others() -> None:
    world = CannedWorld()
    for at in (HERE, ELSEWHERE):
        world.put_topic("t", (0, 10), at=at, life="", cluster=" ")
    world.topics = {
        place: tuple(type(s)(split=s.split, start=s.start, end=s.end) for s in splits)
        for place, splits in world.topics.items()
    }
    with_connection(with_connection(world, "c", HERE), "e", ELSEWHERE)
    world.run(
        "CREATE SOURCE a (id INT) WITH (connector = 'kafka', connection = c, topic = 't') FORMAT PLAIN ENCODE JSON"
    )
    for statement in (
        "ALTER SOURCE a SET CONNECTION e",
        f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}')",
    ):
        plan = world.plan(statement)
        assert plan.is_unsafe
        assert plan.preview is not None
        assert "they may be another cluster" in plan.preview.notices[0]
    assert not world.plan("ALTER CONNECTION c SET (properties.client.id = 'x')").is_unsafe


@pytest.mark.parametrize(
    ("statement", "is_needed"),
    [
        (f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}')", True),
        ("ALTER SOURCE a SET CONNECTION e", True),
        ("ALTER CONNECTION c SET (properties.client.id = 'x')", False),
    ],
)
def test_a_move_by_the_connection_names_the_backfills_that_need_what_is_left(statement: str, is_needed: bool) -> None:
    world = with_connection(connected_world(), "e", ELSEWHERE)
    world.put_topic("t", (0, 9), at=ELSEWHERE)
    world.run("CREATE MATERIALIZED VIEW v AS SELECT id FROM a")
    told = "the backfill of v is not complete and needs records that the source leaves behind"
    assert told not in world.explained(statement)
    world.begin_backfill("v")
    assert (told in " ".join(world.explained(statement).split())) == is_needed


def test_a_dead_address_is_refused_or_stored_as_an_unsafe_operation() -> None:
    world = with_connection(connected_world(), "e", ELSEWHERE)
    world.silent.add(ELSEWHERE)
    assert refused(world, "ALTER SOURCE a SET CONNECTION e").code == "RW401"
    plan = world.run("ALTER SOURCE a SET CONNECTION e WITH (VALIDATE = false)")
    assert plan.is_unsafe
    assert plan.preview is not None
    assert {split.verdict for split in plan.preview.splits} == {"UNKNOWN (no answer)"}


def test_the_connection_it_has_changes_nothing() -> None:
    world = connected_world()
    for statement in ("ALTER SOURCE a SET CONNECTION c", "ALTER SOURCE d SET CONNECTION NONE"):
        assert [row.change for row in world.run(statement).changes] == ["NOTHING"]


def test_the_safe_path_changes_the_source_without_a_gate() -> None:
    world = connected_world()
    before = ingest(world)
    plan = world.run("ALTER SOURCE d CONNECTOR WITH (properties.client.id = 'me', group.id.prefix = 'p')")
    assert not plan.is_unsafe
    assert [row.detail for row in plan.changes] == ["properties.client.id = me (new)", "group.id.prefix = p (new)"]
    assert restarted(plan) == [before["d"].job]
    assert ingest(world)["d"].splits == before["d"].splits
    assert "properties.client.id = 'me', group.id.prefix = 'p'" in definition(world, "d")
    again = world.run("ALTER SOURCE d CONNECTOR WITH (properties.client.id = 'me')")
    assert [row.change for row in again.changes] == ["NOTHING"]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER SOURCE a SET CONNECTION NONE",
        "ALTER SOURCE a SET CONNECTION e",
        "ALTER SOURCE a CONNECTOR WITH (properties.client.id = 'me')",
    ],
)
def test_what_was_altered_can_be_undone(statement: str) -> None:
    world = with_connection(connected_world(), "e", HERE)
    before = definition(world), ingest(world)
    world.run(statement)
    assert definition(world) != before[0]
    world.run(f"UNDO OPERATION {world.operations[0].epoch}")
    assert (definition(world), ingest(world)) == before


def test_the_safe_path_of_a_connection_is_a_set() -> None:
    world = connected_world()
    plan = world.run("ALTER CONNECTION c CONNECTOR WITH (properties.client.id = 'me')")
    assert [row.change for row in plan.changes] == ["ALTERED", "FOLLOWS", "FOLLOWS"]
    assert not plan.is_unsafe


def test_what_may_be_altered_on_the_fly_is_what_risingwave_allows() -> None:
    options = connector("kafka").spec.options.values()
    allowed = {name if name == "group.id.prefix" else f"properties.{name}" for name in ON_THE_FLY}
    ours = {"source_rate_limit", "barrier_interval_ms", "log.retention", "log.retention.bytes", "log.max_hold"}
    assert {option.key for option in options if option.is_alterable} == allowed | ours


@pytest.mark.parametrize(
    "change",
    [
        "SET (properties.queued.min.messages = 5)",
        "SET (properties.statistics.interval.ms = 5)",
        "SET (properties.isolation.level = 'READ_COMMITTED')",
        "SET (properties.fetch.wait.max.ms = 1)",
    ],
)
def test_what_changes_no_readers_configuration_restarts_none(change: str) -> None:
    world = connected_world()
    plan = world.run(f"ALTER CONNECTION c {change}")
    assert plan.operation is not None
    assert restarted(plan) == []


def test_a_default_that_is_dropped_again_restarts_none() -> None:
    world = connected_world()
    world.run("ALTER CONNECTION c SET (properties.fetch.wait.max.ms = '1', properties.client.id = 'x')")
    before = ingest(world)
    assert restarted(world.run("ALTER CONNECTION c RESET (properties.fetch.wait.max.ms)")) == []
    assert restarted(world.run("ALTER CONNECTION c DROP (properties.client.id)")) == [
        before["a"].job,
        before["b"].job,
    ]


def test_options_that_exclude_each_other_replace_each_other() -> None:
    world = connected_world()
    world.run(
        "ALTER CONNECTION c SET (properties.security.protocol = 'ssl', properties.ssl.ca.location = '/ca.pem')",
        "ALTER CONNECTION c SET (properties.ssl.ca.pem = 'PEM')",
    )
    text = definition(world, "c", "connection")
    assert "ssl.ca.pem" in text
    assert "ssl.ca.location" not in text


def test_several_changes_are_one_operation() -> None:
    world = connected_world()
    world.run("ALTER CONNECTION c SET (properties.client.id = 'x', properties.fetch.max.bytes = 1000000)")
    plan = world.run(
        "ALTER CONNECTION c SET (properties.retry.backoff.ms = 50), DROP (properties.client.id),"
        " RESET (properties.fetch.max.bytes)"
    )
    assert plan.operation is not None
    assert plan.operation.objects == ("c", "a", "b", "va", "vb")
    assert [row.detail for row in plan.changes[:3]] == [
        "properties.client.id dropped (was x)",
        "properties.fetch.max.bytes dropped (was 1000000)",
        "properties.retry.backoff.ms = 50 (new)",
    ]


def test_if_exists_of_what_is_not_there_is_a_notice() -> None:
    plan = connected_world().run("ALTER CONNECTION IF EXISTS nowhere SET (type = 'x')")
    assert [(row.change, row.detail) for row in plan.changes] == [("NOTHING", 'connection "nowhere" does not exist')]


def test_a_property_that_one_dependent_sets_itself_changes_nothing() -> None:
    world = connected_world()
    world.run("ALTER SOURCE b UNSAFE SET (properties.client.id = 'mine')")
    error = refused(world, "ALTER CONNECTION c SET (properties.client.id = 'ours')")
    assert error.message == (
        'source "b" does not accept the change: property "properties.client.id" is set by connection "c" too'
    )


def sink_world() -> CannedWorld:
    """Like connected_world, with a Kafka sink ``k`` on connection ``c``, ``p`` on connection ``pg``, and ``own`` on
    none."""
    world = connected_world()
    world.run(
        "CREATE CONNECTION pg WITH (type = 'jdbc', jdbc.url = 'jdbc:postgresql://db/shop', user = 'writer')",
        "CREATE SINK k FROM va WITH (connector = 'kafka', connection = c, topic = 't') FORMAT PLAIN ENCODE JSON",
        "CREATE SINK p FROM va WITH (connector = 'jdbc', connection = pg, table.name = 't', type = 'append-only')",
        f"CREATE SINK own FROM va WITH (connector = 'kafka', properties.bootstrap.server = '{HERE}', topic = 't')"
        " FORMAT PLAIN ENCODE JSON",
    )
    return world


def sink_job_of(world: CannedWorld, name: str) -> str:
    return f"sink-{_id(world, name, 'sink')}"


def test_an_option_of_readers_alone_leaves_the_sink_of_the_connection_running() -> None:
    world = sink_world()
    readers = [ingest(world)[name].job for name in "ab"]
    assert restarted(world.run("ALTER CONNECTION c SET (properties.fetch.max.bytes = 1000000)")) == readers
    plan = world.run("ALTER CONNECTION c SET (properties.client.id = 'me')")
    assert restarted(plan) == [*readers, sink_job_of(world, "k")]
    assert [(row.object, row.change) for row in plan.changes[1:]] == [(name, "FOLLOWS") for name in "abk"]


def test_a_sink_swaps_attaches_and_detaches_like_a_source() -> None:
    world = with_connection(sink_world(), "e", HERE, "properties.client.id = 'me'")
    job = sink_job_of(world, "k")
    plan = world.run("ALTER SINK k SET CONNECTION e")
    assert not plan.is_unsafe
    assert restarted(plan) == [job]
    assert "connection = e" in definition(world, "k", "sink")
    assert restarted(world.run("ALTER SINK k SET CONNECTION NONE")) == []
    assert "properties.client.id = 'me'" in definition(world, "k", "sink")
    assert restarted(world.run("ALTER SINK own SET CONNECTION c")) == []
    assert [user.name for user in world.snapshot.users_of(_id(world, "c"))] == ["a", "b", "own"]


def test_a_sink_that_comes_to_another_cluster_is_an_unsafe_operation() -> None:
    world = sink_world()
    world.put_topic("t", (0, 3), at=ELSEWHERE)
    with_connection(world, "e", ELSEWHERE)
    plan = world.plan("ALTER SINK k SET CONNECTION e")
    assert plan.is_unsafe
    assert plan.preview is not None
    assert plan.preview.notices == ("OTHER_CLUSTER: the rows that the sink wrote stay in the old cluster",)
    world.run("DROP SOURCE a CASCADE", "DROP SOURCE b CASCADE")
    again = "CREATE SINK k FROM vd WITH (connector = 'kafka', connection = c, topic = 't') FORMAT PLAIN ENCODE JSON"
    world.run(again)
    plan = world.plan(f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}')")
    assert plan.is_unsafe
    assert plan.preview is not None
    assert plan.preview.notices == ("sink k: OTHER_CLUSTER: the rows that the sink wrote stay in the old cluster",)


def test_a_block_shows_what_becomes_of_a_sink() -> None:
    world = sink_world()
    world.put_topic("t", (0, 3), at=ELSEWHERE)
    with_connection(world, "e", ELSEWHERE)
    block = UnsafeBlock(statements=(parse_statement("ALTER SINK k SET CONNECTION e"),))
    plan = lower(block, world.snapshot, world.inspector)
    assert plan.preview is not None
    assert plan.preview.title.endswith("1 statements of sink k")
    assert ("connection", "c", "e") in plan.preview.properties
    assert plan.preview.notices == ("OTHER_CLUSTER: the rows that the sink wrote stay in the old cluster",)
    assert ("k", "NOTICE") in [(row.object, row.change) for row in plan.changes]
    assert plan.operation is not None
    assert plan.operation.objects == ("k",)


def test_an_undo_that_brings_a_sink_to_another_cluster_is_unsafe() -> None:
    world = sink_world()
    with_connection(world, "e", HERE)
    world.put_topic("t", (0, 3), at=ELSEWHERE)
    assert not world.run("ALTER SINK k SET CONNECTION e").is_unsafe
    swapped = world.operations[0].epoch
    assert not world.plan(f"UNDO OPERATION {swapped}").is_unsafe
    world.run(f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}') WITH (VALIDATE = false)")
    plan = world.plan(f"UNDO OPERATION {swapped}")
    assert plan.is_unsafe
    assert plan.preview is not None
    assert plan.preview.notices == ("OTHER_CLUSTER: the rows that the sink wrote stay in the old cluster",)
    assert ("properties.bootstrap.server", HERE, ELSEWHERE) in plan.preview.properties


def test_what_one_sink_cannot_use_changes_nothing_anywhere() -> None:
    world = sink_world()
    world.run("ALTER SINK k CONNECTOR WITH (properties.client.id = 'mine')")
    error = refused(world, "ALTER CONNECTION c SET (properties.client.id = 'ours')")
    assert (
        error.message
        == 'sink "k" does not accept the change: property "properties.client.id" is set by connection "c" too'
    )


def test_the_safe_path_of_a_sink() -> None:
    world = sink_world()
    plan = world.run("ALTER SINK k CONNECTOR WITH (properties.compression.codec = 'zstd')")
    assert not plan.is_unsafe
    assert restarted(plan) == [sink_job_of(world, "k")]
    assert [row.detail for row in plan.changes] == ["properties.compression.codec = zstd (new)"]


ELSEWHERE_STAY = "the rows that the sink wrote stay in the old target; the new address may be another store"


def test_a_sink_that_comes_to_another_database_is_an_unsafe_operation() -> None:
    world = sink_world()
    world.run(
        "CREATE SINK q FROM va WITH (connector = 'jdbc', jdbc.url = 'jdbc:postgresql://db/shop', user = 'writer',"
        " table.name = 't', type = 'append-only')"
    )
    for statement, other in (
        ("ALTER SINK q CONNECTOR WITH (jdbc.url = '%s')", "jdbc:postgresql://db/shop2?sslmode=require"),
        ("ALTER SINK q CONNECTOR WITH (jdbc.url = '%s')", "jdbc:postgresql://db:6432/shop"),
        ("ALTER CONNECTION pg SET (jdbc.url = '%s')", "jdbc:postgresql://other/shop"),
        ("ALTER CONNECTION pg CONNECTOR WITH (jdbc.url = '%s')", "jdbc:postgresql://db/shop2"),
    ):
        plan = world.plan(statement % other)
        assert plan.operation is not None
        assert plan.is_unsafe is plan.operation.is_unsafe is True
        assert plan.preview is not None
        assert ("jdbc.url", "jdbc:postgresql://db/shop", other) in plan.preview.properties
        name = "" if "SINK" in statement else "sink p: "
        assert plan.preview.notices == (f"{name}{ELSEWHERE_STAY}",)
        assert ELSEWHERE_STAY in plan.operation.plan
    move = "ALTER SINK q CONNECTOR WITH (jdbc.url = 'jdbc:postgresql://other/shop')"
    plan = lower(UnsafeBlock(statements=(parse_statement(move),)), world.snapshot, world.inspector)
    assert ("q", "NOTICE", ELSEWHERE_STAY) in [(row.object, row.change, row.detail) for row in plan.changes]
    # Parameters of the URL and the login do not lead elsewhere, and an undo of such a change does not either.
    plan = world.run(
        "ALTER SINK q CONNECTOR WITH (jdbc.url = 'jdbc:postgresql://db/shop?sslmode=require', user = 'other')"
    )
    assert not plan.is_unsafe
    assert not world.plan(f"UNDO OPERATION {world.operations[0].epoch}").is_unsafe
    world.run(move)
    assert world.plan(f"UNDO OPERATION {world.operations[0].epoch}").is_unsafe


def test_a_databases_connection_may_change_its_login_at_any_time() -> None:
    world = sink_world()
    plan = world.run("ALTER CONNECTION pg SET (jdbc.url = 'jdbc:postgresql://db/shop?sslmode=require'), DROP (user)")
    assert not plan.is_unsafe
    assert restarted(plan) == [sink_job_of(world, "p")]
    assert [row.change for row in plan.changes] == ["ALTERED", "ALTERED", "FOLLOWS"]
    world.target = SinkLook(error="other:5432: it does not answer")
    assert refused(world, "ALTER CONNECTION pg SET (user = 'x')").code == "RW401"
    assert refused(world, "VALIDATE CONNECTION pg").code == "RW401"
    world.run("ALTER CONNECTION pg SET (user = 'x') WITH (VALIDATE = false)")


def test_a_source_of_files_takes_its_store_from_a_connection() -> None:
    world = CannedWorld()
    lake = "s3.region = 'eu', s3.endpoint = 'http://minio:9000', s3.access.key = 'reader', s3.secret.key = SECRET key"
    world.run(
        "CREATE SECRET key WITH (backend = 'meta') AS 'x'",
        f"CREATE CONNECTION lake WITH (type = 's3', {lake})",
        "CREATE SOURCE f (id INT) WITH (connector = 's3', connection = lake, s3.bucket_name = 'b')"
        " FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM f",
    )
    before = ingest(world)["f"]
    assert {key: value for key, value in before.options if isinstance(value, str)} == {
        "s3.region_name": "eu",
        "s3.endpoint_url": "http://minio:9000",
        "s3.credentials.access": "reader",
        "s3.bucket_name": "b",
    }
    assert restarted(world.run("ALTER SOURCE f SET CONNECTION NONE")) == []
    assert "s3.region_name = 'eu', s3.endpoint_url = 'http://minio:9000'" in definition(world, "f")
    assert "s3.credentials.secret = SECRET key" in definition(world, "f")
    assert restarted(world.run("ALTER SOURCE f SET CONNECTION lake")) == []
    assert "connector = 's3', connection = lake, s3.bucket_name = 'b'" in definition(world, "f")
    assert ingest(world)["f"] == before
    assert restarted(world.run("ALTER SECRET key AS 'y'")) == [before.job]
    plan = world.run("ALTER CONNECTION lake SET (s3.access.key = 'other')")
    assert not plan.is_unsafe
    assert restarted(plan) == [before.job]


def _id(world: CannedWorld, name: str, kind: str = "connection") -> int:
    record = world.snapshot.find(kind, name)
    assert record is not None
    return record.id
