"""Actions for the parts that many statements share: names, options, switches, types, columns."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from rw_sql.errors import DUPLICATE_CLAUSE, INVALID_OPTION, SYNTAX_ERROR, UNKNOWN_OPTION, Span, SqlError, near_names
from rw_sql.syntax.lexing.free_text import spaced
from rw_sql.syntax.lexing.identifiers import RESERVED, literal, quoted, sql_name
from rw_sql.syntax.lexing.tokens import QUOTED, WORD, Token
from rw_sql.syntax.statements.common import (
    ConnectionValue,
    Expression,
    Name,
    NullValue,
    NumberValue,
    Option,
    OptionKey,
    OptionValue,
    Query,
    SecretValue,
    TextValue,
    WordValue,
)
from rw_sql.syntax.statements.source import SplitId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")


def is_given() -> bool:
    return True


def is_not_given() -> bool:
    return False


def is_nothing() -> None:
    return None


def first(item: T) -> list[T]:
    return [item]


def more(items: list[T], item: T) -> list[T]:
    items.append(item)
    return items


def joined(start: Span, end: Span) -> Span:
    """Returns the range from the start of the first span to the end of the second span."""
    return Span(start.start, end.end, start.line, start.column)


def name(*parts: Token) -> Name:
    """A dotted name. A reserved word is part of the name only if it directly follows the dot."""
    for before, part in pairwise(parts):
        if part.kind == WORD and part.start > before.end + 1 and part.upper in RESERVED | _ENDINGS:
            raise SqlError(
                SYNTAX_ERROR,
                f"expected identifier, found: {part.text}",
                span=part.span,
                hint="write a name after the dot",
            )
    return Name(parts=tuple(part.value for part in parts), span=joined(parts[0].span, parts[-1].span))


_ENDINGS = frozenset({"CASCADE", "RESTRICT"})


def dropped(name: Name) -> Name:
    """The name after DROP. Raises SqlError SYNTAX_ERROR if the word is CASCADE or RESTRICT, because the name is then
    missing."""
    if len(name.parts) == 1 and name.last.upper() in _ENDINGS and name.span.end - name.span.start == len(name.last):
        raise SqlError(
            SYNTAX_ERROR,
            f"expected identifier, found: {name.last.upper()}",
            hint=f'as a name it must be quoted: "{name.last}"',
            span=name.span,
        )
    return name


def text_value(token: Token) -> TextValue:
    return TextValue(text=token.value, span=token.span)


def plain_number(token: Token) -> Token:
    return token


def negative_number(token: Token) -> Token:
    return Token(
        token.kind, "-" + token.text, "-" + token.value, token.start - 1, token.end, token.line, token.column - 1
    )


def number_value(token: Token) -> NumberValue:
    return NumberValue(text=token.value, span=token.span)


def word_value(token: Token) -> WordValue | TextValue:
    """Returns a value that is a plain word or a text in double quotes. Double quotes around a value count as string
    quotes."""
    if token.kind == QUOTED:
        return TextValue(text=token.value, span=token.span)
    return WordValue(text=token.value, span=token.span)


def constant(token: Token) -> WordValue:
    return WordValue(text=token.value, span=token.span)


def edge(before: Name, after: Name) -> str:
    return f"{_dotted(before)} -> {_dotted(after)}"


def _dotted(written: Name) -> str:
    return ".".join(quoted(part) for part in written.parts)


def edges(*listed: str) -> str:
    return ", ".join(listed)


def fixed_order(listed: str) -> WordValue:
    return WordValue(text=f"FIXED({listed})")


def name_value(written: Name) -> Name:
    return written


def named_connection(word: Name, connection: Name) -> ConnectionValue:
    """Reads ``connection = connection c``, the form in which some versions of RisingWave print the option."""
    if word.parts != ("connection",):
        message = f"expected ',' or ')' after option definition, found: {connection}"
        raise SqlError(SYNTAX_ERROR, message, span=connection.span, hint="write , or ) after the value")
    return ConnectionValue(connection=connection, span=connection.span)


def null_value() -> NullValue:
    return NullValue()


def secret_value(secret: Name) -> SecretValue:
    return SecretValue(secret=secret, span=secret.span)


def secret_file_value(secret: Name) -> SecretValue:
    return SecretValue(secret=secret, is_file=True, span=secret.span)


def option(key: Token, value: OptionValue | Name) -> Option:
    if isinstance(value, Name):
        value = _named(key, value)
    elif isinstance(value, ConnectionValue) and key.value != "connection":
        raise SqlError(
            SYNTAX_ERROR,
            "expected a concrete value, found: connection",
            span=value.span,
            hint=f"write {key.value} = '…'",
        )
    elif key.value == "connection" and not isinstance(value, ConnectionValue):
        raise SqlError(
            SYNTAX_ERROR,
            "expected the name of a connection",
            span=value.span or key.span,
            hint="write a connection's name without quotes: connection = a_connection",
        )
    elif key.value == "backfill_order":
        if not isinstance(value, WordValue) or value.text in _WORDS:
            raise SqlError(
                SYNTAX_ERROR,
                "expected backfill order strategy",
                span=value.span or key.span,
                hint="backfill_order = auto, none, or FIXED (a -> b)",
            )
    elif isinstance(value, WordValue) and value.text not in _WORDS:
        raise SqlError(
            SYNTAX_ERROR,
            f"expected a concrete value in quotes, found: {value.text}",
            span=key.span,
            hint=f"write '{value.text}' for a string",
        )
    span = joined(key.span, value.span) if value.span.end else key.span
    return Option(key=key.value, value=value, span=span, key_span=key.span)


_WORDS = ("true", "false", "null")
_BACKFILL_ORDERS = ("auto", "none", "default")


def _named(key: Token, written: Name) -> OptionValue:
    """Returns an option's value that has the form of a name. The value is a connection, a backfill order, or a string
    in double quotes."""
    if key.value == "connection":
        return ConnectionValue(connection=written, span=written.span)
    if key.value == "backfill_order" and str(written) in _BACKFILL_ORDERS:
        return WordValue(text=written.last, span=written.span)
    if (
        key.value != "backfill_order"
        and len(written.parts) == 1
        and written.span.end - written.span.start > len(written.last)
    ):
        return TextValue(text=written.last, span=written.span)
    raise SqlError(
        SYNTAX_ERROR,
        f"expected a concrete value in quotes, found: {written}",
        hint=f"write {literal(str(written))} for a string, SECRET {sql_name(written.key)} for a secret",
        span=written.span,
    )


def options(listed: list[Option]) -> tuple[Option, ...]:
    refuse_twice("option", [(o.key, o.key_place) for o in listed])
    return tuple(listed)


def option_keys(keys: list[Token]) -> tuple[OptionKey, ...]:
    refuse_twice("option", [(key.value, key.span) for key in keys])
    return tuple(OptionKey(key=key.value, span=key.span) for key in keys)


def with_options(listed: tuple[Option, ...] = ()) -> tuple[Option, ...]:
    return listed


def with_switches(*listed: Option) -> tuple[Option, ...]:
    refuse_twice("option", [(o.key, o.key_place) for o in listed])
    return listed


def refuse_twice(what: str, named: Sequence[tuple[str, Span]]) -> None:
    """Raises SqlError DUPLICATE_CLAUSE at the second of two options with the same name."""
    seen: set[str] = set()
    for key, span in named:
        if key in seen:
            raise SqlError(
                DUPLICATE_CLAUSE, f'{what} "{key}" is given twice', span=span, hint=f'omit one of the two "{key}"'
            )
        seen.add(key)


def read_switches(written: Sequence[Option], known: Mapping[str, T]) -> dict[str, Any]:
    """The values of the switches in ``known``, with defaults for missing switches.

    ``known`` maps each switch to its default. If the default is a bool, the switch takes true or false. If the default
    is a tuple, the switch takes one of the tuple's words, and the first word is the actual default.
    """
    read: dict[str, Any] = {k: d[0] if isinstance(d, tuple) else d for k, d in known.items()}
    for each in written:
        if each.key not in known:
            near = near_names(each.key, known)
            hint = f"did you mean {near[0].upper()}?" if near else f"known options: {', '.join(known).upper()}"
            raise SqlError(
                UNKNOWN_OPTION, f'there is no option "{each.key.upper()}" here', hint=hint, span=each.key_place
            )
        default = known[each.key]
        allowed = default if isinstance(default, tuple) else ("true", "false")
        text = each.value.text.lower() if isinstance(each.value, (TextValue, WordValue)) else None
        if text not in allowed:
            wanted = " or ".join(f"'{word}'" if isinstance(default, tuple) else word for word in allowed)
            raise SqlError(
                INVALID_OPTION,
                f"{each.key.upper()} must be {wanted}",
                span=each.value.span,
                hint=f"write {wanted} after {each.key.upper()} =",
            )
        read[each.key] = text if isinstance(default, tuple) else text == "true"
    return read


def reason(text: Token | None = None) -> str | None:
    return text.value if text is not None else None


def split(token: Token) -> SplitId:
    return SplitId(id=token.value, span=token.span)


def for_splits(*splits: SplitId) -> tuple[SplitId, ...]:
    refuse_twice("split", [(s.id, s.span) for s in splits])
    return splits


def expression(token: Token) -> Expression:
    """An expression that the parser has cut out of the statement."""
    return Expression(text=spaced(token), span=token.span)


def query(token: Token) -> Query:
    """A query that the parser has cut out of the statement."""
    return Query(text=token.text, words=tuple(map(_query_word, token.parts)), span=token.span)


_QUERY_WORDS = RESERVED | {"BETWEEN", "BY", "INTERVAL", "OVER", "PARTITION", "VALUES"}


def _query_word(token: Token) -> str:
    return token.upper if token.kind == WORD and token.upper in _QUERY_WORDS else token.text


def column_names(*names: tuple[Token, ...]) -> tuple[str, ...]:
    return tuple(token.value for token in names[0]) if names else ()


def name_list(*names: Token) -> tuple[Token, ...]:
    refuse_twice("column", [(n.value, n.span) for n in names])
    return names


def words(*tokens: Token) -> str:
    """The words joined with spaces, such as ``MATERIALIZED VIEWS``."""
    return " ".join(token.upper for token in tokens)


OFFSET_DIGITS = 60
"""The maximum number of digits of an offset. Kinesis's sequence numbers have 56 digits."""


def whole(token: Token, most_digits: int = 19) -> int:
    """An integer with its optional sign. Raises SqlError INVALID_OPTION if the number is not an integer or has too many
    digits."""
    digits = token.value.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > most_digits:
        raise SqlError(
            INVALID_OPTION,
            f"expected a whole number, found: {token.text}",
            span=token.span,
            hint=f"write a whole number of at most {most_digits} digits",
        )
    return int(token.value)


def numbers(*tokens: Token) -> tuple[int, ...]:
    return tuple(whole(token) for token in tokens)


def parameter_values(*values: Any) -> tuple[Any, ...]:
    for value in values[1:]:
        if isinstance(value, WordValue) and value.text == "default":
            raise SqlError(
                SYNTAX_ERROR,
                "expected parameter list value, found: default",
                span=value.span,
                hint="leave DEFAULT out of the list, or write DEFAULT alone",
            )
    return values


PART_RULES: dict[str, Callable[..., Any]] = {
    "is_given": is_given,
    "is_not_given": is_not_given,
    "is_nothing": is_nothing,
    "first": first,
    "more": more,
    "name": name,
    "text_value": text_value,
    "plain_number": plain_number,
    "negative_number": negative_number,
    "number_value": number_value,
    "word_value": word_value,
    "constant": constant,
    "parameter_constant": constant,
    "edge": edge,
    "edges": edges,
    "fixed_order": fixed_order,
    "name_value": name_value,
    "named_connection": named_connection,
    "column_names": column_names,
    "name_list": name_list,
    "numbers": numbers,
    "parameter_values": parameter_values,
    "null_value": null_value,
    "secret_value": secret_value,
    "secret_file_value": secret_file_value,
    "option": option,
    "switch": option,
    "options": options,
    "option_keys": option_keys,
    "with_options": with_options,
    "with_switches": with_switches,
    "reason": reason,
    "split": split,
    "for_splits": for_splits,
}
