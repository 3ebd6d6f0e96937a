"""The place of the caret if an upstream or target is unreachable or lacks a named object, and the hint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.base import Upstream
from rw_sql.connectors.connection_types import connection_types
from rw_sql.connectors.registry import connector, connector_names, sink_connector, sink_connector_names
from rw_sql.connectors.sink import SinkLook
from rw_sql.connectors.spec import load_spec
from rw_sql.errors import SqlError
from rw_sql.plan.checks.upstreams import STORED_IN_LIST, no_answer, require_target, require_upstream
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateConnection, CreateSink, CreateSource
from tests.conftest import FIXTURES, rendered
from tests.plan.canned import HERE, CannedWorld, refused
from tests.plan.canned_inspector import CannedUpstreams

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOURCE = (
    "CREATE SOURCE s (id INT)\nWITH (connector = 'kafka', topic = 'orders, ordrs',\n"
    "      properties.bootstrap.server = '127.0.0.1:9999')\nFORMAT PLAIN ENCODE JSON"
)
OVER_CONNECTION = (
    "CREATE SOURCE s (id INT) WITH (connector = 'kafka', connection = c, topic = 'orders') FORMAT PLAIN ENCODE JSON"
)
SINK = "CREATE SINK k FROM m WITH (connector = 'kafka', topic = 'ordrs', properties.bootstrap.server = 'b:9092')"
SINK_OVER_CONNECTION = "CREATE SINK k FROM m WITH (connector = 'kafka', connection = c, topic = 'orders')"
CONNECTION = "CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = 'no-such-host.invalid:9092')"
LOGIN = "CREATE CONNECTION c WITH (type = 'kafka', properties.sasl.password = SECRET s)"
REFUSED = "127.0.0.1:9999/bootstrap: Connect to ipv4#127.0.0.1:9999 failed: Connection refused"
REFUSED_ELSEWHERE = "127.0.0.1:9999/1: Connect to ipv4#127.0.0.1:9999 failed: Connection refused"
"""The reason if the bootstrap server answers, and names this address for broker 1."""
PASSWORD, PROTOCOL = "properties.sasl.password", "properties.security.protocol"
LINE_END, ON_ONE_LINE = f'property "{PASSWORD}" contains a line break', "ALTER SECRET a_secret AS '…', on one line"
"""The error and hint for a value that Kafka's clients refuse before they ask a broker."""
UNKNOWN_HOST = (
    "no-such-host.invalid:9092/bootstrap: Failed to resolve 'no-such-host.invalid:9092': Name or service not known"
)


CAPTURED = "CREATE SOURCE s WITH (connector = 'postgres-cdc', connection = pg, database.name = 'd')"
NO_LOGIN = 'password authentication failed for user "u"'
REFUSED_LOGIN = Upstream(error=NO_LOGIN)
NATS = (
    "CREATE SOURCE s (id INT) WITH (connector = 'nats', server_url = 'nats://h:4222', stream = 'o', subject = 'o') "
    "FORMAT PLAIN ENCODE JSON"
)
CATALOG = (
    "CREATE SOURCE s WITH (connector = 'iceberg', warehouse.path = 's3://lake/w', s3.endpoint = 'http://minio:9000', "
    "catalog.type = 'rest', catalog.uri = 'http://rest:8181', table.name = 't')"
)
BUCKET = (
    "CREATE SOURCE s (id INT) WITH (connector = 's3', s3.bucket_name = 'b', s3.region_name = 'eu-north-1') "
    "FORMAT PLAIN ENCODE JSON"
)
NO_BUCKET = 'b: Could not connect to the endpoint URL: "https://b.s3.eu-north-1.amazonaws.com/"'
STREAM = (
    "CREATE SOURCE s (id INT) WITH (connector = 'kinesis', stream = 's', aws.region = 'eu-nor-1') "
    "FORMAT PLAIN ENCODE JSON"
)
NO_KINESIS = 'Could not connect to the endpoint URL: "https://kinesis.eu-nor-1.amazonaws.com/"'
SHARED = parse_statement("CREATE CONNECTION c WITH (type = 'kafka', properties.sasl.password = SECRET kafka_pw)")


def require(text: str, look: Upstream | SinkLook) -> None:
    statement = parse_statement(text)
    assert isinstance(statement, CreateSource | CreateSink | CreateConnection)
    name, span, options = statement.name.last, statement.name.span, statement.options
    assert isinstance(SHARED, CreateConnection)
    shared = SHARED.options if look.refused_key is not None and "connection = c" in text else ()
    if isinstance(look, SinkLook):
        require_target(look, name, span, options=options, stored=STORED_IN_LIST, is_new=True, definition=shared)
    else:
        is_connection = isinstance(statement, CreateConnection)
        kind, stored = ("connection", STORED_IN_LIST) if is_connection else ("source", "")
        require_upstream(look, name, span, kind=kind, options=options, stored=stored, is_new=True, definition=shared)


def refusal(text: str, look: Upstream | SinkLook) -> SqlError:
    with pytest.raises(SqlError) as caught:
        require(text, look)
    return caught.value.located(text)


def test_the_caret_points_at_the_fault(recorded: Callable[[Path, str], None]) -> None:
    looks: tuple[tuple[str, Upstream | SinkLook], ...] = (
        (SOURCE, Upstream(missing=("ordrs",), present=("customers", "orders", "orders_big"))),
        (SOURCE, Upstream(missing=("ordrs",), present=("customers", "orders_big", "ordr"))),
        (SOURCE, Upstream(missing=("ordrs",))),
        (SOURCE, Upstream(error=REFUSED)),
        (OVER_CONNECTION, Upstream(error="b:9092: no answer within 8 s")),
        (OVER_CONNECTION, Upstream(error=REFUSED_ELSEWHERE)),
        (SINK, SinkLook(missing='topic "ordrs"', named="ordrs", hint='did you mean "orders"?')),
        (SINK, SinkLook(error=REFUSED.replace("127.0.0.1:9999", "b:9092"))),
        (SINK, SinkLook(error=REFUSED_ELSEWHERE)),
        (OVER_CONNECTION, Upstream(error=LINE_END, refused_key=PASSWORD, hint=ON_ONE_LINE)),
        (LOGIN, Upstream(error=LINE_END, refused_key=PASSWORD, hint=ON_ONE_LINE)),
        (SINK_OVER_CONNECTION, SinkLook(error=LINE_END, refused_key=PASSWORD, hint=ON_ONE_LINE)),
        (CONNECTION, Upstream(error=UNKNOWN_HOST)),
        (CAPTURED, Upstream(error=NO_LOGIN)),
        (CAPTURED.replace("connection = pg", "hostname = 'h', username = 'u', password = SECRET pw"), REFUSED_LOGIN),
        (CAPTURED.replace("connection = pg", "connection = \"Pg\", username = 'u'"), REFUSED_LOGIN),
        (NATS, Upstream(error="nats://h:4222: no answer within 8 s")),
        (NATS, Upstream(error="nats: 'Authorization Violation'")),
        (NATS.replace("//h", "//ann:x@h"), Upstream(error="nats: 'Authorization Violation'")),
        (CATALOG, Upstream(error="http://rest:8181/v1/config: connection refused")),
        (CATALOG, Upstream(error="http://minio:9000: connection refused")),
        (BUCKET, Upstream(error=NO_BUCKET)),
        (STREAM, Upstream(error=NO_KINESIS)),
        (SOURCE.replace("orders, ", ""), Upstream(missing=("ordrs",))),
    )
    told = [f"{text}\n\n{rendered(refusal(text, look))}" for text, look in looks]
    recorded(FIXTURES / "mistakes" / "upstreams.txt", "\n\n".join(told))


def hint_of(key: str, reason: str) -> str:
    """The hint of CREATE SOURCE for a source that has only this property."""
    statement = parse_statement(
        f"CREATE SOURCE s (id INT) WITH (connector = 'x', {key} = 'v') FORMAT PLAIN ENCODE JSON"
    )
    assert isinstance(statement, CreateSource)
    return no_answer("it", reason, statement.name.span, options=statement.options).hint or ""


ADDRESSES = (
    "azblob.endpoint_url", "catalog.uri", "delta.path", "endpoint", "fs.path", "gcs.endpoint_url", "hostname",
    "jdbc.url", "location", "posix_fs.root", "properties.bootstrap.server", "s3.endpoint", "s3.endpoint_url",
    "schema.registry", "server_url", "service.url", "url", "warehouse.path",
)  # fmt: skip


def options_of_all_connectors() -> dict[str, bool]:
    """The properties of all connectors and of the schema registry; True for those that are secret."""
    specs = [connector(name).spec for name in connector_names()]
    specs += [sink_connector(name).spec for name in sink_connector_names()]
    specs += [load_spec("schema_registry")]
    return {key: option.is_secret for spec in specs for key, option in spec.options.items() if "*" not in key}


@pytest.mark.parametrize("key", ADDRESSES)
def test_the_hint_of_a_server_that_does_not_answer_names_the_property_with_the_address(key: str) -> None:
    assert key in options_of_all_connectors()
    assert f"{key} = '…'" in hint_of(key, "connection refused")


def test_no_other_property_counts_as_an_address() -> None:
    others = {key for key in options_of_all_connectors() if key not in ADDRESSES}
    assert {key for key in others if f"{key} = '…'" in hint_of(key, "connection refused")} == set()


def test_the_hint_of_a_refused_login_names_every_property_that_is_secret() -> None:
    secret = {key for key, is_secret in options_of_all_connectors().items() if is_secret and ".ssl." not in key}
    assert {key for key in secret if key not in hint_of(key, "access denied")} == set()


def test_a_stored_source_is_named_by_its_connection_if_it_has_one() -> None:
    statement = parse_statement(CAPTURED)
    assert isinstance(statement, CreateSource)
    span, named = statement.name.span, "SHOW CREATE SOURCE s"
    for reason in ("connection refused", NO_LOGIN):
        stored = no_answer("it", reason, span, otherwise=named, definition=statement.options).hint or ""
        assert "SHOW CREATE CONNECTION pg shows" in stored
        assert named in (no_answer("it", reason, span, otherwise=named).hint or "")


@pytest.mark.parametrize(
    ("properties", "reason", "key"),
    [
        (
            "warehouse.path = 's3://iceberg/wh', catalog.uri = 'http://iceberg-rest:8181'",
            "http://iceberg-rest:8181/v1/config: connection refused",
            "catalog.uri",
        ),
        (
            "warehouse.path = 's3://rest/wh', s3.endpoint = 'http://minio:9000', catalog.uri = 'http://rest:8181'",
            "http://rest:8181/v1/config: connection refused",
            "catalog.uri",
        ),
        (
            "s3.endpoint = 'http://lake', catalog.uri = 'http://lake:8181'",
            "http://lake:8181/v1/config: connection refused",
            "catalog.uri",
        ),
        (
            "s3.endpoint = 'http://lake:81', catalog.uri = 'http://lake:8181'",
            "http://lake:8181/v1/config: connection refused",
            "catalog.uri",
        ),
        (
            "s3.endpoint = 'http://minio:9000', catalog.uri = 'http://Rest:8181'",
            "no connection to rest:8181.",
            "catalog.uri",
        ),
        (
            "warehouse.path = 's3://lake/wh', catalog.uri = 'http://rest:8181'",
            "bucket lake does not exist",
            "warehouse.path",
        ),
    ],
)
def test_the_address_is_the_server_whose_whole_host_the_reason_names(properties: str, reason: str, key: str) -> None:
    text = f"CREATE SOURCE s WITH (connector = 'iceberg', {properties}, catalog.type = 'rest', table.name = 't')"
    assert f"{key} = '…'" in (refusal(text, Upstream(error=reason)).hint or "")


@pytest.mark.parametrize(
    ("properties", "secret"),
    [
        ("username = SECRET who, password = SECRET pw", "pw"),
        ("properties.sasl.username = SECRET who, properties.sasl.password = SECRET pw", "pw"),
        ("s3.access.key = SECRET who, s3.secret.key = SECRET pw", "pw"),
        ("username = SECRET who, password = 'x'", "who"),
    ],
)
def test_the_hint_of_a_refused_login_changes_the_secret_of_the_password(properties: str, secret: str) -> None:
    statement = parse_statement(
        f"CREATE SOURCE s (id INT) WITH (connector = 'x', {properties}) FORMAT PLAIN ENCODE JSON"
    )
    assert isinstance(statement, CreateSource)
    hint = no_answer("it", "access denied", statement.name.span, options=statement.options).hint or ""
    assert f"ALTER SECRET {secret} AS" in hint


CREATES = (
    *(f"CREATE SINK k FROM m WITH (connector = '{name}')" for name in sink_connector_names()),
    *(f"CREATE CONNECTION c WITH (type = '{kind}')" for kind in connection_types()),
    *(
        f"CREATE SOURCE s (id INT) WITH (connector = '{name}') FORMAT PLAIN ENCODE JSON"
        for name in connector_names()
        if "-cdc" not in name and name != "iceberg"
    ),
)


@pytest.mark.parametrize("text", CREATES)
def test_the_hint_for_a_missing_login_names_properties_of_the_connector(text: str) -> None:
    hint = (refusal(text, Upstream(error="access denied")).hint or "").partition(";")[0]
    known, added = options_of_all_connectors(), re.findall(r"([\w.]+) = (SECRET)?", hint)
    assert [(key, known[key]) for key, _ in added] == [(key, bool(secret)) for key, secret in added]


@pytest.mark.parametrize(
    ("properties", "login"),
    [
        (
            "connector = 'kafka', topic = 't'",
            "add properties.security.protocol = 'sasl_ssl', properties.sasl.mechanism = 'PLAIN', "
            "properties.sasl.username = '…', properties.sasl.password = SECRET a_secret",
        ),
        (
            "connector = 'kafka', properties.security.protocol = 'ssl', properties.sasl.mechanism = 'PLAIN'",
            "write properties.security.protocol = 'sasl_ssl', properties.sasl.username = '…', "
            "properties.sasl.password = SECRET a_secret",
        ),
        ("connector = 's3'", "add s3.credentials.access = '…', s3.credentials.secret = SECRET a_secret"),
        ("connector = 'pulsar'", "add auth.token = SECRET a_secret"),
        ("connector = 'mqtt'", "add username = '…', password = SECRET a_secret"),
        (
            "connector = 'posix_fs'",
            "give this process the rights that it needs: connector 'posix_fs' has no property for a login",
        ),
        ("connector = 'x'", "add the login to the WITH list"),
    ],
)
def test_the_hint_for_a_missing_login_has_all_of_its_properties(properties: str, login: str) -> None:
    text = f"CREATE SOURCE s (id INT) WITH ({properties}) FORMAT PLAIN ENCODE JSON"
    error = refusal(text, Upstream(error="access denied"))
    assert error.hint == login
    assert "refuses access, and the statement has no login" in error.message


def test_a_certificate_is_a_login() -> None:
    given = "properties.security.protocol = 'ssl', properties.ssl.certificate.location = '/c.pem'"
    text = f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', {given}) FORMAT PLAIN ENCODE JSON"
    error = refusal(text, Upstream(error="Topic authorization failed"))
    assert error.hint == "correct the login in properties.ssl.certificate.location"
    assert "refuses the login" in error.message


def test_a_refused_user_comes_before_the_certificate() -> None:
    certificate = "properties.ssl.certificate.location = '/c.pem', properties.ssl.key.password = SECRET of_key"
    given = f"{certificate}, properties.sasl.username = 'u', properties.sasl.password = SECRET pw"
    text = f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', {given}) FORMAT PLAIN ENCODE JSON"
    error = refusal(text, Upstream(error="SASL authentication failed"))
    assert error.hint == (
        "correct the login in properties.sasl.username and properties.sasl.password and "
        "properties.ssl.certificate.location and properties.ssl.key.password; ALTER SECRET pw AS '…' changes the secret"
    )


def test_the_check_of_the_servers_certificate_is_no_login() -> None:
    given = "properties.security.protocol = 'ssl', properties.enable.ssl.certificate.verification = 'false'"
    text = f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', {given}) FORMAT PLAIN ENCODE JSON"
    error = refusal(text, Upstream(error="Topic authorization failed"))
    assert "refuses access, and the statement has no login" in error.message


@pytest.mark.parametrize(
    ("uri", "login"),
    [
        ("jdbc:sqlite:/c.db", "add s3.access.key = '…', s3.secret.key = SECRET a_secret"),
        ("jdbc:postgresql://h/d", "add catalog.jdbc.user = '…', catalog.jdbc.password = SECRET a_secret"),
    ],
)
def test_a_catalog_in_a_database_takes_no_token(uri: str, login: str) -> None:
    text = f"CREATE SOURCE s (id INT) WITH (connector = 'iceberg', catalog.type = 'jdbc', catalog.uri = '{uri}')"
    assert refusal(text, Upstream(error="access denied")).hint == login


@pytest.mark.parametrize(
    ("login", "hint"),
    [
        (
            "username = 'u', password = SECRET pw",
            "correct the login of connection pg: ALTER CONNECTION pg SET (username = '…') changes it; "
            "ALTER SECRET pw AS '…' changes the secret",
        ),
        ("password = SECRET pw", "correct the login of connection pg; ALTER SECRET pw AS '…' changes the secret"),
        (
            "hostname = 'h'",
            "correct the login: SHOW CREATE CONNECTION pg shows the login, and ALTER CONNECTION pg SET (…) changes it",
        ),
    ],
)
def test_the_hint_of_a_refused_login_names_the_properties_of_the_connection(login: str, hint: str) -> None:
    statement = parse_statement(CAPTURED)
    shared = parse_statement(f"CREATE CONNECTION pg WITH (type = 'postgres', {login})")
    assert isinstance(statement, CreateSource)
    assert isinstance(shared, CreateConnection)
    error = no_answer("it", NO_LOGIN, statement.name.span, options=statement.options, definition=shared.options)
    assert error.hint == hint


def test_the_secret_of_a_stored_source_is_shown_by_its_connection() -> None:
    statement = parse_statement(OVER_CONNECTION)
    assert isinstance(statement, CreateSource)
    look = Upstream(error=LINE_END, refused_key=PASSWORD, hint=ON_ONE_LINE)
    with pytest.raises(SqlError) as caught:
        require_upstream(look, "s", statement.name.span, definition=statement.options)
    shown = "SHOW CREATE CONNECTION c shows the secret's name; then ALTER SECRET that_secret AS '…', on one line"
    assert (caught.value.hint, caught.value.span) == (shown, statement.name.span)


def test_create_names_the_secret_in_the_definition_of_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    world = CannedWorld(target=SinkLook(error=LINE_END, refused_key=PASSWORD, hint=ON_ONE_LINE))
    world.put_topic("orders", (0, 10))
    read = "WITH (connector = 'kafka', connection = c, topic = 'orders') FORMAT PLAIN ENCODE JSON"
    login = f"{PROTOCOL} = 'sasl_ssl', properties.sasl.mechanism = 'PLAIN', properties.sasl.username = 'u'"
    shared = f"type = 'kafka', properties.bootstrap.server = '{HERE}', {login}, {PASSWORD} = SECRET kafka_pw"
    world.run(
        "CREATE SECRET kafka_pw WITH (backend = 'meta') AS 'x'",
        f"CREATE CONNECTION c WITH ({shared})",
        f"CREATE SOURCE o (id INT) {read}",
    )
    assert refused(world, f"CREATE SINK k FROM o {read}").hint == "ALTER SECRET kafka_pw AS '…', on one line"
    look = Upstream(error=LINE_END, refused_key=PASSWORD, hint=ON_ONE_LINE)
    monkeypatch.setattr(CannedUpstreams, "look", lambda *_, **__: look)
    assert refused(world, OVER_CONNECTION).hint == "ALTER SECRET kafka_pw AS '…', on one line"
