"""The options that connectors accept: specs, their faults and hints, and the registry."""

from __future__ import annotations

import pytest

from rw_sql.assets import list_assets
from rw_sql.connectors.connection_types import REGISTRY
from rw_sql.connectors.registry import connector, connector_names, sink_connector, sink_connector_names
from rw_sql.connectors.spec import (
    SINK_SUFFIX,
    OptionError,
    check_format,
    check_include,
    check_option_values,
    duration_seconds,
    find_option_errors,
    load_sink_spec,
    load_spec,
    parse_spec,
)
from rw_sql.errors import Span, SqlError

KAFKA = {"properties.bootstrap.server": "localhost:9092", "topic": "orders"}


def test_every_spec_file_is_a_connector_and_every_connector_has_one() -> None:
    files = list_assets("sources", ".toml")
    sinks = [name for name in files if name.endswith(SINK_SUFFIX)]
    # The options of a schema registry are those of a connection and of FORMAT … ENCODE ….
    names = (name.removesuffix(".toml") for name in files if name not in sinks)
    assert tuple(name for name in names if name != REGISTRY) == connector_names()
    assert tuple(name.removesuffix(SINK_SUFFIX) for name in sinks) == sink_connector_names()
    for name in sink_connector_names():
        assert sink_connector(name).spec is load_sink_spec(name)
    for name in connector_names():
        assert connector(name).spec.name == name
        assert connector(name).is_shareable() is load_spec(name).is_shareable


def test_unknown_connector_lists_those_there_are() -> None:
    with pytest.raises(SqlError) as caught:
        connector("kafak", span=Span(3, 8, 1, 4))
    assert caught.value.code == "RW301"
    assert caught.value.message == f'connector "kafak" is not supported, accept [{", ".join(connector_names())}]'
    assert caught.value.hint == "did you mean 'kafka'?"
    assert caught.value.column == 4


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("properties.bootstrap.servers", "properties.bootstrap.server"),
        ("bootstrap.servers", "properties.bootstrap.server"),
        ("kafka.brokers", "properties.bootstrap.server"),
        ("sasl.password", "properties.sasl.password"),
        ("topics", "topic"),
        ("startingOffsets", "scan.startup.mode"),
        ("scan.startup.mod", "scan.startup.mode"),
        ("properties.fetch.max.wait.ms", "properties.fetch.wait.max.ms"),
    ],
)
def test_unknown_property_of_kafka_names_the_near_one_first(written: str, meant: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_option_values(load_spec("kafka"), {**KAFKA, written: "x"}, {written: Span(7, 9, 2, 3)})
    error = caught.value
    assert (error.code, error.key, error.line, error.column) == ("RW204", written, 2, 3)
    assert error.message == f'connector "kafka" has no property "{written}"'
    assert error.hint is not None
    assert error.hint.startswith(f'did you mean "{meant}"')


def test_unknown_property_of_a_pattern_is_filled_in() -> None:
    spec = load_spec("datagen")
    assert spec.near("fields.v1.knd")[0] == "fields.v1.kind"
    assert spec.near("fields.a.b.lenght")[0] == "fields.a.b.length"
    assert spec.near("rows-per-second") == ["datagen.rows.per.second"]


def test_property_without_a_near_name_lists_what_is_accepted() -> None:
    with pytest.raises(OptionError) as caught:
        check_option_values(load_spec("kafka"), {**KAFKA, "zzz": "x"})
    assert caught.value.hint is not None
    assert caught.value.hint.startswith('omit "zzz"; the properties are properties.bootstrap.server, topic')


def test_missing_property_says_how_to_give_it() -> None:
    with pytest.raises(OptionError) as caught:
        check_option_values(load_spec("kafka"), {"properties.bootstrap.server": "localhost:9092"})
    assert caught.value.render() == (
        'RW207: missing property "topic"\n'
        "HINT: add topic = '…' to WITH: The topic to read, or several separated by commas."
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("scan.startup.mode", "newest", "must be earliest, latest or timestamp, but is 'newest'"),
        ("scan.startup.timestamp.millis", "-1", "must be a whole number, at least 0, not '-1'"),
        ("scan.startup.timestamp.millis", "1e3", "must be a whole number, at least 0, not '1e3'"),
        ("properties.fetch.wait.max.ms", "300001", "must be a whole number from 0 to 300000, not '300001'"),
        ("properties.sync.call.timeout", "soon", "must be a duration such as 10s or 500ms from 0.1 to 600, not 'soon'"),
        ("properties.enable.auto.commit", "yes", "must be true or false, but is 'yes'"),
        ("topic", " ", "must be a string that is not empty, not ' '"),
    ],
)
def test_invalid_value_names_the_key_and_what_is_wanted(key: str, value: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_option_values(load_spec("kafka"), {**KAFKA, key: value})
    assert (caught.value.code, caught.value.key) == ("RW208", key)
    assert caught.value.message == f'property "{key}" {message}'


def test_all_faults_are_found_in_order() -> None:
    errors = find_option_errors(load_spec("kafka"), {"topics": "a", "scan.startup.mode": "no"})
    assert [(error.code, error.key) for error in errors] == [
        ("RW204", "topics"),
        ("RW207", "properties.bootstrap.server"),
        ("RW207", "topic"),
        ("RW208", "scan.startup.mode"),
    ]


def test_a_secret_s_value_is_never_shown() -> None:
    spec = load_spec("kafka")
    error = find_option_errors(spec, {**KAFKA, "properties.ssl.key.password": ""})[0]
    assert error.message == 'property "properties.ssl.key.password" must be a string that is not empty'
    secrets = {key for key, option in spec.options.items() if option.is_secret}
    assert secrets == {"properties.ssl.key.pem", "properties.ssl.key.password", "properties.sasl.password"}


def test_alterable_options_of_kafka_are_those_of_risingwave() -> None:
    alterable = {key for key, option in load_spec("kafka").options.items() if option.is_alterable}
    for fixed in ("properties.bootstrap.server", "topic", "scan.startup.mode", "scan.startup.timestamp.millis"):
        assert fixed not in alterable
    for free in ("group.id.prefix", "properties.sasl.password", "properties.fetch.wait.max.ms", "properties.client.id"):
        assert free in alterable


def test_formats_and_includes() -> None:
    kafka = load_spec("kafka")
    check_format(kafka, "plain", "json")
    with pytest.raises(SqlError, match=r'connector "kafka" does not support format NATIVE'):
        check_format(kafka, "NATIVE", "NATIVE")
    with pytest.raises(SqlError, match=r'connector "kafka" does not support format PLAIN with encode PARQUET'):
        check_format(kafka, "PLAIN", "PARQUET")
    assert check_include(kafka, "KEY").type == "BYTEA"
    with pytest.raises(SqlError, match="does not support INCLUDE key"):
        check_include(load_spec("datagen"), "key")
    assert kafka.include_name("key") == "_rw_kafka_key"
    assert kafka.include_name("header", "Trace", "bytea") == "_rw_kafka_header_trace_bytea"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10),
        ("500ms", 0.5),
        ("1 min", 60),
        ("2h", 7200),
        ("1 day", 86400),
        ("5", 5),
        ("x", None),
        ("1 fort", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration_seconds(text) == seconds


def test_a_spec_of_one_s_own() -> None:
    text = """
    name = "mine"
    doc = "Mine."
    shareable = false
    [formats]
    PLAIN = ["JSON"]
    [options.url]
    doc = "Where."
    required = true
    """
    spec = parse_spec(text)
    assert spec.option("url") is not None
    assert spec.default_format is None
    with pytest.raises(ValueError, match="unknown words: requird"):
        parse_spec(text + "requird = true\n")
    with pytest.raises(ValueError, match="unknown type"):
        parse_spec(text + 'type = "numbr"\n')


@pytest.mark.parametrize("name", ["kafka", "datagen"])
def test_defaults_fit_their_own_options(name: str) -> None:
    for option in load_spec(name).options.values():
        assert option.doc.endswith("."), option.key
        assert option.default is None or option.fault(option.default) is None, option.key
        assert not (option.is_required and option.default), option.key


@pytest.mark.parametrize(
    ("name", "advised"),
    [
        ("sqlserver-cdc", "FORMAT DEBEZIUM"),
        ("redpanda", "'kafka'"),
        ("Postgres", "'postgres-cdc'"),
        ("x", "use one"),
    ],
)
def test_sources_of_other_systems_have_a_hint(name: str, advised: str) -> None:
    with pytest.raises(SqlError) as caught:
        connector(name)
    assert advised in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "advised"),
    [("postgres", "'jdbc'"), ("s3", "'deltalake'"), ("redpanda", "'kafka'"), ("x", "use one")],
)
def test_sinks_of_other_systems_have_a_hint(name: str, advised: str) -> None:
    with pytest.raises(SqlError) as caught:
        sink_connector(name)
    assert advised in (caught.value.hint or "")
