"""Replaces the secrets in the text of statements with asterisks.

The text is read as lexemes, so that comments, quotes and typing errors around a secret do not matter. Regular
expressions also find the secrets in prose, comments and strings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

SECRET_WORDS = "passw|pwd|secret|token|credential|jaas|jwt|nkey|key[._]pem|(?:private|client|account|api)[._]?key"
"""A pattern for words in the names of properties and variables whose values may be secret."""

_LITERAL = (
    r"(?:\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z)"
    r"|[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)|'(?:[^']|'')*(?:'|\Z)|\"[^\"]*(?:\"|\Z))"
)
_CONTENT = re.compile(
    rf"(\b(?:CREATE|ALTER)\s+SECRET\b(?:'(?:[^']|'')*'|[^;'])*?\bAS\b\s*)({_LITERAL}|[^\s;]+)",
    re.IGNORECASE | re.DOTALL,
)
_STATEMENT = re.compile(r"\b(?:CREATE|ALTER)\s+SECRET\b", re.IGNORECASE)
_TELLING = re.compile(
    rf"((?<![\w.])(?:(?=[\w.]*(?:{SECRET_WORDS}))[\w.]++|seed)\"?\s*=?\s*)({_LITERAL})", re.IGNORECASE | re.DOTALL
)
_EMBEDDED = re.compile(
    r"()('[^']*(?:://[^\s/'@]*:[^\s/'@]*@|[?&;]\s*passw\w*=)[^']*(?:'|\Z))", re.IGNORECASE | re.DOTALL
)
"""Matches a string that contains a password: in the user part of a URL, or as a parameter."""

_ANY = re.compile(rf"()({_LITERAL})", re.DOTALL)
_PLAIN_KEYS = frozenset({
    "connector", "type", "topic", "properties.bootstrap.server", "table.name", "schema.name", "scan.startup.mode",
    "primary_key", "refresh_mode", "backend",
})  # fmt: skip
"""Properties whose values are never secret. An error about an unknown property masks the values of all others, because
the unknown property may be a mistyped password."""

_NO_KEYS = frozenset({"CHECKPOINT", "OFFSETS", "FILE", "REASON", "TABLE"})
"""Words that precede a literal that is not the value of a property and is therefore not masked."""

_SECRET_KEYS = frozenset({"backend", "name", "path", "field", "auth_method", "mount", "addr", "namespace"})
"""The options of CREATE SECRET, whose values are not secret."""

_COMMENT = r"(?P<comment>--[^\n]*+|(?P<block>/\*))"
_OTHERS = r"`(?:[^`]|``)*+`?|(?P<dollar>\$(?:[^\W\d]\w*+)?\$)|(?P<space>\s++)|(?P<word>[\w$]++)|."
_OURS = re.compile(
    rf"""{_COMMENT}|(?P<string>[eE]'(?:[^'\\]|\\.|'')*+'?|'(?:[^']|'')*+'?|"(?:[^"]|"")*+"?)|{_OTHERS}""", re.DOTALL
)
_SPARKS = re.compile(
    rf"""{_COMMENT}|(?P<string>[rR]'[^']*+'?|[rR]"[^"]*+"?|'(?:[^'\\]|\\.|'')*+'?|"(?:[^"\\]|\\.|"")*+"?)|{_OTHERS}""",
    re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_BLANK = r"(?:[\s\ufeff]++|--[^\n]*+(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*+\*/)"
_OF_SPARK = re.compile(
    rf"""{_BLANK}*+(?:(?:SELECT|WITH|INSERT|UPDATE|DELETE|MERGE|VALUES|FROM|CACHE|ADD|LIST|CALL|DECLARE|EXECUTE)\b
    |CREATE{_BLANK}++(?:OR{_BLANK}++REPLACE{_BLANK}++)?+(?:(?:GLOBAL|TEMP|TEMPORARY){_BLANK}++)*+(?:VIEW|FUNCTION)\b)""",
    re.VERBOSE | re.IGNORECASE,
)
"""Matches the first words of statements to which the quoting rules of Spark apply."""

_TELLING_KEY = re.compile(rf"{SECRET_WORDS}|\Aseed\Z", re.IGNORECASE)
_VERBS = frozenset({"CREATE", "ALTER"})
_MORE_VERBS = frozenset({"UPDATE", "REPLACE", "MODIFY", "SET"})
"""Words that begin a statement if its author mistakes them for ALTER."""

_BETWEEN = frozenset({"OR", "REPLACE", "TEMP", "TEMPORARY", "IF", "NOT", "EXISTS", "A", "NEW"})
_MOST_BETWEEN = 5
_IF_EXISTS = frozenset({"IF", "NOT", "EXISTS"})
_BEFORE_CONTENT = frozenset({"AS", "TO", "SET", "VALUE", "IDENTIFIED", "BY", "=", ":", ">"})
_AFTER_NAME = _BEFORE_CONTENT | {"WITH", "RENAME", "OWNER", "(", ",", ";"}
_NOT_CONTENT = frozenset({"AS", "WITH", "SECRET"})
_OTHER_CHANGES = frozenset({"RENAME", "OWNER", "SCHEMA"})
_STARTS = frozenset({
    "ALTER", "BEGIN", "CANCEL", "COMMIT", "CREATE", "DELETE", "DESCRIBE", "DROP", "EXPLAIN", "FLUSH", "INJECT",
    "INSERT", "MERGE", "PAUSE", "REBUILD", "REFRESH", "RESET", "RESUME", "REWIND", "SELECT", "SET", "SHOW", "UPDATE",
    "USE", "VALIDATE", "WAIT", "HINT", "^",
})  # fmt: skip
"""If a line begins with one of these, the statement before it has ended, even without a ``;``. The last two are of
rendered errors."""

_OF_QUERIES = frozenset({
    "SELECT", "FROM", "WHERE", "ON", "HAVING", "VALUES", "USING", "MERGE", "UPDATE", "DELETE", "INSERT", "WHEN",
})  # fmt: skip
_BEFORE_OPTIONS = frozenset({"WITH", "SET", "OPTIONS"})
_HARMLESS = frozenset({"TRUE", "FALSE", "NULL", "DEFAULT"})
_SHOWN_KEYS = frozenset({
    "aws.credentials.access_key_id", "aws.credentials.role.arn", "aws.credentials.role.external_id",
    "azblob.credentials.account_name", "s3.credentials.access",
})  # fmt: skip
"""Properties whose names suggest a secret, but whose values are not secret. Messages show these values."""

_KEY_FILE = re.compile(r"'(?:fs://|[/~]|\.\.?/)")
"""Matches the beginning of the path of a file that contains a key."""

_KEYWORDS = frozenset({
    *_STARTS, *_OF_QUERIES, *_BETWEEN, *_BEFORE_CONTENT, *_OTHER_CHANGES, *_NO_KEYS, *_HARMLESS, "CONNECTION",
    "CONNECTOR", "FOUND", "MATERIALIZED", "OFFSET", "OMIT", "PASSWORD", "PROPERTY", "REQUIRES", "SECRET", "SINK",
    "SOURCE", "STATEMENT", "SUBSCRIPTION", "TOPIC", "USER", "VIEW", "WITH", "WRITE",
})  # fmt: skip
"""Words of messages that are never replaced, even if a secret is the same word."""

_SHORTEST_CONTENT = 4
_LONGEST_QUOTED = 40
_KEPT = 4
"""The number of texts whose secrets are cached: many errors may refer to the same script."""


@dataclass(frozen=True, slots=True)
class _Lexeme:
    """A lexeme that is no space. ``gap`` is the text since the lexeme before it, with the comments."""

    start: int
    end: int
    kind: str
    text: str
    upper: str
    gap: str
    is_open: bool = False
    """True for a string without a closing quote."""

    @property
    def is_literal(self) -> bool:
        return self.kind == "string"

    @property
    def begins_line(self) -> bool:
        return "\n" in self.gap


_END = _Lexeme(0, 0, "end", "", "", "")


def _pattern_at(text: str, position: int) -> re.Pattern[str]:
    return _SPARKS if _OF_SPARK.match(text, position) else _OURS


def _end_of_comment(text: str, start: int) -> int:
    """The end of a block comment. Comments nest; a comment without an end reaches the end of the text."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)


def _lexemes(text: str) -> Iterator[_Lexeme]:
    """The lexemes of a text, including comments. The first words of each statement decide which quoting rules apply."""
    pattern, position, gap = _pattern_at(text, 0), 0, 0
    while position < len(text):
        match = pattern.match(text, position)
        assert match is not None
        end, kind = match.end(), match.lastgroup or "sign"
        if match["block"]:
            end, kind = _end_of_comment(text, position), "comment"
        elif match["dollar"]:
            close = text.find(match["dollar"], end)
            end, kind = close + len(match["dollar"]) if close >= 0 else len(text), "string"
        if kind != "space":
            raw = text[position:end]
            # A string without a closing quote would also contain what follows it.
            longer = pattern.match(f"{raw} ") if kind == "string" and end == len(text) else None
            is_open = longer is not None and longer.end() > len(raw)
            upper = raw.upper() if kind == "word" else raw
            yield _Lexeme(position, end, kind, raw, upper, text[gap:position], is_open)
            gap = gap if kind == "comment" else end
        if match[0] == ";":
            pattern = _pattern_at(text, end)
        position = end


@lru_cache(maxsize=1024)
def _is_near(word: str, known: tuple[str, ...]) -> bool:
    return bool(get_close_matches(word, known, n=1, cutoff=0.75))


class _Finder:
    """Finds the secrets of a text. The result is in ``spans``. ``told`` are the spans whose contents messages about the
    text must not show: without those in queries, and without values that are not secret."""

    def __init__(self, text: str, plain: Collection[str] | None) -> None:
        self.spans: list[tuple[int, int]] = []
        self.told: list[tuple[int, int]] = []
        self._plain = plain
        every = list(_lexemes(text))
        quoted = [lexeme for lexeme in every if lexeme.kind in ("comment", "string")]
        self._lexemes: Sequence[_Lexeme] = [lexeme for lexeme in every if lexeme.kind != "comment"]
        if plain is not None:
            for comment in (lexeme for lexeme in every if lexeme.kind == "comment"):
                for found in _ANY.finditer(comment.text):
                    self.spans.append((comment.start + found.start(2), comment.start + found.end(2)))
        self._read()
        is_sure = self._are_quotes_sure()
        done = 0
        for lexeme in quoted:
            for begun in _STATEMENT.finditer(text, lexeme.start, lexeme.end):
                content = _CONTENT.match(text, begun.start(), lexeme.end if is_sure else len(text))
                if begun.start() >= done and content is not None:
                    self.spans.append(content.span(2))
                    self.told.append(content.span(2))
                    done = content.end()
        parts = [(lexeme.start, lexeme.end) for lexeme in quoted] if is_sure else [(0, len(text))]
        for pattern in (_TELLING, _EMBEDDED):
            self.spans += [found.span(2) for part in parts for found in pattern.finditer(text, *part)]

    def _are_quotes_sure(self) -> bool:
        """False if a string has no closing quote, or touches a word.

        In this case, the quotes are probably not those that the text's first words promise, or the text is prose with
        an apostrophe, and a secret may extend over several lexemes.
        """
        for before, lexeme in pairwise([*self._lexemes, _END]):
            opens = lexeme.text[:1] == "'" and before.kind == "word" and len(before.text) > 1
            closes = before.is_literal and lexeme.kind == "word"
            if before.is_open or ((opens or closes) and not lexeme.gap):
                return False
        return True

    def _at(self, at: int) -> _Lexeme:
        return self._lexemes[at] if 0 <= at < len(self._lexemes) else _END

    def _hide(self, lexeme: _Lexeme, *, is_told: bool = True) -> None:
        self.spans.append((lexeme.start, lexeme.end))
        if is_told:
            self.told.append((lexeme.start, lexeme.end))

    def _read(self) -> None:
        at = 0
        in_query = [False]
        while at < len(self._lexemes):
            name = self._name_of_secret(at)
            if name is not None:
                at, in_query = self._content(name), [False]
                continue
            lexeme = self._lexemes[at]
            if lexeme.text == "(":
                begins_options = self._at(at - 1).upper in _BEFORE_OPTIONS or self._at(at - 2).upper == "ENCODE"
                in_query.append(in_query[-1] and not begins_options)
            elif lexeme.text == ")" and len(in_query) > 1:
                in_query.pop()
            elif lexeme.text == ";":
                in_query = [False]
            elif lexeme.upper in _OF_QUERIES:
                in_query[-1] = True
            if lexeme.is_literal and self._plain is not None and not self._is_plain(at, self._plain, is_list=True):
                self._hide(lexeme)
            at += 1
            is_key = lexeme.kind == "word" or lexeme.text[:1] in ('"', "`")
            if is_key and self._at(at).text != "." and _TELLING_KEY.search(self._key(at - 1)):
                at = self._value(at, in_query=in_query[-1])

    def _key(self, at: int) -> str:
        """The dotted name that ends with the lexeme ``at``, without quotes."""
        parts = [self._at(at).text]
        while self._at(at - 1).text == "." and self._at(at - 2).kind in ("word", "string"):
            parts[:0] = [self._at(at - 2).text, "."]
            at -= 2
        return "".join(parts).replace('"', "").replace("`", "")

    def _is_plain(self, at: int, plain: Collection[str], *, is_list: bool = False) -> bool:
        """True for a literal that is the value of a harmless property or, with ``is_list``, an item of a list."""
        before = self._at(at - 1)
        is_signed = before.text == "="
        key = self._at(at - 2 if is_signed else at - 1)
        if key.kind == "word" or (is_signed and key.text[:1] == '"'):
            name = self._key(at - 2 if is_signed else at - 1)
            return name.lower() in _PLAIN_KEYS or name.lower() in plain or name.upper() in _NO_KEYS
        return is_list and before.text in ("(", ",") and self._at(at).text[:1] == "'"

    def _value(self, at: int, *, in_query: bool) -> int:
        """Hides the value that follows a property whose name suggests a secret, if one begins at ``at``. Returns the
        position after the value."""
        key, signs = self._at(at - 1), at
        while self._at(at).text in ("=", ":", ">") or (at == signs and self._at(at).upper == "TO"):
            at += 1
        has_sign = any(self._at(sign).text == "=" for sign in range(signs, at))
        if self._at(at).upper == "SECRET":
            at += 1
            if not self._at(at).is_literal or self._at(at).text[:1] == '"':
                return at  # the name of a secret
            has_sign = False
        elif at == signs and key.upper == "SECRET" and self._at(at).text[:1] == '"':
            return at
        name = self._key(signs - 1).lower()
        is_file = name.endswith("client_key") and _KEY_FILE.match(self._at(at).text) is not None
        is_told = not (in_query or name in _SHOWN_KEYS or is_file)
        if has_sign and not in_query and self._at(at).upper not in _HARMLESS:
            return self._option_value(at, is_told=is_told)
        first = at
        while self._at(at).is_literal or (
            at > first and not self._at(at).gap and self._at(at).text not in (",", ")", ";", "")
        ):
            self._hide(self._at(at), is_told=is_told)
            at += 1
        return at

    def _option_value(self, at: int, *, is_told: bool) -> int:
        """Hides everything up to the next option."""
        first, depth = at, 0
        while at < len(self._lexemes):
            lexeme = self._at(at)
            if lexeme.text == ";" or (depth == 0 and lexeme.text in (",", ")")):
                break
            if at > first and lexeme.begins_line and not lexeme.is_literal:
                break
            depth += (lexeme.text == "(") - (lexeme.text == ")")
            self._hide(lexeme, is_told=is_told)
            at += 1
        return at

    def _name_of_secret(self, at: int) -> int | None:
        """The position of the name if CREATE SECRET, ALTER SECRET, or a statement that resembles them begins here."""
        verb, before = self._at(at), self._at(at - 1)
        if verb.kind != "word":
            return None
        if verb.upper not in _VERBS:
            is_first = before is _END or verb.begins_line or before.upper in (";", "EXPLAIN")
            if not is_first or not (verb.upper in _MORE_VERBS or _is_near(verb.upper, ("ALTER", "CREATE"))):
                return None
        for other in range(at + 1, at + 1 + _MOST_BETWEEN):
            word = self._at(other)
            if word.kind != "word":
                return None
            if _is_near(word.upper, ("SECRET", "SECRETS")):
                other += 1
                while self._at(other).upper in _IF_EXISTS:
                    other += 1
                return other
            if word.upper not in _BETWEEN:
                return None
        return None

    def _content(self, at: int) -> int:
        """Hides the value in a CREATE or ALTER SECRET. ``at`` is the position of the secret's name. Returns the
        position of the statement's end."""
        if not self._at(at).is_literal or self._at(at).text[:1] == '"':
            at += 1
            while self._at(at).text == "." and self._at(at + 1) is not _END:
                at += 2
        after = self._at(at)
        is_last = self._at(at + 1).text in ("", ";") and after.upper not in ("SCHEMA",)
        is_statement = after.is_literal or after.upper in _AFTER_NAME or after is _END or is_last
        is_content, options = is_last and after.upper not in _AFTER_NAME, 0
        is_other = after.upper in _OTHER_CHANGES or (after.upper == "SET" and self._at(at + 1).upper == "SCHEMA")
        first = at
        while at < len(self._lexemes):
            lexeme = self._at(at)
            if lexeme.text == ";" or (at > first and lexeme.begins_line and lexeme.upper in _STARTS):
                break
            if lexeme.text == "(" and (options or self._at(at - 1).upper == "WITH"):
                options += 1
            elif options:
                options -= lexeme.text == ")"
                is_content = is_statement and not options
                if lexeme.is_literal and not self._is_plain(at, _SECRET_KEYS):
                    self._hide(lexeme)
            elif lexeme.is_literal:
                if is_statement or lexeme.text[:1] != '"':
                    self._hide(lexeme)
                is_content = is_statement
            elif is_other or not is_statement:
                pass
            elif is_content and (lexeme.upper not in _NOT_CONTENT or (self._at(at - 1).is_literal and not lexeme.gap)):
                self._hide(lexeme)
            elif lexeme.upper in _BEFORE_CONTENT:
                is_content = True
            at += 1
        return at


def masked(text: str, *, plain: Collection[str] | None = None) -> str:
    """The text of statements, in which asterisks replace the secrets. The length does not change.

    Secrets are the values of CREATE and ALTER SECRET, the values of properties whose name suggests a secret, and
    literals with a password inside. Typing errors in these statements do not reveal their values. With ``plain``, the
    values of all other properties are masked too, except the properties in ``plain`` and those that are never secret.
    """
    return _masked(text, None if plain is None else frozenset(plain))


@lru_cache(maxsize=_KEPT)
def _masked(text: str, plain: frozenset[str] | None) -> str:
    pieces, position = [], 0
    for start, end in sorted(_secrets_in(text, plain)[0]):
        if end > position:
            begin = max(start, position)
            pieces += [text[position:begin], _stars(text[begin:end])]
            position = end
    return "".join([*pieces, text[position:]])


@lru_cache(maxsize=_KEPT)
def _secrets_in(
    text: str, plain: frozenset[str] | None
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """The ``spans`` and the ``told`` of a text."""
    found = _Finder(text, plain)
    return tuple(found.spans), tuple(found.told)


def contains_password(value: str) -> bool:
    """True if a property's value contains a password: in the user part of an address, as a parameter of an address, or
    as a literal after a word that suggests a secret."""
    found = (match[2] for pattern in (_TELLING, _EMBEDDED) for match in pattern.finditer(f"'{value}'"))
    return any(_stars(text) != text for text in found)


def _stars(text: str) -> str:
    return re.sub(r"[^\n'\"$]", "*", text)


def without_secrets_of(statement: str, message: str) -> str:
    """A message about a statement, in which asterisks replace the secrets that it quotes from the statement.

    A word that the statement also shows outside its secrets remains, and so does a keyword.
    """

    def hide(found: re.Match[str]) -> str:
        text = found[0]
        is_shown = text.upper() in _KEYWORDS or re.search(_word(text, "i"), masked(statement)) is not None
        return text if is_shown else _stars(text)

    pattern = _told_secrets(statement)
    return message if pattern is None else pattern.sub(hide, message)


@lru_cache(maxsize=_KEPT)
def _told_secrets(statement: str) -> re.Pattern[str] | None:
    """Matches the secrets of a statement in messages about the statement; None if the statement has no secret."""
    patterns: dict[str, str] = {}
    for start, end in _secrets_in(statement, None)[1]:
        raw = statement[start:end]
        if len(raw) < 2 or not any(character.isalnum() for character in raw):
            continue
        content = raw.strip("'\"")
        # Messages may show an unquoted word in lower case.
        flags = "i" if content == raw else ""
        for form in (raw, raw.partition("\n")[0][:_LONGEST_QUOTED]):
            patterns[form] = _word(form, flags)
        if content != raw and len(content) >= _SHORTEST_CONTENT:
            patterns |= {form: _word(form) for form in (content, content.replace("''", "'"))}
    longest_first = sorted(patterns, key=len, reverse=True)
    return re.compile("|".join(patterns[form] for form in longest_first)) if patterns else None


def _word(form: str, flags: str = "") -> str:
    """A pattern for a text that is not part of a longer word."""
    before, after = r"(?<!\w)" if form[0].isalnum() else "", r"(?!\w)" if form[-1].isalnum() else ""
    return f"{before}(?{flags}:{re.escape(form)}){after}"
