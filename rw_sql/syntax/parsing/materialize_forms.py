"""Makes hints for statements in Materialize's syntax: FROM, TO and INTO with the name of a system, IN CLUSTER, and
ENVELOPE."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from rw_sql.assets import list_assets
from rw_sql.syntax.lexing.identifiers import literal
from rw_sql.syntax.lexing.tokens import QUOTED, STRING, WORD
from rw_sql.syntax.lexing.written_names import name_at, spelled
from rw_sql.syntax.parsing.actions.parts import joined
from rw_sql.syntax.parsing.foreign_place import ForeignForm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.syntax.lexing.tokens import Token
    from rw_sql.syntax.parsing.foreign_place import Place

STREAMS = {"KAFKA": "kafka", "KINESIS": "kinesis", "LOAD": "datagen", "S3": "s3"}
"""The connectors of sources with columns and a format, by the first word of the system's name in Materialize."""

DATABASES = {
    "MYSQL": ("mysql-cdc", "a_database.a_table"),
    "POSTGRES": ("postgres-cdc", "public.a_table"),
    "POSTGRESQL": ("postgres-cdc", "public.a_table"),
}
"""The connectors of change data capture sources, each with an example of an upstream table's name."""

_BROKER, _REGISTRY = "host:9092", "http://host:8081"

CONNECTIONS = {
    "CONFLUENT": f"type = 'schema_registry', schema.registry = '{_REGISTRY}'",
    "KAFKA": f"type = 'kafka', properties.bootstrap.server = '{_BROKER}'",
    "MYSQL": "type = 'mysql', hostname = '…', …",
    "POSTGRES": "type = 'postgres', hostname = '…', …",
    "POSTGRESQL": "type = 'postgres', hostname = '…', …",
}
"""The properties of a connection, by the first word of the system's name in Materialize."""

SINKS = {
    "ICEBERG": "connector = 'iceberg', database.name = '…', table.name = '…', …",
    "POSTGRES": "connector = 'jdbc', jdbc.url = 'jdbc:postgresql://host:5432/a_database', table.name = '…', …",
    "POSTGRESQL": "connector = 'jdbc', jdbc.url = 'jdbc:postgresql://host:5432/a_database', table.name = '…', …",
}
"""The properties of sinks that have no format, by the system's name in Materialize."""

_INSTEAD = {
    **dict.fromkeys(
        ("DB2", "MONGODB", "ORACLE", "SQL"),
        "let Debezium write its changes to Kafka, then CREATE TABLE a_table (id INT PRIMARY KEY, …) WITH "
        "(connector = 'kafka', …) FORMAT DEBEZIUM ENCODE JSON",
    ),
    "WEBHOOK": "let the sender write to a Kafka topic, and create a source that reads this topic",
}
"""Maps a system for which rw_sql has no connector to advice on what to use instead. The key is the first word of the
system's name."""

_CONNECTED_OTHERWISE = {
    "AWS": "for Kinesis, CREATE CONNECTION {0} WITH (type = 'kinesis', aws.region = '…', …); for S3, CREATE CONNECTION "
    "{0} WITH (type = 's3', s3.region = '…', …)",
    "SSH": "open the tunnel outside rw_sql, and use its local address",
}
"""Maps a connection type that rw_sql does not have to the statement or option to use instead. The key is the first word
of the type. ``{0}`` is the name of the connection."""

_FILES = (
    "connector = 'fs' writes files on the host that runs the jobs, 'deltalake' and 'iceberg' write tables in an object "
    "store"
)
_STORES = frozenset({"AZBLOB", "AZURE", "GCS", "S3"})

TYPES = (
    "jdbc", "kafka", "kinesis", "mqtt", "mysql", "nats", "postgres", "pulsar", "rabbitmq", "s3", "schema_registry",
)  # fmt: skip
"""The types of connections."""

OF_CONNECTION = "WITH (…) after the connection's name"
OF_SINK = "WITH (connector = …)"


def materialize_form(place: Place) -> str | ForeignForm | None:
    """Returns the hint or the error if the unexpected token belongs to Materialize's syntax; otherwise None."""
    words, kind = place.words, (place.follows(1) or [""])[0]
    match words[:2], place.token.upper:
        case ["CREATE", "SOURCE"], _ if _is_from_system(place):
            message = "CREATE SOURCE names its connector in WITH (…), not after FROM"
            span = joined(place.before[-2].span, place.before[-1].span)
            return ForeignForm(hint=_source_from(words[-1], place), message=message, span=span)
        case ["CREATE", "CONNECTION"], "TO" | "FOR":
            return ForeignForm(hint=_connection_to(place), expected=OF_CONNECTION)
        case ["CREATE", "SINK"], "INTO" | "TO":
            return ForeignForm(hint=_sink_into(place), expected=OF_SINK)
        case ["CREATE", *_], "IN" if kind == "CLUSTER":
            group = (
                place.after[1].value if len(place.after) > 1 and place.after[1].kind in (WORD, QUOTED) else "a_group"
            )
            of = next((word.lower() for word in words[1:4] if word in ("SINK", "SOURCE", "TABLE")), None)
            where = (
                "before AS chooses the view's resource group" if of is None else f"chooses the {of}'s resource group"
            )
            hint = f"omit IN CLUSTER {place.name(1, 'a_group')}; WITH (resource_group = {literal(group)}) {where}"
            return ForeignForm(hint=hint, message=f"CREATE {(of or 'materialized view').upper()} has no IN CLUSTER")
        case ["CREATE", "SINK"], "ENVELOPE" if kind in ("UPSERT", "DEBEZIUM"):
            return f"omit ENVELOPE {kind}, and write {_format(kind, words)}{_other_encoding(kind, words)}"
        case ["CREATE", *_], "ENVELOPE" if kind in ("UPSERT", "DEBEZIUM"):
            format = _format(kind, words)
            has_key_schema = "ENCODE AVRO" in format and "INCLUDE" not in words
            keyed = " KEY ENCODE AVRO" if kind == "UPSERT" and has_key_schema else ""
            table = _keyed_table(place.before, has_key_schema=has_key_schema)
            of_key = ": the key's schema gives the primary key" if has_key_schema and "(*) " in table else ""
            changed = _other_encoding(kind, words)
            return f"omit ENVELOPE {kind}, and write {table}{format}{keyed}{of_key}{changed}"
        case _, "ENVELOPE":
            return f"omit ENVELOPE {kind}"
    return None


def _is_from_system(place: Place) -> bool:
    """True if the place is directly after words such as CREATE SOURCE name FROM KAFKA."""
    from_, named = place.words[-2:-1], place.before[-3:-2]
    is_system = place.token.kind == WORD or (place.token.text == "(" and place.words[-1] in (*STREAMS, *DATABASES))
    return from_ == ["FROM"] and is_system and bool(named) and named[0].kind in (WORD, QUOTED)


def _source_from(system: str, place: Place) -> str:
    """The hint for CREATE SOURCE … FROM KAFKA and similar statements. ``system`` is the word after FROM."""
    name = place.before[-3].text
    shared = f", connection = {place.name(0)}" if place.token.upper == "CONNECTION" else ""
    if system in STREAMS:
        read = f"connector = '{STREAMS[system]}'{shared}, {_topic(place.after, shared)}"
        return f"CREATE SOURCE {name} (id INT, …) WITH ({read}) {_format_of_rows(place)}"
    if system in DATABASES:
        connector, table = DATABASES[system]
        return (
            f"CREATE SOURCE {name} WITH (connector = '{connector}'{shared}, …), then CREATE TABLE a_table (*) "
            f"FROM {name} TABLE '{table}'"
        )
    whole = _system([place.before[-1], place.token, *place.after])
    if system in _INSTEAD:
        return f"no connector reads {whole}: {_INSTEAD[system]}"
    return _none_of("connector", "reads", whole, system, _names_of_connectors(".toml"), "FROM")


def _names_of_connectors(suffix: str) -> tuple[str, ...]:
    """The built-in connectors of sources (suffix ``.toml``) or sinks (suffix ``.sink.toml``)."""
    names = (name.removesuffix(suffix) for name in list_assets("sources", suffix))
    return tuple(name for name in names if not name.endswith(".sink") and name != "schema_registry")


def _none_of(key: str, does: str, whole: str, system: str, known: Sequence[str], word: str) -> str:
    """The hint for a system whose name may be a known ``connector`` or ``type``. In rw_sql, the name is the value of
    this option of WITH. ``word`` is the word before the system's name."""
    names = {name: name.replace("-", "_") for name in known}
    near = [name for name, plain in names.items() if system.lower() in (plain, plain.split("_")[0])]
    if near:
        return f"write WITH ({key} = '{near[0]}', …) instead of {word} …"
    if not whole:
        return f"name the {key} in the list: WITH ({key} = '…', …)"
    return f"no built-in {key} {does} {whole}; the built-in {key}s are {', '.join(known)}"


def _system(tokens: Sequence[Token]) -> str:
    """The name of a system. The name begins with the first token and consists of the words before CONNECTION, a bracket
    and similar tokens."""
    words: list[str] = []
    for token in tokens:
        if token.kind != WORD or token.upper in ("BODY", "CONNECTION", "FOR", "FORMAT", "USING", "WITH"):
            break
        words.append(token.text)
    return " ".join(words)


def _topic(tokens: Sequence[Token], shared: str) -> str:
    """Returns the properties that follow the connector and the connection: the property for Materialize's ``TOPIC
    '…'``, and ``…`` in place of unknown properties."""
    found = next((after for word, after in pairwise(tokens) if word.upper == "TOPIC"), None)
    is_plain = found is not None and found.kind == STRING and _PLAIN.fullmatch(found.value) is not None
    if found is None or not is_plain:
        return "…"
    return f"topic = {literal(found.value)}{'' if shared else ', …'}"


_PLAIN = re.compile(r"[\w.-]{1,100}")
_ADDRESS = re.compile(r"https?://[\w.-]+(?::\d+)?|[\w.-]+:\d+")


def _format_of_rows(place: Place) -> str:
    """Returns rw_sql's clause FORMAT … ENCODE … for Materialize's FORMAT without ENVELOPE; ``…`` if the format has no
    known equivalent."""
    words = place.follows(len(place.after))
    encode = dict(pairwise(words)).get("FORMAT", "")
    return f"FORMAT PLAIN ENCODE {encode}" if encode in ("CSV", "JSON") and "ENVELOPE" not in words else "…"


def _address_after(word: str, tokens: Sequence[Token]) -> str | None:
    """The address after a word such as BROKER; None if there is no address, or if the address may contain a user name
    or password."""
    found = next((after for before, after in pairwise(tokens) if before.upper == word), None)
    is_plain = found is not None and found.kind == STRING and _ADDRESS.fullmatch(found.value) is not None
    return found.value if found is not None and is_plain else None


def _connection_to(place: Place) -> str:
    """The hint for CREATE CONNECTION … TO KAFKA and similar statements."""
    name, system = name_at(place.before, len(place.before) - 1, "a_connection"), (place.follows(1) or [""])[0]
    if not system or system in CONNECTIONS:
        listed = CONNECTIONS.get(system, "type = '…', …")
        for placeholder, word in ((_BROKER, "BROKER"), (_REGISTRY, "URL")):
            written = _address_after(word, place.after)
            if written is not None and ("://" in written) == ("://" in placeholder):
                listed = listed.replace(placeholder, written)
        return f"CREATE CONNECTION {name} WITH ({listed})"
    whole = _system(place.after)
    if system in _CONNECTED_OTHERWISE:
        instead = _CONNECTED_OTHERWISE[system].format(name)
        return f"no connection is of type {whole}: {instead}; the types are {', '.join(TYPES)}"
    return _none_of("type", "is", whole, system, TYPES, place.token.upper)


def _format(envelope: str, words: Sequence[str]) -> str:
    """The clause FORMAT … ENCODE … for an envelope. ``words`` are the statement's words. If the envelope supports the
    encoding that ``words`` contain, the result has this encoding; otherwise, it has JSON."""
    encode = next((after for word, after in pairwise(words) if word == "ENCODE"), "JSON")
    is_of_sink = words[:2] == ["CREATE", "SINK"]
    if encode not in (_PAIRS_OF_SINKS if is_of_sink else _PAIRS)[envelope]:
        encode = "JSON"
    return f"FORMAT {envelope} ENCODE {encode}{SCHEMAS.get(encode, '')}"


_PAIRS = {"DEBEZIUM": ("AVRO", "JSON"), "UPSERT": ("AVRO", "JSON", "PROTOBUF")}
_PAIRS_OF_SINKS = {**_PAIRS, "DEBEZIUM": ("JSON",)}
SCHEMAS = {"AVRO": " (schema.registry = '…')", "PROTOBUF": " (message = '…', schema.registry = '…')"}


def _other_encoding(envelope: str, words: Sequence[str]) -> str:
    """Returns the end of a hint that proposes an encoding other than the statement's. ``words`` are the statement's
    words. Returns the empty string if the encodings are equal."""
    encode = next((after for word, after in pairwise(words) if word == "ENCODE"), "JSON")
    is_of_sink = words[:2] == ["CREATE", "SINK"]
    known = (_PAIRS_OF_SINKS if is_of_sink else _PAIRS)[envelope]
    if encode in known:
        return ""
    does = "a sink writes" if is_of_sink else "a table reads"
    told = f"; {does} FORMAT {envelope} only as {_either(known)}"
    if is_of_sink and encode in _PAIRS_OF_SINKS["UPSERT"]:
        told += f"; for {encode} write FORMAT UPSERT ENCODE {encode}{SCHEMAS.get(encode, '')}"
    return told


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _sink_into(place: Place) -> str:
    """The hint for CREATE SINK … INTO KAFKA and similar statements."""
    system = (place.follows(1) or [""])[0]
    if system in SINKS:
        return f"write WITH ({SINKS[system]}) instead of {place.token.upper} …"
    if system in _STORES:
        return f"no sink writes files to {_system(place.after)}: {_FILES}"
    if system != "KAFKA":
        whole, known = _system(place.after), _names_of_connectors(".sink.toml")
        return _none_of("connector", "writes to", whole, system, known, place.token.upper)
    words = place.follows(len(place.after))
    shared = f", connection = {place.name(words.index('CONNECTION') + 1)}" if "CONNECTION" in words else ""
    pairs = dict(pairwise(words))
    envelope, encode = pairs.get("ENVELOPE", ""), pairs.get("FORMAT", "JSON")
    told = ""
    if envelope in _PAIRS_OF_SINKS:
        format = _format(envelope, [*place.words[:2], "ENCODE", encode])
        told = _other_encoding(envelope, [*place.words[:2], "ENCODE", encode])
    elif encode in _PAIRS_OF_SINKS["UPSERT"]:
        format = f"FORMAT PLAIN ENCODE {encode}{SCHEMAS.get(encode, '')}"
    else:
        format = "FORMAT PLAIN ENCODE JSON"
        told = f": a Kafka sink writes AVRO, JSON or PROTOBUF, not {encode}"
    if "PLAIN" in format:
        is_relation = place.words[-2:-1] == ["FROM"] and "SELECT" not in place.words
        read = name_at(place.before, len(place.before) - 1, "the query") if is_relation else "the query"
        told += f"; write UPSERT instead of PLAIN if {read} replaces rows"
    listed = f"connector = 'kafka'{shared}, {_topic(place.after, shared)}"
    return f"write WITH ({listed}) {format} instead of {place.token.upper} …{told}"


def _keyed_table(before: Sequence[Token], *, has_key_schema: bool) -> str:
    """``CREATE TABLE name (first_column PRIMARY KEY) WITH (…) `` for the source or table that begins with these tokens;
    empty if the source or table already has a primary key. If ``has_key_schema`` is true, the schema of the records'
    keys may provide the primary key."""
    words = [token.upper for token in before]
    if "PRIMARY" in words:
        return ""
    named = 5 if words[2:5] == ["IF", "NOT", "EXISTS"] else 2
    name = name_at(before, named, "a_table")
    all_columns = f"CREATE TABLE {name} (*) WITH (…) " if has_key_schema else ""
    if words[named + 1 : named + 2] != ["("]:  # the columns are the columns of the schema
        return all_columns or f"CREATE TABLE {name} (*, PRIMARY KEY (id)) WITH (…) "
    column: list[Token] = []
    depth = 0
    for token in before[named + 2 :]:
        if not depth and token.text in (",", ")"):
            break
        depth += (token.text == "(") - (token.text == ")")
        column.append(token)
    more = ", …" if words[named + 2 + len(column) :][:1] == [","] else ""
    if spelled(column) == "*":
        return (not more and all_columns) or f"CREATE TABLE {name} (*, PRIMARY KEY (id){more}) WITH (…) "
    kinds, is_free = [token.kind for token in column[:2]], all(token.upper not in ("<", "NOT") for token in column)
    first = spelled(column) if kinds in ([WORD, WORD], [QUOTED, WORD]) and is_free else "id INT"
    return f"CREATE TABLE {name} ({first} PRIMARY KEY{more}) WITH (…) "
