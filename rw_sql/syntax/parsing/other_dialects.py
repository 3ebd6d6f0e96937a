"""Hints for statements that use the syntax of Flink SQL, Materialize, ksqlDB or PostgreSQL.

Each hint shows the equivalent syntax of rw_sql, with the names from the user's statement.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from rw_sql.errors import UNSUPPORTED_TYPE, near_names
from rw_sql.syntax.lexing.identifiers import literal, quoted
from rw_sql.syntax.lexing.tokens import BACKQUOTED, END, NUMBER, QUOTED, STRING, WORD
from rw_sql.syntax.lexing.written_names import name_at, spelled, whole_names
from rw_sql.syntax.parsing.actions.formats import OF_TABLES
from rw_sql.syntax.parsing.foreign_place import ForeignForm, Place
from rw_sql.syntax.parsing.generic_types import generic_type
from rw_sql.syntax.parsing.materialize_forms import OF_CONNECTION, OF_SINK, SCHEMAS, materialize_form

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rw_sql.syntax.lexing.tokens import Token

NEAR = "did you mean "
"""The beginning of a hint that suggests the word or statement that the user probably meant."""

_USERS = "rw_sql has no users: access depends on the rights to the warehouse's files"
OF_OTHERS = {
    **dict.fromkeys(("USER", "ROLE"), _USERS),
    "AGGREGATE": "register a function of your own in PySpark: spark.udf.register",
    "CLUSTER": "resource groups separate jobs: WITH (resource_group = 'a_group'); SHOW CLUSTER lists their owners",
    "FETCH": "there are no cursors: run the SELECT itself",
    "KILL": "CANCEL JOBS with the id of a job, which SHOW JOBS lists",
    "PREPARE": "there are no prepared statements: run the statement itself",
    "PUBLICATION": "publications are in PostgreSQL; CREATE SOURCE with connector = 'postgres-cdc' creates one there",
    "STREAM": "CREATE SOURCE reads a topic; CREATE MATERIALIZED VIEW keeps a query over it up to date",
    "SUBSCRIPTION": "CREATE SINK sends the changes of a table or view",
}
"""Hints for statements that rw_sql does not have, by the statement's unexpected word."""

_QUOTES = {"‘": "'", "’": "'", "“": '"', "”": '"'}
_KEY = re.compile(r"[A-Za-z_][\w.-]*")
_ENCODINGS = frozenset({"AVRO", "BYTES", "CSV", "JSON", "PROTOBUF"})
_FORMATS = frozenset({"CANAL", "DEBEZIUM", "MAXWELL", "PLAIN", "UPSERT"})


def foreign_form(
    token: Token, accepted: set[str], before: Sequence[Token], after: Sequence[Token]
) -> ForeignForm | None:
    """Returns the form of another SQL dialect that contains the unexpected token; None if no form of another dialect is
    recognized.

    ``accepted`` are the terminals that the grammar accepts at this token. ``before`` and ``after`` are the statement's
    tokens before and after the unexpected token.
    """
    first, *rest = whole_names([token, *after])
    opening = before[1:] if len(before) > 1 and before[0].upper == "EXPLAIN" else before
    place = Place(first, accepted, whole_names(opening), rest)
    for rule in _RULES:
        form = rule(place)
        if form is not None:
            return ForeignForm(hint=form) if isinstance(form, str) else form
    return None


def _quotes(place: Place) -> str | None:
    token, mark = place.token, place.token.text[:1]
    if mark in _QUOTES:
        return f"write {_QUOTES[mark]} instead of {mark}, which is a typographic quotation mark"
    if token.kind == BACKQUOTED and "NAME" in place.accepted:
        word = quoted(token.value)
        if word != token.value:
            return f"write {word}: only Spark queries quote names with backticks"
        return f'write {word} without backticks, or "{word}"'
    is_key = token.kind == STRING and _KEY.fullmatch(token.value) is not None and place.follows(1) == ["="]
    if not is_key or "OPTION_KEY" not in place.accepted:
        return None
    following = zip(place.after, place.after[1:], strict=False)
    if any(key.kind == STRING and sign.text == "=" for key, sign in following):
        return f"write all keys without quotes: {token.value} = …"
    return f"write {token.value} without quotes"


def _types(place: Place) -> str | ForeignForm | None:
    token, words = place.token, place.words
    is_in_struct = token.upper == "ARRAY" and {"STRUCT", "TIMESTAMP"} <= place.accepted
    if not (is_in_struct or {"COMMA", "RPAR"} <= place.accepted) or words[:1] not in (["CREATE"], ["ALTER"]):
        return None
    if token.text == "(" and place.after and place.after[0].kind == NUMBER:
        return f"write {words[-1]} without ({place.after[0].text}): its precision cannot be set"
    if token.upper == "ARRAY" and place.follows(1) == ["<"]:
        written = generic_type([token, *place.after])
        hint = f"write {written}" if written else "write [] after the element's type, such as INT[]"
        return ForeignForm(hint=hint, message="an array type is written element[], not ARRAY<element>")
    if token.text == "<" and words[-1] == "MAP":
        written = generic_type([place.before[-1], token, *place.after])
        return ForeignForm(hint=f"write {written or 'MAP(…, …)'}", expected='"(" after MAP')
    if token.text == "<" and words[-1] == "ROW":
        written = generic_type([place.before[-1], token, *place.after])
        return ForeignForm(
            hint=f"write {written or 'STRUCT<…> instead of ROW<…>'}",
            message='type "row" does not exist',
            span=place.before[-1].span,
            code=UNSUPPORTED_TYPE,
        )
    if token.upper == "METADATA":
        return _metadata(place)
    if "ENFORCED" in (token.upper, *place.follows(1)):
        return "omit NOT ENFORCED"
    return None


def _metadata(place: Place) -> str:
    """The hint for a column that is declared with Flink SQL's METADATA. The name of the metadata field follows the word
    FROM; without FROM, it is the column's name."""
    depth, at = 0, len(place.before)
    while at and (depth or place.before[at - 1].text not in ("(", "<", ",")):
        at -= 1
        depth += (place.before[at].text in (")", ">")) - (place.before[at].text in ("(", "<"))
    name, column = name_at(place.before, at, "a_name"), place.before[at]
    key = place.after[1].value if place.follows(1) == ["FROM"] and len(place.after) > 1 else column.value
    kind = _METADATA.get(key.lower())
    if kind is None:
        known = ", ".join(dict.fromkeys(_METADATA.values()))
        return f"omit column {name}: INCLUDE has no {key}, only {known}"
    return f"omit the column, and write INCLUDE {kind} AS {name} after the columns"


_METADATA = {
    "header": "header",
    "headers": "header",
    "key": "key",
    "offset": "offset",
    "partition": "partition",
    "sequence-number": "offset",
    "shard-id": "partition",
    "timestamp": "timestamp",
}
"""Maps the metadata columns of Flink SQL's connectors to the words after INCLUDE that select the same data in
rw_sql."""


def _clauses(place: Place) -> str | ForeignForm | None:
    token, accepted, words = place.token, place.accepted, place.words
    if token.text == "(" and "WITH" in accepted and any(other.text == "=" for other in place.after):
        if words[-1] == "WITH":  # the parser took WITH for a name
            message = f"expected a name after {words[-2]}, found: {place.before[-1].text}"
            hint = f"write a name between {place.before[-2].text} and {place.before[-1].text}"
            return ForeignForm(hint=hint, message=message, span=place.before[-1].span)
        return ForeignForm(hint="write WITH before (", expected="WITH before the properties")
    if token.upper == "SELECT" and accepted & {"AS", "AS_QUERY"}:
        return "write AS before SELECT"
    if token.upper == "CHANGES" and words[-1:] == ["EMIT"]:
        return "omit EMIT CHANGES: a view is updated for every record"
    if token.upper == "ENCODE" and "FORMAT" in accepted:
        return ForeignForm(hint="write FORMAT PLAIN before ENCODE", message="expected FORMAT before ENCODE")
    if words[-2:-1] != ["FORMAT"] or "ENCODE" not in accepted:
        return None
    if words[-1] in _ENCODINGS:
        more = SCHEMAS.get(words[-1], "") if token.text != "(" else " (…)"
        message, span = f"{words[-1]} is an encoding, not a format", place.before[-1].span
        return ForeignForm(hint=f"write FORMAT PLAIN ENCODE {words[-1]}{more}", message=message, span=span)
    more = OF_TABLES if words[:2] == ["CREATE", "SOURCE"] and words[-1] != "PLAIN" else ""
    if words[-1] in _FORMATS and token.text == "-" and place.after:
        encode = place.after[0].upper
        return f"write FORMAT {words[-1]} ENCODE {encode}{SCHEMAS.get(encode, '')}{more}"
    return f"write FORMAT {words[-1]} ENCODE JSON{more}" if words[-1] in _FORMATS and token.kind == END else None


def _operations(place: Place) -> str | ForeignForm | None:
    token, words = place.token, place.words
    if (split := _unquoted_split(place)) is not None:
        return split
    if token.kind == NUMBER and words[-2:] == ["BACK", "BY"]:
        return f"write INTERVAL '{token.text} {place.name(0, 'hours')}'"
    if token.kind == NUMBER and words[-1:] == ["INTERVAL"]:
        return f"write '{token.text} {place.name(0, 'hours')}'"
    if token.kind == STRING and words[-2:] == ["BACK", "BY"]:
        return f"write INTERVAL before {token.text}"
    match words, token.upper:
        case [], "SUBSCRIBE" | "TAIL":
            view = place.name(1 if place.follows(1) == ["TO"] else 0, "a_view")
            return f"SELECT * FROM {view} reads the rows; CREATE SINK … FROM {view} sends the changes"
        case ["ALTER", kind, _, "SET"], "(":
            return _to_alter(kind, place.before[2].text)
        case ["ALTER", "SOURCE", _, *_], "INJECT":
            listed = spelled(place.after[2:-1])
            is_list = place.follows(2) == ["OFFSETS", "("] and place.after[-1].text == ")"
            return f"INJECT SOURCE OFFSETS {place.before[2].text} VALUES ({listed if is_list else _POSITION})"
        case ["DESCRIBE" | "DESC", "SOURCE"], _ if token.kind != END:
            return f"{NEAR}DESCRIBE {token.text}?"
        case ["DESCRIBE" | "DESC", "MATERIALIZED"], "VIEW":
            return f"{NEAR}DESCRIBE {place.name(0)}?"
        case ["DESCRIBE" | "DESC", "CONNECTION" | "SECRET" | "SINK" as kind], _ if token.kind != END:
            return f"{NEAR}SHOW CREATE {kind} {token.text}?"
        case ["REWIND", "SOURCE", _, "TO"], "EARLIEST" | "LATEST" | "TIMESTAMP" as target:
            time = place.after[0].text if place.after and place.after[0].kind == STRING else "'…'"
            return _to_position(place.before[2].text, f"{target} {time}" if target == "TIMESTAMP" else target)
        case ["REWIND", "SOURCE", _, "TO"], _ if token.kind == STRING:
            return _to_position(place.before[2].text, f"TIMESTAMP {token.text}")
        case ["WAIT"], _ if token.kind in (WORD, QUOTED):
            hint = _to_wait([token, *place.after])
            return ForeignForm(hint=hint, expected="MATERIALIZED VIEW, TABLE, SINK or end of statement")
        case ["FLUSH"], _ if token.kind in (WORD, QUOTED):
            return f"omit {token.text}: FLUSH waits for all views and sinks"
        case ["PAUSE" | "RESUME" as verb], "TABLE":
            return f"write {verb} SOURCE {place.name(0)}"
        case ["PAUSE" | "RESUME" as verb], "MATERIALIZED" | "VIEW":
            return f"{verb} SOURCE a_source: a view follows the sources that it reads"
        case ["REFRESH"], "MATERIALIZED":
            name = place.name(2 if place.follows(2)[1:] == ["CONCURRENTLY"] else 1)
            return f"FLUSH waits until {name} is up to date; REBUILD MATERIALIZED VIEW {name} recomputes it"
    return None


def _to_wait(tokens: Sequence[Token]) -> str:
    """The hint for WAIT; ``tokens`` are the tokens after WAIT."""
    words = [token.upper for token in tokens]
    at = 1 if words[0] == "FOR" else 0
    near = near_names(words[at], _AWAITED, most=1) if len(words) > at + 1 and words[at] not in _AWAITED else []
    if near:
        return f"{NEAR}{near[0].replace('VIEW', 'MATERIALIZED VIEW')}?"
    match words[at:]:
        case ["SOURCE", *_]:
            return "FLUSH waits for all views and sinks; WAIT MATERIALIZED VIEW a_view waits for one view"
        case ["MATERIALIZED", "VIEW", *_]:
            return f"write WAIT MATERIALIZED VIEW {name_at(tokens, at + 2, 'a_name')}"
        case ["MATERIALIZED" | "VIEW", *_]:
            return f"write WAIT MATERIALIZED VIEW {name_at(tokens, at + 1, 'a_name')}"
        case ["SINK" | "TABLE" as kind, *_]:
            return f"write WAIT {kind} {name_at(tokens, at + 1, 'a_name')}"
    name = name_at(tokens, at, "a_name")
    return f"write WAIT MATERIALIZED VIEW {name}, WAIT TABLE {name} or WAIT SINK {name}"


_AWAITED = ("MATERIALIZED", "SINK", "TABLE", "VIEW")
_POSITION = "'a_split' = …"


def _to_position(source: str, target: str) -> str:
    """The hint for a REWIND to a position. The hint proposes INJECT, which moves a source to a position, but keeps the
    rows that the source has already read."""
    return (
        f"REWIND goes to an operation, which SHOW UNSAFE OPERATIONS FOR {source} lists; to read again and keep the "
        f"rows: PAUSE SOURCE {source}, then INJECT SOURCE OFFSETS {source} TO {target}"
    )


def _unquoted_split(place: Place) -> ForeignForm | None:
    """The error for a split identifier without quotes: ``orders:0`` or ``0``."""
    token, words = place.token, place.words
    if "STRING" not in place.accepted or token.kind not in (WORD, NUMBER) or words[:1] == ["CREATE"]:
        return None
    is_listed = words[-1:] in (["("], [","]) and ("VALUES" in words or "SPLITS" in words)
    if not is_listed and words[-3:] != ["SKIP", "RECORD", "AT"]:
        return None
    ends = [at for at, other in enumerate(place.after) if other.upper in ("=", ",", ")", "ON")]
    end = ends[0] if ends else len(place.after)
    parts = [token, *place.after[:end]]
    if not is_listed and len(parts) > 1 and parts[-1].kind == NUMBER and parts[-2].end < parts[-1].start:
        parts.pop()  # the record's offset
    behind = list(place.after[end:])
    values = [at for at, other in enumerate(behind) if other.text in (",", ")")]
    given = behind[1 : values[0]] if values and behind[0].text == "=" else []
    is_value = [other.kind for other in given if other.text != "-"] in ([NUMBER], [STRING], [WORD]) and len(given) < 3
    value, what = f" = {spelled(given)}" if is_value else "", "the split"
    if [other.text for other in given[:-1]] == ["-"] and words[:3] == ["INJECT", "SOURCE", "OFFSETS"]:
        split = literal(spelled(parts))
        back = f"INJECT SOURCE OFFSETS {place.before[3].text} TO SHIFT {spelled(given)} FOR SPLITS ({split})"
        hint = f"an offset is 0 or more: {split} = …; to move back by {given[1].text}: {back}"
        return ForeignForm(hint=hint, expected="a split in quotes")
    if len(given) > 1 and not is_value and all(one.end == other.start for one, other in pairwise(given)):
        value, what = f" = {literal(spelled(given))}", "both"
    hint = f"write {what} in quotes: {literal(spelled(parts))}{value}"
    return ForeignForm(hint=hint, expected="a split in quotes")


_NAMED = r"(?:IF NOT EXISTS )?\S+(?: \. \S+)*"
_REQUIRED = (
    (re.compile(rf"(?:EXPLAIN )?CREATE (?:OR REPLACE )?CONNECTION {_NAMED}"), OF_CONNECTION),
    (re.compile(rf"(?:EXPLAIN )?CREATE (?:OR REPLACE )?SINK {_NAMED} FROM \S+(?: \. \S+)*"), OF_SINK),
)
"""Beginnings of statements, each with the clause that must follow. The grammar accepts a statement without the clause,
and a later check refuses the statement."""


def _required(place: Place) -> ForeignForm | None:
    words = " ".join(place.words)
    if place.token.kind == END or any(other.upper == "WITH" for other in place.after):
        return None
    for pattern, expected in _REQUIRED:
        if "WITH" in place.accepted and pattern.fullmatch(words):
            is_near = bool(near_names(place.token.upper, ("WITH",)))
            listed = "type = 'kafka', …" if expected == OF_CONNECTION else "connector = '…', …"
            hint = f"{NEAR}WITH?" if is_near else f"write WITH ({listed}) instead of {place.token.text} …"
            return ForeignForm(hint=hint, expected=expected)
    return None


def _to_alter(kind: str, name: str) -> str | None:
    connects = f"{kind} {name} CONNECTOR WITH (…) changes its connection properties"
    match kind:
        case "SOURCE" | "TABLE":
            return f"ALTER SOURCE {name} UNSAFE SET (…) changes what is read; ALTER {connects}"
        case "SINK":
            return f"ALTER {connects}"
    return None


_RULES: tuple[Callable[[Place], str | ForeignForm | None], ...] = (
    _quotes,
    _types,
    materialize_form,
    _clauses,
    _operations,
    _required,
)
