"""Hints for statements that use the syntax of Flink SQL, Materialize, ksqlDB or PostgreSQL.

Each hint shows how rw_sql writes the same thing, with the names from the user's statement.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import quoted
from rw_sql.syntax.lexing.tokens import BACKQUOTED, END, NUMBER, STRING, WORD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rw_sql.syntax.lexing.tokens import Token

NEAR = "did you mean "
"""The beginning of a hint that suggests the word or statement that the user probably meant."""

_USERS = "rw_sql has no users: access depends on the rights to the warehouse's files"
OF_OTHERS = {
    **dict.fromkeys(("USER", "ROLE"), _USERS),
    **dict.fromkeys(
        ("SUBSCRIBE", "TAIL"), "SELECT * FROM a_view reads the rows; CREATE SINK … FROM a_view sends the changes"
    ),
    "AGGREGATE": "register a function of your own in PySpark: spark.udf.register",
    "CLUSTER": "resource groups separate jobs: WITH (resource_group = 'a_group'); SHOW CLUSTER lists their owners",
    "FETCH": "there are no cursors: run the SELECT itself",
    "KILL": "CANCEL JOBS with the id of a job, which SHOW JOBS lists",
    "PREPARE": "there are no prepared statements: run the statement itself",
    "PUBLICATION": "publications are in PostgreSQL; CREATE SOURCE with connector = 'postgres-cdc' creates one there",
    "STREAM": "CREATE SOURCE reads a topic; CREATE MATERIALIZED VIEW keeps a query over it up to date",
    "SUBSCRIPTION": "CREATE SINK sends the changes of a table or view",
}
"""Hints for statements that rw_sql does not have. The key of each hint is the word in the statement that rw_sql does
not expect."""

_QUOTES = {"‘": "'", "’": "'", "“": '"', "”": '"'}
_KEY = re.compile(r"[A-Za-z_][\w.-]*")
_ENCODINGS = frozenset({"AVRO", "BYTES", "CSV", "JSON", "PROTOBUF"})
_FORMATS = frozenset({"CANAL", "DEBEZIUM", "MAXWELL", "PLAIN", "UPSERT"})


@dataclass(frozen=True, slots=True)
class _Place:
    """An unexpected token, the terminals that the grammar accepts there, and the other tokens of the statement."""

    token: Token
    accepted: set[str]
    before: Sequence[Token]
    after: Sequence[Token]

    @property
    def words(self) -> list[str]:
        """The words before the token, in upper case."""
        return [other.upper for other in self.before]

    def follows(self, most: int) -> list[str]:
        """The next words after the token, in upper case."""
        return [other.upper for other in self.after[:most]]

    def name(self, at: int, default: str = "a_name") -> str:
        """The name at position ``at`` after the token, as written; ``default`` if there is none."""
        return self.after[at].text if at < len(self.after) else default


def foreign_hint(token: Token, accepted: set[str], before: Sequence[Token], after: Sequence[Token]) -> str | None:
    """The hint for a token that rw_sql does not expect here, but another dialect of SQL does; None if no other dialect
    is recognized.

    ``accepted`` are the terminals that the grammar accepts at this token. ``before`` and ``after`` are the statement's
    tokens that precede and follow it.
    """
    place = _Place(token, accepted, before, after)
    for rule in _RULES:
        hint = rule(place)
        if hint is not None:
            return hint
    return None


def _quotes(place: _Place) -> str | None:
    token, mark = place.token, place.token.text[:1]
    if mark in _QUOTES:
        return f"write {_QUOTES[mark]} instead of {mark}, which is a typographic quotation mark"
    if token.kind == BACKQUOTED and "NAME" in place.accepted:
        word = quoted(token.value)
        if word != token.value:
            return f"write {word}: only queries of Spark quote names by backticks"
        return f'write {word} without backticks, or "{word}"'
    is_key = token.kind == STRING and _KEY.fullmatch(token.value) is not None and place.follows(1) == ["="]
    return f"write {token.value} without quotes" if is_key and "OPTION_KEY" in place.accepted else None


def _types(place: _Place) -> str | None:
    token, words = place.token, place.words
    if not {"COMMA", "RPAR"} <= place.accepted or words[:1] not in (["CREATE"], ["ALTER"]):
        return None
    if token.text == "(" and place.after and place.after[0].kind == NUMBER:
        return f"write {words[-1]} without ({place.after[0].text}): its precision cannot be set"
    if token.upper == "ARRAY" and place.follows(1) == ["<"]:
        element = place.name(1) if place.follows(3)[2:] == [">"] else "INT"
        return f"write {element}[]"
    if token.text == "<":
        return {
            "MAP": "write MAP(…, …), with parentheses",
            "ROW": "write STRUCT<…> instead of ROW<…>",
        }.get(words[-1])
    if token.upper == "METADATA":
        return f"omit the column, and write INCLUDE timestamp AS {place.before[-2].text} after the columns"
    if "ENFORCED" in (token.upper, *place.follows(1)):
        return "omit NOT ENFORCED"
    return None


_CONNECTORS = {"LOAD": "datagen", "MYSQL": "mysql-cdc", "POSTGRES": "postgres-cdc"}
_KAFKA = {"KAFKA": ", properties.bootstrap.server = 'host:9092'"}


def _materialize(place: _Place) -> str | None:
    words, kind = place.words, (place.follows(1) or [""])[0]
    match words[:2], place.token.upper:
        case ["CREATE", "SOURCE"], _ if _is_from_system(place):
            connector = _CONNECTORS.get(words[-1], words[-1].lower())
            shared = f", connection = {place.name(0)}" if place.token.upper == "CONNECTION" else ""
            return f"CREATE SOURCE {place.before[-3].text} (id INT, …) WITH (connector = '{connector}'{shared}, …) …"
        case ["CREATE", "CONNECTION"], "TO":
            name = place.before[-1].text
            return f"CREATE CONNECTION {name} WITH (type = '{kind.lower()}'{_KAFKA.get(kind, ', …')})"
        case ["CREATE", "SINK"], "INTO":
            return f"write WITH (connector = '{kind.lower()}', …) FORMAT … ENCODE … instead of INTO …"
        case _, "IN" if kind == "CLUSTER":
            group = place.name(1, "a_group")
            return f"omit IN CLUSTER {group}; WITH (resource_group = '{group}') before AS chooses the view's group"
        case _, "ENVELOPE" if kind in ("UPSERT", "DEBEZIUM"):
            return f"omit ENVELOPE {kind}, and write CREATE TABLE … FORMAT {kind} ENCODE JSON"
        case _, "ENVELOPE":
            return f"omit ENVELOPE {kind}"
    return None


def _is_from_system(place: _Place) -> bool:
    """True after CREATE SOURCE name FROM KAFKA and the like."""
    from_, named = place.words[-2:-1], place.before[-3:-2]
    return from_ == ["FROM"] and place.token.kind == WORD and bool(named) and named[0].kind == WORD


def _clauses(place: _Place) -> str | None:
    token, accepted, words = place.token, place.accepted, place.words
    if token.text == "(" and "WITH" in accepted and any(other.text == "=" for other in place.after):
        return "write WITH before ("
    if token.upper == "SELECT" and accepted & {"AS", "AS_QUERY"}:
        return "write AS before SELECT"
    if token.upper == "CHANGES" and words[-1:] == ["EMIT"]:
        return "omit EMIT CHANGES: a view is updated for every record"
    if token.upper == "ENCODE" and "FORMAT" in accepted:
        return "write FORMAT PLAIN before ENCODE"
    if words[-2:-1] != ["FORMAT"] or "ENCODE" not in accepted:
        return None
    if words[-1] in _ENCODINGS:
        return f"write FORMAT PLAIN ENCODE {words[-1]}"
    is_joined = words[-1] in _FORMATS and token.text == "-" and place.after
    return f"write FORMAT {words[-1]} ENCODE {place.after[0].upper}" if is_joined else None


def _operations(place: _Place) -> str | None:
    token, words = place.token, place.words
    if token.kind == NUMBER and words[-2:] == ["BACK", "BY"]:
        return f"write INTERVAL '{token.text} {place.name(0, 'hours')}'"
    if token.kind == NUMBER and words[-1:] == ["INTERVAL"]:
        return f"write '{token.text} {place.name(0, 'hours')}'"
    if token.kind == STRING and words[-2:] == ["BACK", "BY"]:
        return f"write INTERVAL before {token.text}"
    match words, token.upper:
        case ["ALTER", kind, _, "SET"], "(":
            return _to_alter(kind, place.before[2].text)
        case ["ALTER", "SOURCE", _, *_], "INJECT":
            return f"INJECT SOURCE OFFSETS {place.before[2].text} VALUES ('a_split' = 42)"
        case ["DESCRIBE" | "DESC", "SOURCE"], _ if token.kind != END:
            return f"{NEAR}DESCRIBE {token.text}?"
        case ["DESCRIBE" | "DESC", "MATERIALIZED"], "VIEW":
            return f"{NEAR}DESCRIBE {place.name(0)}?"
        case ["DESCRIBE" | "DESC", "CONNECTION" | "SECRET" | "SINK" as kind], _ if token.kind != END:
            return f"{NEAR}SHOW CREATE {kind} {token.text}?"
        case ["REWIND", "SOURCE", _, "TO"], "EARLIEST" | "LATEST" | "TIMESTAMP" as target:
            time = f" {place.name(0)}" if target == "TIMESTAMP" else ""
            return f"INJECT SOURCE OFFSETS {place.before[2].text} TO {target}{time}"
        case ["REWIND", "SOURCE", _, "TO"], _ if token.kind == STRING:
            return f"INJECT SOURCE OFFSETS {place.before[2].text} TO TIMESTAMP {token.text}"
        case ["WAIT"], first if token.kind == WORD:
            name = place.name(0) if first == "FOR" else token.text
            return f"write WAIT MATERIALIZED VIEW {name}, WAIT TABLE {name} or WAIT SINK {name}"
        case ["PAUSE" | "RESUME" as verb], "TABLE":
            return f"write {verb} SOURCE {place.name(0)}"
        case ["PAUSE" | "RESUME" as verb], "MATERIALIZED" | "VIEW":
            return f"{verb} SOURCE a_source: a view follows the sources that it reads"
        case ["REFRESH"], "MATERIALIZED":
            name = place.name(1)
            return f"FLUSH waits until {name} is up to date; REBUILD MATERIALIZED VIEW {name} recomputes it"
    return None


def _to_alter(kind: str, name: str) -> str | None:
    connects = f"{kind} {name} CONNECTOR WITH (…) changes how it connects"
    match kind:
        case "SOURCE" | "TABLE":
            return f"ALTER SOURCE {name} UNSAFE SET (…) changes what is read; ALTER {connects}"
        case "SINK":
            return f"ALTER {connects}"
    return None


_RULES: tuple[Callable[[_Place], str | None], ...] = (_quotes, _types, _materialize, _clauses, _operations)
