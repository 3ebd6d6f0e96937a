"""Hints for statements that use the syntax of Materialize: FROM, TO and INTO with the name of a system, IN CLUSTER, and
ENVELOPE."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import literal
from rw_sql.syntax.lexing.tokens import QUOTED, WORD
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
"""The connectors of change data capture sources, each with the upstream name of a table."""

CONNECTIONS = {
    "CONFLUENT": "type = 'schema_registry', schema.registry = 'http://host:8081'",
    "KAFKA": "type = 'kafka', properties.bootstrap.server = 'host:9092'",
    "MYSQL": "type = 'mysql', hostname = '…', …",
    "POSTGRES": "type = 'postgres', hostname = '…', …",
    "POSTGRESQL": "type = 'postgres', hostname = '…', …",
}
"""The properties of a connection."""

SINKS = {
    "ICEBERG": "connector = 'iceberg', database.name = '…', table.name = '…', …",
    "POSTGRES": "connector = 'jdbc', jdbc.url = 'jdbc:postgresql://host:5432/a_database', table.name = '…', …",
    "POSTGRESQL": "connector = 'jdbc', jdbc.url = 'jdbc:postgresql://host:5432/a_database', table.name = '…', …",
}
"""The properties of sinks that have no format."""

OF_CONNECTION = "WITH (…) after the connection's name"
OF_SINK = "WITH (connector = …)"


def materialize_form(place: Place) -> str | ForeignForm | None:
    """The hint or error for a form of Materialize; None for another form."""
    words, kind = place.words, (place.follows(1) or [""])[0]
    match words[:2], place.token.upper:
        case ["CREATE", "SOURCE"], _ if _is_from_system(place):
            message = "CREATE SOURCE names its connector in WITH (…), not after FROM"
            span = joined(place.before[-2].span, place.before[-1].span)
            return ForeignForm(hint=_source_from(words[-1], place), message=message, span=span)
        case ["CREATE", "CONNECTION"], "TO":
            return ForeignForm(hint=_connection_to(kind, place), expected=OF_CONNECTION)
        case ["CREATE", "SINK"], "INTO":
            return ForeignForm(hint=_sink_into(kind, place), expected=OF_SINK)
        case ["CREATE", *_], "IN" if kind == "CLUSTER":
            group = (
                place.after[1].value if len(place.after) > 1 and place.after[1].kind in (WORD, QUOTED) else "a_group"
            )
            of = next((word.lower() for word in words[1:4] if word in ("SINK", "SOURCE", "TABLE")), None)
            where = "before AS chooses the view's group" if of is None else f"chooses the {of}'s group"
            return f"omit IN CLUSTER {place.name(1, 'a_group')}; WITH (resource_group = {literal(group)}) {where}"
        case ["CREATE", "SINK"], "ENVELOPE" if kind in ("UPSERT", "DEBEZIUM"):
            return f"omit ENVELOPE {kind}, and write {_format(kind, words)}"
        case ["CREATE", *_], "ENVELOPE" if kind in ("UPSERT", "DEBEZIUM"):
            format = _format(kind, words)
            has_key_schema = "ENCODE AVRO" in format and "INCLUDE" not in words
            keyed = " KEY ENCODE AVRO" if kind == "UPSERT" and has_key_schema else ""
            table = _keyed_table(place.before, has_key_schema=has_key_schema)
            of_key = ": the key's schema gives the primary key" if has_key_schema and "(*) " in table else ""
            return f"omit ENVELOPE {kind}, and write {table}{format}{keyed}{of_key}"
        case _, "ENVELOPE":
            return f"omit ENVELOPE {kind}"
    return None


def _is_from_system(place: Place) -> bool:
    """True after CREATE SOURCE name FROM KAFKA and the like."""
    from_, named = place.words[-2:-1], place.before[-3:-2]
    return from_ == ["FROM"] and place.token.kind == WORD and bool(named) and named[0].kind in (WORD, QUOTED)


def _source_from(system: str, place: Place) -> str:
    """The hint for CREATE SOURCE … FROM KAFKA and the like; ``system`` is the word after FROM."""
    name = place.before[-3].text
    shared = f", connection = {place.name(0)}" if place.token.upper == "CONNECTION" else ""
    if system in STREAMS:
        return f"CREATE SOURCE {name} (id INT, …) WITH (connector = '{STREAMS[system]}'{shared}, …) …"
    if system in DATABASES:
        connector, table = DATABASES[system]
        return (
            f"CREATE SOURCE {name} WITH (connector = '{connector}'{shared}, …), then CREATE TABLE a_table (*) "
            f"FROM {name} TABLE '{table}'"
        )
    return _IN_LIST


_IN_LIST = "name the connector in the list: WITH (connector = '…', …)"


def _connection_to(system: str, place: Place) -> str:
    """The hint for CREATE CONNECTION … TO KAFKA and the like; ``system`` is the word after TO."""
    if system and system not in CONNECTIONS:
        return "name the type in the list: WITH (type = '…', …)"
    return f"CREATE CONNECTION {place.before[-1].text} WITH ({CONNECTIONS.get(system, _OF_ANY_TYPE)})"


_OF_ANY_TYPE = "type = '…', …"


def _format(envelope: str, words: Sequence[str]) -> str:
    """The clause FORMAT … ENCODE … for an envelope. The encoding is the encoding in ``words``, which are the
    statement's words, if the envelope supports this encoding; otherwise JSON."""
    encode = next((after for word, after in pairwise(words) if word == "ENCODE"), "JSON")
    is_of_sink = words[:2] == ["CREATE", "SINK"]
    if encode not in (_PAIRS_OF_SINKS if is_of_sink else _PAIRS)[envelope]:
        encode = "JSON"
    return f"FORMAT {envelope} ENCODE {encode}{_SCHEMAS.get(encode, '')}"


_PAIRS = {"DEBEZIUM": ("AVRO", "JSON"), "UPSERT": ("AVRO", "JSON", "PROTOBUF")}
_PAIRS_OF_SINKS = {**_PAIRS, "DEBEZIUM": ("JSON",)}
_SCHEMAS = {"AVRO": " (schema.registry = '…')", "PROTOBUF": " (message = '…', schema.registry = '…')"}


def _sink_into(system: str, place: Place) -> str:
    """The hint for CREATE SINK … INTO KAFKA and the like; ``system`` is the word after INTO."""
    if system in SINKS:
        return f"write WITH ({SINKS[system]}) instead of INTO …"
    if system != "KAFKA":
        return _IN_LIST
    words = place.follows(len(place.after))
    shared = f", connection = {place.name(words.index('CONNECTION') + 1)}" if "CONNECTION" in words else ""
    pairs = dict(pairwise(words))
    envelope, encode = pairs.get("ENVELOPE", ""), pairs.get("FORMAT", "")
    if envelope in _PAIRS_OF_SINKS:
        format = _format(envelope, [*place.words[:2], "ENCODE", encode])
    elif encode in _PAIRS_OF_SINKS["UPSERT"]:
        format = f"FORMAT … ENCODE {encode}{_SCHEMAS.get(encode, '')}"
    else:
        format = "FORMAT … ENCODE …"
    return f"write WITH (connector = 'kafka'{shared}, …) {format} instead of INTO …"


def _keyed_table(before: Sequence[Token], *, has_key_schema: bool) -> str:
    """``CREATE TABLE name (first_column PRIMARY KEY) WITH (…) `` for the source or table that begins with these tokens;
    empty if the source or table already has a primary key. With ``has_key_schema``, a schema may give the primary
    key."""
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
