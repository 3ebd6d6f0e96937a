"""Reports constructs of other SQL dialects. sqlglot accepts these constructs in Spark's dialect, but Spark's parser
refuses them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from rw_sql.errors import INVALID_QUERY
from rw_sql.syntax.dialect.equivalents import EQUIVALENTS, ONE_ROW_PER_KEY, SORTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlglot import Token

    from rw_sql.plan.queries.analysis.findings import Report
    from rw_sql.plan.queries.analysis.reading import Text

_JSON_PATH = "get_json_object(x, '$.key')"

_NODES: dict[str, tuple[str, str]] = {
    "Fetch": ("FETCH FIRST", "write LIMIT 3"),
    "JSON": ("the condition IS JSON", "write try_parse_json(x) IS NOT NULL"),
    "JSONBExtract": ("the operator #>", f"write {_JSON_PATH}"),
    "JSONBExtractScalar": ("the operator #>>", f"write {_JSON_PATH}"),
    "JSONExtractScalar": ("the operator ->>", f"write {_JSON_PATH}"),
    "SimilarTo": ("SIMILAR TO", "write x RLIKE 'pattern', with Java's regular expressions"),
    "Slice": ("a slice of an array", "write slice(array, start, length)"),
} | {
    name: (EQUIVALENTS[name].name, f"write {EQUIVALENTS[name].spark}")
    for name in ("AtTimeZone", "JSONBContainsTopKey", "RegexpILike")
}
"""Maps the names of sqlglot classes to pairs: the construct, which Spark does not have, and the hint. Function calls
never become nodes of these classes: see :mod:`plain_calls`."""

_TYPES: dict[str, str | None] = {
    "bit": None,
    "blob": "BINARY",
    "bool": "BOOLEAN",
    "bytea": "BINARY",
    "character varying": "STRING",
    "datetime": "TIMESTAMP_NTZ",
    "double precision": "DOUBLE",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "hstore": None,
    "hugeint": None,
    "inet": "STRING",
    "int128": None,
    "int2": "SMALLINT",
    "int4": "INT",
    "int8": "BIGINT",
    "json": "STRING",
    "jsonb": "STRING",
    "money": None,
    "number": "DECIMAL(10, 2)",
    "nvarchar": "STRING",
    "object": None,
    "serial": None,
    "signed": "BIGINT",
    "text": "STRING",
    "timestamptz": "TIMESTAMP",
    "timetz": None,
    "tinytext": "STRING",
    "ubigint": None,
    "unsigned": None,
    "uuid": "STRING",
    "varbinary": "BINARY",
}
"""Types that sqlglot accepts but that Spark's grammar lacks. Each is mapped to the type to write instead, or to None if
Spark has no equivalent type."""

_SIZED = ("char", "character", "varchar")
_DECIMAL = ("decimal", "dec", "numeric")
_MOST_DIGITS = 38
_EXCLUDED = ("CURRENT", "GROUP", "TIES", "NO")
"""The words that follow EXCLUDE in a window frame."""

_OPERAND_ENDS = (
    TokenType.VAR,
    TokenType.IDENTIFIER,
    TokenType.STRING,
    TokenType.NUMBER,
    TokenType.R_PAREN,
    TokenType.R_BRACKET,
)


def refuse_other_dialects(text: Text, report: Report) -> None:
    """Reports the constructs that Spark's parser refuses. Wrong operators and types are reported even if sqlglot cannot
    parse the query."""
    for start, end, what, hint in (*_operators(text), *_types(text), *_clauses(text)):
        report.add((start, end), INVALID_QUERY, f"Spark has no {what}", hint)
    for node in text.tree.walk() if text.tree is not None else ():
        found = _construct(node)
        if found is not None:
            what, hint = found
            report.add(text.first_place(node.parent or node), INVALID_QUERY, f"{what} is not part of Spark's SQL", hint)


def _construct(node: exp.Expr) -> tuple[str, str] | None:
    match node:
        case exp.Distinct() if node.args.get("on") is not None:
            return "DISTINCT ON", f"write {ONE_ROW_PER_KEY}"
        # sqlglot also reads ``x::array<int>[0]`` and ``s.array[0]`` as arrays. The first is inside a cast, and the
        # second has one element.
        case exp.Array() if len(node.expressions) != 1 and node.find_ancestor(exp.Cast) is None:
            return "an array in square brackets", "write array(1, 2)"
        case exp.Slice() if not all(map(_is_bound, (node.this, node.expression))):
            return None  # ``prices[event:sku]`` is a path into a VARIANT.
        case exp.Order() if isinstance(node.parent, exp.Anonymous):
            return "ORDER BY in the arguments of a function", f"write {SORTED}"
        case _:
            return _NODES.get(type(node).__name__)


def _is_bound(side: exp.Expr | None) -> bool:
    """True if ``side``, one of the two bounds of a slice such as ``[1:2]``, is a literal or is missing."""
    return side is None or isinstance(side.this if isinstance(side, exp.Neg) else side, exp.Literal)


def _operators(text: Text) -> Iterator[tuple[int, int, str, str]]:
    """Returns the operators that Spark does not have, with their positions."""
    before: Token | None = None
    is_operand = False
    for token, following in pairwise(text.tokens):
        kind, hint = token.token_type, None
        is_binary = is_operand
        if kind == TokenType.DAMP:
            hint = f"write {EQUIVALENTS['ArrayOverlaps'].spark}, or AND"
        elif kind == TokenType.TILDE and is_binary:
            hint = f"write {EQUIVALENTS['RegexpLike'].spark}"
        elif token.text == "!" and following.token_type == TokenType.TILDE and is_binary:
            hint = "write NOT x RLIKE 'pattern', with Java's regular expressions"
        elif token.text == "@" and following.text == ">" and following.start == token.end + 1:
            hint = f"write {EQUIVALENTS['ArrayContainsAll'].spark}"
        if hint is not None:
            end = following.end if token.text in ("!", "@") else token.end
            yield token.start, end + 1, f"operator {text.query[token.start : end + 1]}", hint
        # ``|> EXTEND ~x``: the word after ``|>`` names the step.
        is_operand = kind in _OPERAND_ENDS and (before is None or before.token_type != TokenType.PIPE_GT)
        before = token


def _clauses(text: Text) -> Iterator[tuple[int, int, str, str]]:
    """Returns the words of other dialects that sqlglot skips or interprets, with their positions."""
    words = ["", *(token.text.upper() for token in text.tokens), "", "", ""]
    for at, token in enumerate(text.tokens, 1):
        before, word, after = words[at - 1 : at + 2]
        first, last = token, token
        if word == "GROUPS" and _begins_frame(words[at + 1 : at + 4]):
            what, hint = "window frame GROUPS", "write ROWS or RANGE"
        elif word == "EXCLUDE" and before in ("ROW", "PRECEDING", "FOLLOWING") and after in _EXCLUDED:
            what, hint = "EXCLUDE in a window frame", "omit EXCLUDE"
        elif word == "TABLESAMPLE" and after in ("BERNOULLI", "SYSTEM"):
            last = text.tokens[at]
            what, hint = f"TABLESAMPLE {after}", "write TABLESAMPLE (10 PERCENT)"
        elif word == "BETWEEN" and after == "SYMMETRIC":
            last = text.tokens[at]
            what, hint = "BETWEEN SYMMETRIC", "write x BETWEEN least(a, b) AND greatest(a, b)"
        elif word == "LIMIT" and after.isdecimal() and words[at + 2] == ",":
            last = text.tokens[at + 1]
            what, hint = "LIMIT with two numbers", f"write LIMIT n OFFSET {after}"
        else:
            continue
        yield first.start, last.end + 1, what, hint


def _begins_frame(words: Sequence[str]) -> bool:
    """True if the words after ROWS, RANGE or GROUPS begin a window frame. A column may be called GROUPS."""
    after = words[1:] if words[0] == "BETWEEN" else words
    bound = " ".join(after[:2])
    return bound == "CURRENT ROW" or bound.endswith((" PRECEDING", " FOLLOWING"))


def _types(text: Text) -> Iterator[tuple[int, int, str, str | None]]:
    """Returns the types after ``::`` and in CAST that Spark does not have, with their positions."""
    tokens = text.tokens
    for at in _type_places(tokens):
        first = tokens[at]
        name = " ".join(text.query[first.start : first.end + 1].lower().split())
        rest = [token.text for token in tokens[at + 1 : at + 6]]
        words = [word.lower() for word in rest]
        if name == "timestamp" and words[:3] == ["with", "time", "zone"]:
            yield first.start, tokens[at + 3].end + 1, 'type "timestamp with time zone"', "write TIMESTAMP"
        elif name in _SIZED and rest[:1] != ["("]:
            yield first.start, first.end + 1, f"{name.upper()} without a length", "write STRING"
        elif name in _DECIMAL and rest[:1] == ["("]:
            digits = [int(word) for word in rest[1:4:2] if word.isdecimal()]
            if digits and (digits[0] > _MOST_DIGITS or (rest[2:3] == [","] and digits[-1] > digits[0])):
                yield (
                    first.start,
                    first.end + 1,
                    f"{name.upper()} with more than {_MOST_DIGITS} digits, or with more decimal places than digits",
                    f"write {name.upper()}({_MOST_DIGITS}, 10)",
                )
        elif name in _TYPES:
            spark = _TYPES[name]
            hint = f"write {spark}" if spark is not None else "write one of Spark's types, such as STRING"
            yield first.start, first.end + 1, f'type "{name}"', hint
        elif rest[:2] == ["[", "]"]:
            yield first.start, tokens[at + 2].end + 1, f'type "{name}[]"', f"write ARRAY<{name.upper()}>"


def _type_places(tokens: list[Token]) -> Iterator[int]:
    """The indexes of the tokens with which a type begins."""
    casts: list[int] = []
    depth = 0
    for at, token in enumerate(tokens[:-1]):
        kind = token.token_type
        if kind == TokenType.DCOLON:
            yield at + 1
        elif kind == TokenType.L_PAREN:
            depth += 1
            if at and tokens[at - 1].text.upper() in ("CAST", "TRY_CAST"):
                casts.append(depth)
        elif kind == TokenType.R_PAREN:
            if casts and casts[-1] == depth:
                casts.pop()
            depth -= 1
        elif kind == TokenType.ALIAS and casts and casts[-1] == depth:
            yield at + 1
