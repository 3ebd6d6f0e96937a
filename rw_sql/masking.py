"""Replaces the secrets in the text of statements with asterisks.

The text is read as lexemes, so that comments, quotes and typing errors around a secret do not matter. Regular
expressions also find the secrets in prose, comments and strings.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from rw_sql.masking_lexemes import (
    END,
    LITERAL,
    PREFIXES,
    QUOTED_RUN,
    QUOTES,
    RUN,
    SECRET_WORDS,
    STARTS,
    TAIL,
    TELLING,
    TYPES,
    TYPOGRAPHIC,
    Lexeme,
    doubtful_logins,
    is_login_in_query,
    is_near,
    is_stray,
    lexemes_of,
    logins,
    names_server,
    quoted_spans,
    told_values,
    unsure_spans,
    without_comment_signs,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_PARAMETER = rf"[\w.-]{{0,60}}(?:{SECRET_WORDS})[\w.-]{{0,60}}=(?P<value>(?!%?['\"]|[(\[\\<{{])[^\s&;,)'\"`]++)"
_IN_ADDRESS = re.compile(rf"[?&;(]\s?{_PARAMETER}", re.IGNORECASE)
_IN_LITERAL = re.compile(rf"[?&;(,\s'\"`$]{_PARAMETER}", re.IGNORECASE)
"""Matches a parameter that is a password."""

_QUOTED_KEY = re.compile(r"[eE]?(['\"])[\w .-]++\1")
_ANY = re.compile(LITERAL, re.DOTALL)
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

_TELLING_KEY = re.compile(rf"{SECRET_WORDS}|\A(?:seed|identified)\Z", re.IGNORECASE)
_VERBS = frozenset({"CREATE", "ALTER"})
_MORE_VERBS = frozenset({"UPDATE", "REPLACE", "MODIFY", "SET"})
"""Words that begin a statement if its author mistakes them for ALTER."""

_BETWEEN = frozenset({"OR", "REPLACE", "TEMP", "TEMPORARY", "IF", "NOT", "EXISTS", "A", "NEW"})
_MOST_BETWEEN = 5
_IF_EXISTS = frozenset({"IF", "NOT", "EXISTS"})
_BEFORE_CONTENT = frozenset({"AS", "TO", "SET", "VALUE", "IDENTIFIED", "BY", "=", ":", ">"})
_BEFORE_LITERAL = frozenset({"AS", "BY", "TO", "VALUE", "VALUES"})
_AFTER_NAME = _BEFORE_CONTENT | {"WITH", "RENAME", "OWNER", "(", ",", ";"}
_NOT_CONTENT = frozenset({"AS", "WITH", "SECRET"})
_OTHER_CHANGES = frozenset({"RENAME", "OWNER", "SCHEMA"})
_OF_QUERIES = frozenset({
    "SELECT", "FROM", "WHERE", "ON", "HAVING", "VALUES", "USING", "MERGE", "UPDATE", "DELETE", "INSERT", "WHEN",
})  # fmt: skip
_BEFORE_OPTIONS = frozenset({"WITH", "SET", "OPTIONS"})
_BEFORE_QUERY = STARTS | {"WITH"}
"""The first words of the statements that may contain a query."""

_AFTER_VALUE = frozenset({",", ")", ";", ""})
_MAPS = frozenset({"MAP", "NAMED_STRUCT"})
_HARMLESS = frozenset({"TRUE", "FALSE", "NULL", "DEFAULT"})
_SHOWN_KEYS = frozenset({
    "aws.credentials.access_key_id", "aws.credentials.role.arn", "aws.credentials.role.external_id",
    "azblob.credentials.account_name", "s3.credentials.access",
})  # fmt: skip
"""Properties whose names suggest a secret, but whose values are not secret. Messages show these values."""

_KEY_FILE = re.compile(r"'(?:fs://|[/~]|\.\.?/)")
"""Matches the beginning of the path of a file that contains a key."""

_KEYWORDS = frozenset({
    *STARTS, *_OF_QUERIES, *_BETWEEN, *_BEFORE_CONTENT, *_OTHER_CHANGES, *_NO_KEYS, *_HARMLESS, "CONNECTION",
    "CONNECTOR", "FOUND", "MATERIALIZED", "OFFSET", "OMIT", "PASSWORD", "PROPERTY", "REQUIRES", "SECRET", "SINK",
    "SOURCE", "STATEMENT", "SUBSCRIPTION", "TOPIC", "USER", "VIEW", "WITH", "WRITE",
})  # fmt: skip
"""Words of messages that are never replaced, even if a secret is the same word."""

_DOLLAR_QUOTED = re.compile(r"\$(?P<tag>\w*)\$(?P<content>.*)\$(?P=tag)\$", re.DOTALL)
_SHORTEST_CONTENT = 4
_SHORTEST_UNQUOTED = 8
_LONGEST_QUOTED = 40
_KEPT = 4
"""The number of texts whose secrets are cached: many errors may refer to the same script."""


def _tails(text: str, start: int, end: int, runs: re.Pattern[str]) -> list[tuple[int, int]]:
    """The spans after a word that suggests a secret, without keywords and the names of options."""
    found = (run for tail in TAIL.finditer(text, start, end) for run in runs.finditer(text, *tail.span(1)))
    return [run.span() for run in found if run["run"] and run["run"].upper() not in _KEYWORDS]


class _Finder:
    """Finds the secrets of a text. The result is in ``spans``. ``told`` are the spans whose contents messages about the
    text must not show: without those in queries, and without values that are not secret. ``compared`` are the literals
    in queries, which messages must not show as literals. ``tails`` are spans that may be secrets, because quotes are
    not sure. With ``is_comment``, the text is that of a comment, and the tails are not among the spans."""

    def __init__(self, text: str, plain: Collection[str] | None, *, is_comment: bool = False) -> None:
        self.spans: list[tuple[int, int]] = []
        self.told: list[tuple[int, int]] = []
        self.compared: list[tuple[int, int]] = []
        self.tails: list[tuple[int, int]] = []
        self._plain = plain
        self._queried: list[Lexeme] = []
        every = list(lexemes_of(text))
        comments = [lexeme for lexeme in every if lexeme.kind == "comment"]
        self._lexemes: Sequence[Lexeme] = [lexeme for lexeme in every if lexeme.kind != "comment"]
        if plain is not None:
            for comment in comments:
                for found in _ANY.finditer(comment.text):
                    self.spans.append((comment.start + found.start(), comment.start + found.end()))
        for lexeme in self._lexemes:
            if lexeme.is_quoted and (parameter := _IN_LITERAL.search(text, lexeme.start, lexeme.end)) is not None:
                self._hide(lexeme)
                self.told.append(parameter.span("value"))
        self._read()
        unsure = unsure_spans(self._lexemes)
        if is_comment:
            if unsure:
                self.tails = _tails(text, 0, len(text), QUOTED_RUN)
            return
        self._match(without_comment_signs(text, comments, 0, len(text)), quoted_spans(every), unsure)
        self._read_comments(text, every)
        for start, end in unsure:
            self.tails += _tails(text, start, end, RUN)
        self.spans += self.tails
        self.told += [span for span in self.tails if QUOTES.search(text, *span)]
        stray = [lexeme for before, lexeme in pairwise([END, *every]) if is_stray(before, lexeme)]
        if stray:
            ends = {position for one in stray if one.text == "/" for position in (one.start - 1, one.start)}
            signs = (" " if at in ends or sign == "`" else sign for at, sign in enumerate(text))
            other = _Finder("".join(signs), plain)
            self.spans += other.spans
            self.told += other.told
            self.compared += other.compared
        self._lexemes = ()

    def _match(self, text: str, quoted: Sequence[tuple[int, int]], unsure: Sequence[tuple[int, int]]) -> None:
        """Finds the secrets in comments, strings and statements whose quotes are not sure, and in all addresses."""
        found = [span for part in (*quoted, *unsure) for span in told_values(text, *part)]
        for login in logins(text):
            names = ["login", "password", "token", "bare_login", "bare_password"]
            if login["bare_login"] and (query := self._query_at(login.start(), unsure)) is not None:
                names = ["bare_login"] if query.is_literal and is_login_in_query(login, query) else []
            found += [login.span(name) for name in names if login[name]]
        found += [login.span("login") for login in doubtful_logins(text)]
        self.spans += found
        self.told += found

    def _query_at(self, place: int, unsure: Sequence[tuple[int, int]]) -> Lexeme | None:
        """The lexeme of a query at a place of the text; None outside queries and in statements with unsure quotes."""
        at = bisect_right(self._queried, place, key=lambda lexeme: lexeme.start) - 1
        span = bisect_right(unsure, place, key=lambda span: span[0]) - 1
        is_sure = span < 0 or unsure[span][1] <= place
        return self._queried[at] if is_sure and at >= 0 and place < self._queried[at].end else None

    def _read_comments(self, text: str, every: Sequence[Lexeme]) -> None:
        """Reads the statements whose comments contain quotes or have no end once more, as if these comments were parts
        of the statements: a sign in the wrong place may have made them comments."""
        ends = [at for at, lexeme in enumerate(every) if lexeme.text == ";"]
        for first, last in pairwise([0, *(end + 1 for end in ends), len(every)]):
            lexemes = every[first:last]
            comments = [one for one in lexemes if one.kind == "comment" and (one.is_open or QUOTES.search(one.text))]
            if not comments:
                continue
            start, end = lexemes[0].start, lexemes[-1].end
            other = _Finder(without_comment_signs(text, comments, start, end), None, is_comment=True)
            strings = {(lexeme.start, lexeme.end) for lexeme in lexemes if lexeme.is_literal}
            spans = [(begin + start, stop + start) for begin, stop in other.spans]
            tails = [(begin + start, stop + start) for begin, stop in other.tails]
            self.spans += [span for span in spans if span in strings]
            for begin, stop in spans + tails:
                at = bisect_right(comments, begin, key=lambda comment: comment.end)
                while at < len(comments) and comments[at].start < stop:
                    self.spans.append((max(begin, comments[at].start), min(stop, comments[at].end)))
                    at += 1

    def _at(self, at: int) -> Lexeme:
        return self._lexemes[at] if 0 <= at < len(self._lexemes) else END

    def _hide(self, lexeme: Lexeme, *, is_told: bool = True) -> None:
        self.spans.append((lexeme.start, lexeme.end))
        if is_told:
            self.told.append((lexeme.start, lexeme.end))

    def _read(self) -> None:
        at = start = 0
        places = [""]
        while at < len(self._lexemes):
            name = self._name_of_secret(at)
            if name is not None:
                at, places = self._content(name), [""]
                continue
            lexeme = self._lexemes[at]
            if lexeme.text == "(":
                before = self._at(at - 1).upper
                begins_options = before in _BEFORE_OPTIONS or self._at(at - 2).upper == "ENCODE"
                places.append("map" if before in _MAPS else "" if begins_options else places[-1] and "query")
            elif lexeme.text == ")" and len(places) > 1:
                places.pop()
            elif lexeme.text == ";":
                places, start = [""], at + 1
            elif lexeme.upper in _OF_QUERIES:
                places[-1] = "query"
            if places[-1] == "query" and self._at(start).upper in _BEFORE_QUERY and not self._is_server(at):
                self._queried.append(lexeme)
            is_known = self._plain is None or self._is_plain(at, self._plain, is_list=True)
            if (lexeme.is_literal and not is_known) or (lexeme.is_quoted and self._is_content(at, start)):
                self._hide(lexeme)
            at += 1
            if self._at(at).text != "." and self._is_telling(at - 1):
                at = self._value(at, places[-1], is_in_list=len(places) > 1)

    def _is_server(self, at: int) -> bool:
        """True for a value after a property's name and ``=`` if the property names a server."""
        return self._at(at - 1).text == "=" and names_server(self._key(at - 2).lower())

    def _is_content(self, at: int, start: int) -> bool:
        """True for what follows AS in a statement that is not quite CREATE or ALTER SECRET. ``start`` is the position
        of the statement's first word."""
        before = self._at(at - 2 if self._at(at - 1).is_literal else at - 1)
        if before.upper not in _BEFORE_LITERAL:
            return False
        firsts = [self._at(first).upper for first in range(start, start + _MOST_BETWEEN)]
        return any("SECRET" in first for first in firsts) and _OF_QUERIES.isdisjoint(firsts)

    def _is_telling(self, at: int) -> bool:
        """True for a word, a name, or a string that may be a property's name, if it suggests a secret."""
        lexeme = self._at(at)
        is_key = lexeme.kind in ("word", "name") or _QUOTED_KEY.fullmatch(lexeme.text) is not None
        return is_key and _TELLING_KEY.search(self._key(at)) is not None

    def _key(self, at: int) -> str:
        """The dotted name that ends with the lexeme ``at``, without quotes."""
        parts = [self._at(at).text]
        while self._at(at - 1).text == "." and self._at(at - 2).kind in ("word", "string", "name"):
            parts[:0] = [self._at(at - 2).text, "."]
            at -= 2
        return re.sub("[\"'`]", "", "".join(parts))

    def _is_plain(self, at: int, plain: Collection[str], *, is_list: bool = False) -> bool:
        """True for a literal that is the value of a harmless property or, with ``is_list``, an item of a list."""
        before = self._at(at - 1)
        is_signed = before.text == "="
        key = self._at(at - 2 if is_signed else at - 1)
        if key.kind == "word" or (is_signed and key.is_literal):
            name = self._key(at - 2 if is_signed else at - 1)
            return name.lower() in _PLAIN_KEYS or name.lower() in plain or name.upper() in _NO_KEYS
        return is_list and before.text in ("(", ",") and self._at(at).text[:1] == "'"

    def _value(self, at: int, place: str, *, is_in_list: bool) -> int:
        """Hides the value that follows a property whose name suggests a secret, if one begins at ``at``. ``place`` is
        "query", "map" or "". With ``is_in_list``, parentheses enclose the property. Returns the position after the
        value."""
        key, signs, in_query = self._at(at - 1), at, place != ""
        between = ("TO", "BY", ",") if place == "map" and key.is_literal else ("TO", "BY")
        while self._at(at).text in ("=", ":", ">") or (at == signs and self._at(at).upper in between):
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
        is_secret = not (name in _SHOWN_KEYS or is_file)
        is_told = is_secret and place != "query"
        if has_sign and not in_query and self._at(at).upper not in _HARMLESS:
            return self._option_value(at, is_told=is_told)
        if is_in_list and not in_query and self._is_unquoted_value(at, signs):
            end, is_long = at + 1, self._at(at).text in TYPOGRAPHIC
            while self._at(end).text not in _AFTER_VALUE and not (
                self._at(end).begins_line if is_long else self._at(end).gap
            ):
                end += 1
            for other in range(at, end):
                self._hide(self._at(other), is_told=is_told)
            return end
        first = at
        if self._at(at).upper in PREFIXES and self._at(at + 1).is_literal and not self._at(at + 1).gap:
            at += 1
        while self._at(at).is_literal or (
            at > first and not self._at(at).gap and self._at(at).text not in _AFTER_VALUE
        ):
            self._hide(self._at(at), is_told=is_told)
            if is_secret and not is_told:
                self.compared.append(self.spans[-1])
            at += 1
        return at

    def _is_unquoted_value(self, at: int, signs: int) -> bool:
        """True for a value without the quotes of a literal, next to its key or after the signs from ``signs`` on."""
        lexeme = self._at(at)
        if self._at(signs - 1).upper == "SECRET" or lexeme.is_literal:
            return False
        is_after_colon = at > signs and self._at(at - 1).text == ":" and lexeme.text not in _AFTER_VALUE
        return (
            lexeme.kind == "name"
            or (lexeme.text in TYPOGRAPHIC and (at > signs or lexeme.gap != ""))
            or (is_after_colon and lexeme.upper not in TYPES | _HARMLESS)
        )

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
            is_first = before is END or verb.begins_line or before.upper in (";", "EXPLAIN")
            if not is_first or not (verb.upper in _MORE_VERBS or is_near(verb.upper, ("ALTER", "CREATE"))):
                return None
        for other in range(at + 1, at + 1 + _MOST_BETWEEN):
            word = self._at(other)
            if word.kind != "word":
                return None
            if is_near(word.upper, ("SECRET", "SECRETS")):
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
            while self._at(at).text == "." and self._at(at + 1) is not END:
                at += 2
        after = self._at(at)
        is_last = self._at(at + 1).text in ("", ";") and after.upper not in ("SCHEMA",)
        is_statement = after.is_literal or after.upper in _AFTER_NAME or after is END or is_last
        is_content, options = is_last and after.upper not in _AFTER_NAME, 0
        is_other = after.upper in _OTHER_CHANGES or (after.upper == "SET" and self._at(at + 1).upper == "SCHEMA")
        first = at
        while at < len(self._lexemes):
            lexeme = self._at(at)
            if lexeme.text == ";" or (at > first and lexeme.begins_line and lexeme.upper in STARTS):
                break
            if lexeme.text == "(" and (options or self._at(at - 1).upper == "WITH"):
                options += 1
            elif options:
                options -= lexeme.text == ")"
                is_content = is_statement and not options
                if lexeme.is_literal and not self._is_plain(at, _SECRET_KEYS):
                    self._hide(lexeme)
            elif lexeme.is_literal:
                is_statement |= not is_other and self._at(at - 1).upper == "AS" and self._at(at + 1).text in ("", ";")
                if is_statement or lexeme.text[:1] != '"':
                    self._hide(lexeme)
                is_content = is_statement
            elif is_other or not is_statement:
                is_last = self._at(at + 1).text in ("", ";")
                if not is_other and lexeme.kind == "name" and is_last and self._at(at - 1).upper in _BEFORE_LITERAL:
                    self._hide(lexeme)
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
    for start, end in sorted(_secrets_in(text, plain).spans):
        if end > position:
            begin = max(start, position)
            pieces += [text[position:begin], _stars(text[begin:end])]
            position = end
    return "".join([*pieces, text[position:]])


@lru_cache(maxsize=_KEPT)
def _secrets_in(text: str, plain: frozenset[str] | None) -> _Finder:
    return _Finder(text, plain)


def contains_password(value: str, *, is_address: bool = True) -> bool:
    """True if a property's value contains a password: in the user part of an address, as a parameter of an address, or
    as a literal after a word that suggests a secret. Without ``is_address``, the value is a path, a pattern or a name,
    in which only ``scheme://`` begins an address, and which has no parameters."""
    literals = (match["value"] for match in TELLING.finditer(value))
    if any(_stars(literal) != literal for literal in literals):
        return True
    if is_address:
        is_in_parameter = _IN_ADDRESS.search(value) is not None
        return is_in_parameter or any(value[login.start() - 1 : login.start()] != "=" for login in logins(value))
    return any(login["token"] or value.startswith("://", login.start() - 1) for login in logins(value))


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
    found = _secrets_in(statement, None)
    for start, end in found.told:
        raw = statement[start:end]
        if len(raw) < 2 or not any(character.isalnum() for character in raw):
            continue
        content = raw.strip("'\"`$;\\")
        # Messages may show an unquoted word in lower case.
        flags = "i" if content == raw else ""
        for form in (raw, raw.partition("\n")[0][:_LONGEST_QUOTED]):
            patterns[form] = _word(form, flags)
        if content != raw and len(content) >= _SHORTEST_CONTENT:
            tagged = _DOLLAR_QUOTED.fullmatch(raw)
            forms = (content, content.replace("''", "'"), tagged["content"] if tagged else "")
            patterns |= {form: _word(form) for form in forms if len(form) >= _SHORTEST_CONTENT}
    for start, end in found.compared:
        # A name of a column may equal the content by chance.
        content = statement[start:end].strip("'\"")
        if content:
            patterns |= {form: re.escape(form) for form in (statement[start:end], f"'{content}'")}
        if len(content) >= _SHORTEST_UNQUOTED or any(character.isdigit() for character in content):
            # Spark shows the literals of an expression without quotes.
            patterns.setdefault(content, rf"(?<=[ (]){re.escape(content)}(?=[),\s]|\Z)")
    longest_first = sorted(patterns, key=len, reverse=True)
    return re.compile("|".join(patterns[form] for form in longest_first)) if patterns else None


def _word(form: str, flags: str = "") -> str:
    """A pattern for a text that is not part of a longer word."""
    before, after = r"(?<!\w)" if form[0].isalnum() else "", r"(?!\w)" if form[-1].isalnum() else ""
    return f"{before}(?{flags}:{re.escape(form)}){after}"
