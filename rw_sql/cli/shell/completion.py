"""Determines the choices of the Tab key: the keywords that the grammar accepts next, and matching names, properties,
values and columns."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

from prompt_toolkit.completion import CompleteEvent, Completer, Completion

from rw_sql.cli.shell.commands import NAMES
from rw_sql.cli.shell.words import QUERY_WORDS, STATEMENT_WORDS, TYPE_WORDS
from rw_sql.errors import UNTERMINATED, SqlError
from rw_sql.format_words import ENCODES, FORMATS
from rw_sql.syntax.lexing.identifiers import quoted, spark_word
from rw_sql.syntax.lexing.lexemes import OURS
from rw_sql.syntax.lexing.tokens import WORD, scan
from rw_sql.syntax.parsing.lalr_tables import SIGNS, VALUES, Reduction, tables
from rw_sql.syntax.parsing.parser import Parser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prompt_toolkit.document import Document

    from rw_sql.connectors.spec import ConnectorSpec, OptionSpec
    from rw_sql.syntax.lexing.tokens import Token

_WORD = re.compile(r"[\w$.]*$")
_COMMAND = re.compile(r"(?:^|\s)\\(\w*)$")
_OPTION = re.compile(r"""(?:"(?P<quoted>[^"]+)"|(?P<key>[\w.]+))\s*=\s*$""")
_CONNECTOR = re.compile(r"""\b(?:connector|type)\s*=\s*'([\w-]+)'""", re.IGNORECASE)
_KEY_ENCODES = ("TEXT", "BYTES")
"""The words that KEY ENCODE accepts in addition to the encoding of the record's value."""

RELATIONS = ("source", "table", "materialized_view", "spark")
_ALL_KINDS = ("source", "table", "materialized_view", "sink", "connection", "secret")
_KIND_WORDS = {
    "SOURCE": ("source",),
    "SPLITS": ("source",),
    "CONTINUITY": ("source",),
    "OFFSETS": ("source",),
    "TABLE": ("table",),
    "VIEW": ("materialized_view",),
    "SINK": ("sink",),
    "CONNECTION": ("connection",),
    "SECRET": ("secret",),
    "SCHEMA": ("schema",),
    "USE": ("schema",),
    "FROM": RELATIONS,
    "JOIN": RELATIONS,
    "INTO": RELATIONS,
    "UPDATE": RELATIONS,
    "DESCRIBE": RELATIONS,
    "FRAGMENTS": ("materialized_view", "sink"),
    "OF": _ALL_KINDS,
    "FOR": _ALL_KINDS,
}
"""The kinds of objects whose names may follow a word."""


class Names(Protocol):
    """The names in a warehouse, for completion. The methods must be safe to call from a thread other than the main
    thread. Names that cannot be read are missing from the results."""

    def objects(self) -> dict[str, str]:
        """Maps the name of each object to its kind: source, table, materialized_view, sink, connection, secret, schema
        or spark."""
        ...

    def columns(self, relation: str) -> tuple[str, ...]:
        """The columns of a relation."""
        ...

    def connector(self, name: str) -> str | None:
        """The connector of a source, table, sink or connection."""
        ...


@dataclass(frozen=True, slots=True)
class Offer:
    """One choice for the text at the cursor. ``meta`` describes the choice. A quoted choice matches the word at the
    cursor if ``name``, its unquoted form, begins with that word."""

    text: str
    meta: str = ""
    name: str = ""

    def begins_with(self, word: str) -> bool:
        """True if the choice begins with a word, regardless of upper and lower case."""
        return (self.name or self.text).lower().startswith(word.lower())


def _object(name: str, kind: str, objects: Mapping[str, str], write: Callable[[str], str]) -> Offer:
    """An object's name as a user would type it. ``write`` converts each part of the name to the text to type."""
    schema, dot, last = name.partition(".")
    parts = (schema, last) if dot and objects.get(schema) == "schema" else (name,)
    return Offer(".".join(map(write, parts)), kind.replace("_", " "), name)


class StatementCompleter(Completer):
    """Completes the word before the cursor with the possible continuations of the statement."""

    def __init__(
        self, names: Names, *, seconds_to_keep: float = 3.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """The objects' names are read again when they were last read more than ``seconds_to_keep`` seconds ago."""
        self._names = names
        self._seconds = seconds_to_keep
        self._clock = clock
        self._known: dict[str, str] = {}
        self._asked_at = -seconds_to_keep

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """The choices at the cursor that begin with the word before the cursor."""
        if command := _COMMAND.search(document.current_line_before_cursor):
            for name in NAMES:
                if name.startswith(command[1]):
                    yield Completion(name, start_position=-len(command[1]), display=f"\\{name}")
            return
        start, end = statement_around(document.text, document.cursor_position)
        statement, place = document.text[start:end], document.cursor_position - start
        word, offers = self._offers(statement, place)
        seen = set()
        for offer in offers:
            if offer.begins_with(word) and offer.text not in seen:
                seen.add(offer.text)
                yield Completion(offer.text, start_position=-len(word), display_meta=offer.meta)

    def _objects(self) -> dict[str, str]:
        if self._clock() - self._asked_at >= self._seconds:
            self._known = self._names.objects()
            self._asked_at = self._clock()
        return self._known

    def _offers(self, statement: str, place: int) -> tuple[str, Iterable[Offer]]:
        """The word before the cursor, and the choices for that position."""
        before = statement[:place]
        try:
            tokens = scan(before)
        except SqlError as error:
            opened = -1 if error.kind is not UNTERMINATED or error.span is None else error.span.start
            if opened < 0 or before[opened] != "'":
                return "", ()
            return before[opened + 1 :], [
                Offer(f"{offer.text}'", offer.meta) for offer in self._values(statement, before[:opened])
            ]
        found = _WORD.search(before)
        word = found[0] if found is not None else ""
        tokens = [token for token in tokens if token.start < place - len(word) and token.text]
        if word.startswith("."):
            return "", ()
        place_of = Place.after(before[: place - len(word)], tokens)
        if place_of.is_query:
            return self._in_query(statement, tokens, word)
        return word, self._in_statement(statement, before[: place - len(word)], tokens, place_of)

    def _in_statement(self, statement: str, before: str, tokens: list[Token], place: Place) -> Iterator[Offer]:
        words = [token.upper if token.kind == WORD else token.text for token in tokens]
        if place.is_option_key:
            yield from self._keys(statement, words, tokens)
            return
        if {"STRING", "NUMBER"} <= place.accepted and words[-1:] == ["="]:
            yield from (Offer(f"'{offer.text}'", offer.meta) for offer in self._values(statement, before))
        if words[:2] == ["ALTER", "TABLE"] and words[-1] == "COLUMN":
            if "ADD" not in words:
                columns = self._names.columns(tokens[2].value)
                yield from (Offer(quoted(column), "column", column) for column in columns)
        elif "NAME" in place.accepted or "WORD" in place.accepted:
            if words[-1:] in (["FORMAT"], ["ENCODE"]):
                spec = self._spec(statement, words, tokens)
                yield from (Offer(word, words[-1].lower()) for word in _format_words(words, spec))
            yield from self._named(words)
        if {"STRUCT", "TIMESTAMP"} <= place.accepted:
            yield from (Offer(word, "type") for word in TYPE_WORDS)
        if not tokens:
            yield from (Offer(word) for word in sorted({*place.keywords, *STATEMENT_WORDS}))
            return
        yield from (Offer(word) for word in place.keywords)

    def _named(self, words: list[str]) -> Iterator[Offer]:
        """The names that can follow these words."""
        last = words[-1] if words else ""
        if words[-2:] == ["SYSTEM", "SET"] or last in ("SET", "SHOW"):
            yield from _parameters(is_system=words[-2:] == ["SYSTEM", "SET"])
            return
        if len(words) >= 3 and words[-3] in ("SET", "SYSTEM") and last in ("=", "TO"):
            return
        if words[-2:] == ["IF", "EXISTS"]:
            last = words[-3] if len(words) > 2 else ""
        if last == "WITH" and words[-2:-1] == ["SWAP"]:
            last = next((word for word in words if word in _KIND_WORDS), "")
        if words[:1] == ["CREATE"] and last not in ("FROM", "CONNECTION", "SECRET"):
            return  # a new name
        if words[:2] in (["CREATE", "CONNECTION"], ["CREATE", "SECRET"]) and len(words) == 2:
            return
        kinds = ("schema",) if words[:1] == ["SHOW"] and last == "FROM" else _KIND_WORDS.get(last, ())
        objects = self._objects()
        yield from (_object(name, kind, objects, quoted) for name, kind in sorted(objects.items()) if kind in kinds)

    def _keys(self, statement: str, words: list[str], tokens: list[Token]) -> Iterator[Offer]:
        spec = self._spec(statement, words, tokens)
        given = {match["quoted"] or match["key"] for match in re.finditer(_OPTION.pattern[:-1], statement)}
        if spec is None:
            key = "type" if words[:2] == ["CREATE", "CONNECTION"] else "connector"
            if key not in given:
                yield Offer(key, "needed")
            return
        for option in spec.options.values():
            if not option.is_pattern and not option.is_ignored and option.key not in given:
                yield Offer(option.key, "needed" if option.is_required else option.type)

    def _values(self, statement: str, before: str) -> list[Offer]:
        """The values of the property or parameter before the last ``=`` in ``before``."""
        from rw_sql.connectors.registry import connector_names, sink_connector_names

        found = _OPTION.search(before)
        if found is None:
            return []
        key = found["quoted"] or found["key"]
        words = before.upper().split()
        if key == "connector":
            names = sink_connector_names() if _is_sink(words) else connector_names()
            return [Offer(name, "connector") for name in names]
        if words[:1] == ["SET"] or words[:3] == ["ALTER", "SYSTEM", "SET"]:
            return _parameter_values(key)
        tokens = [token for token in scan(before) if token.text]
        spec = self._spec(statement, [token.upper for token in tokens], tokens)
        option = None if spec is None else spec.option(key)
        return [] if option is None else _option_values(option)

    def _spec(self, statement: str, words: list[str], tokens: list[Token]) -> ConnectorSpec | None:
        """Returns the spec of a connector. This is the connector that the statement names or, in an ALTER statement
        without a connector's name, the connector of the altered object. Returns None if there is no such connector."""
        from rw_sql.connectors.spec import load_sink_spec, load_spec

        named = _CONNECTOR.search(statement)
        name = named[1].lower() if named is not None else None
        if name is None and words[:1] == ["ALTER"]:
            objects = self._objects()
            name = next((self._names.connector(token.value) for token in tokens if token.value in objects), None)
        if name is None:
            return None
        try:
            return load_sink_spec(name) if _is_sink(words) else load_spec(name)
        except (SqlError, OSError, KeyError):
            return None

    def _in_query(self, statement: str, tokens: list[Token], word: str) -> tuple[str, Iterable[Offer]]:
        objects = self._objects()
        try:
            everything = [token for token in scan(statement) if token.text]
        except SqlError:
            everything = tokens
        last = tokens[-1].upper if tokens and tokens[-1].kind == WORD else ""
        found = [(name, kind) for name, kind in sorted(objects.items()) if kind in RELATIONS]
        relations = [_object(name, kind, objects, spark_word) for name, kind in found]
        is_relation = last in ("FROM", "JOIN", "INTO", "TABLE", "UPDATE")
        if is_relation and "." in word and word.removeprefix("public.") == word:
            return word, relations
        if "." in word:
            qualifier, _, word = word.rpartition(".")
            named = _aliases(everything, objects)
            relation = named.get(qualifier.lower()) or named.get(qualifier.rpartition(".")[2].lower())
            columns = () if relation is None else self._names.columns(relation)
            return word, [Offer(spark_word(column), "column", column) for column in columns]
        if is_relation:
            return word, relations
        used = dict.fromkeys(_aliases(everything, objects).values())
        columns = tuple(dict.fromkeys(column for relation in used for column in self._names.columns(relation)))
        own = (Offer(spark_word(column), "column", column) for column in columns)
        offers = [*own, *relations, *map(Offer, QUERY_WORDS)]
        if word:
            offers += [Offer(name, "function") for name in _functions()]
        return word, offers


def statement_around(text: str, place: int) -> tuple[int, int]:
    """The range of the statement that contains the position ``place``."""
    start = 0
    position = 0
    while position < len(text):
        match = OURS.match(text, position)
        assert match is not None
        position = match.end()
        if match["end"]:
            if position > place:
                return start, match.start()
            start = position
    return start, len(text)


@dataclass(frozen=True, slots=True)
class Place:
    """What the grammar accepts at the end of the typed text. The fields are the accepted terminals, and the spellings
    of the terminals that are keywords."""

    accepted: frozenset[str] = frozenset()
    keywords: tuple[str, ...] = ()
    is_option_key: bool = False
    is_query: bool = False

    @classmethod
    def after(cls, text: str, tokens: list[Token]) -> Place:
        """Returns the place after ``tokens``. These tokens are the beginning of an rw_sql statement.

        For a Spark statement, the result is a place inside a query.
        """
        prefix = _Prefix(text, [*tokens, scan("")[0]], 0, len(tokens))
        begun = cls._begun_keywords(text, tokens)
        try:
            is_in_text = prefix.read()
        except SqlError:
            return cls(keywords=begun) if begun else cls(is_query=bool(tokens))
        if is_in_text:
            return cls(is_query=True)
        accepted = frozenset(prefix.accepted())
        return cls(
            accepted=accepted,
            keywords=tuple(sorted({*begun, *(words for name, words in _spellings().items() if name in accepted)})),
            is_option_key=prefix.tables.captures[prefix.states[-1]] == "OPTION_KEY",
            is_query=prefix.tables.captures[prefix.states[-1]] in ("QUERY", "EXPRESSION"),
        )

    @staticmethod
    def _begun_keywords(text: str, tokens: list[Token]) -> tuple[str, ...]:
        """The words that complete a keyword of several words, such as NOT EXISTS after IF. The result is empty if the
        last tokens do not begin such a keyword."""
        for size in (1, 2):
            begun = " ".join(token.upper for token in tokens[-size:]) + " "
            if len(tokens) <= size or not any(spelling.startswith(begun) for spelling in _spellings().values()):
                continue
            prefix = _Prefix(text, [*tokens[:-size], scan("")[0]], 0, len(tokens) - size)
            try:
                prefix.read()
            except SqlError:
                continue
            accepted = prefix.accepted()
            rest = {
                spelling.removeprefix(begun)
                for name, spelling in _spellings().items()
                if name in accepted and spelling.startswith(begun)
            }
            if rest:
                return tuple(sorted(rest))
        return ()


class _Prefix(Parser):
    """A parser for the beginning of a statement. The parser builds no statement, and stops at the end of the text."""

    def read(self) -> bool:
        """Reads all tokens. Returns True if the text ends inside a query or expression.

        Raises SqlError if the text is not the beginning of a statement.
        """
        while self.at < self.last:
            terminal = self.tables.captures[self.states[-1]]
            if terminal in ("QUERY", "EXPRESSION"):
                try:
                    self.captured(terminal)
                except SqlError:
                    return True
                if self.at >= self.last:
                    return True
                taken = terminal
            else:
                taken = (self.captured(terminal) or self.terminal())[0]
            self._take(taken)
        return False

    def _take(self, terminal: str) -> None:
        while True:
            action = self.tables.actions[self.states[-1]].get(terminal)
            if isinstance(action, int):
                self.states.append(action)
                self.values.append(None)
                return
            if action is None:
                raise SqlError(UNTERMINATED, "no statement begins with this text", hint="write SELECT, SHOW or CREATE")
            self.reduce(action)

    def reduce(self, rule: Reduction) -> None:
        """Reduces a rule without building its value."""
        if rule.size:
            del self.states[-rule.size :], self.values[-rule.size :]
        self.values.append(None)
        self.states.append(self.tables.goto[self.states[-1]][rule.origin])


@cache
def _spellings() -> dict[str, str]:
    """The spelling of each keyword of the grammar."""
    spelled = {name: " ".join(words) for names in tables().spelled.values() for name, words in names}
    return {name: words for name, words in spelled.items() if name not in VALUES and name not in SIGNS.values()}


@cache
def _functions() -> tuple[str, ...]:
    from rw_sql.plan.queries.analysis.functions import builtins

    return tuple(sorted(name for name in builtins() if name.isidentifier()))


def _aliases(tokens: list[Token], objects: dict[str, str]) -> dict[str, str]:
    """Maps names and aliases to the relations of a query."""
    found: dict[str, str] = {}
    for index, token in enumerate(tokens):
        name = token.value
        if index > 1 and tokens[index - 1].text == "." and f"{tokens[index - 2].value}.{name}" in objects:
            name = f"{tokens[index - 2].value}.{name}"
            found[name.lower()] = name
        if name not in objects or (index and tokens[index - 1].upper not in ("FROM", "JOIN", ",", ".", "INTO")):
            continue
        found[token.value.lower()] = name
        after = tokens[index + 1 : index + 3]
        alias = after[1] if len(after) == 2 and after[0].upper == "AS" else after[0] if after else None
        if alias is not None and alias.kind == WORD and alias.upper not in _AFTER_RELATION:
            found[alias.value] = name
    return found


_AFTER_RELATION = frozenset({word for phrase in QUERY_WORDS for word in phrase.split()} | {"SET", "FULL", "RIGHT"})


def _format_words(words: list[str], spec: ConnectorSpec | None) -> tuple[str, ...]:
    """Returns the words that can follow the last of ``words``, which is FORMAT, ENCODE or KEY ENCODE. After FORMAT and
    ENCODE, these are the words that the connector accepts or, if the connector is not known, the words that the parser
    accepts. After KEY ENCODE, these are the encoding of the record's value and the words in _KEY_ENCODES."""
    if words[-1] == "FORMAT":
        return FORMATS if spec is None else tuple(spec.formats)
    places = [at for at in range(len(words) - 2) if words[at] == "FORMAT" and words[at + 2] == "ENCODE"]
    if spec is None or not places:
        return ENCODES
    format, value = words[places[-1] + 1], words[places[-1] + 3 : places[-1] + 4]
    return tuple(dict.fromkeys((*value, *_KEY_ENCODES))) if value else spec.formats.get(format, ())


def _is_sink(words: list[str]) -> bool:
    return "SINK" in words[:4]


def _parameters(*, is_system: bool) -> Iterator[Offer]:
    from rw_sql.model.parameters import SESSION_PARAMETERS, SYSTEM_PARAMETERS

    known = SYSTEM_PARAMETERS if is_system else SESSION_PARAMETERS
    yield from (Offer(name, "parameter") for name in sorted(known))


def _parameter_values(name: str) -> list[Offer]:
    from rw_sql.model.parameters import SESSION_PARAMETERS, SYSTEM_PARAMETERS

    parameter = SESSION_PARAMETERS.get(name.lower()) or SYSTEM_PARAMETERS.get(name.lower())
    if parameter is None:
        return []
    found = []
    for value in dict.fromkeys(("true", "false", "yes", "no", "spark", "risingwave", parameter.default)):
        try:
            if parameter.read(value) == value:
                found.append(Offer(value, "default" if value == parameter.default else ""))
        except (SqlError, ValueError):
            continue
    return found


def _option_values(option: OptionSpec) -> list[Offer]:
    values = option.choices or (("true", "false") if option.type == "boolean" else ())
    if option.default is not None:
        values = tuple(dict.fromkeys((*values, option.default)))
    return [Offer(value, "default" if value == option.default else "") for value in values]
