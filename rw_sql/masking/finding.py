"""Replaces the secrets in the text of statements with asterisks.

The text is read as lexemes. Thus, a secret is found even if there are comments, quotes or typing errors around it. In
prose, comments and strings, regular expressions find further secrets.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from rw_sql.masking.addresses import (
    IN_LITERAL,
    SPACED_LOGIN,
    doubtful_logins,
    is_login_in_query,
    logins,
    stars,
)
from rw_sql.masking.lexemes import (
    END,
    PREFIXES,
    QUOTES,
    STARTS,
    TYPES,
    TYPOGRAPHIC,
    Lexeme,
    is_near,
    is_stray,
    key_at,
    lexemes_of,
    quoted_spans,
    unsure_spans,
    without_comment_signs,
)
from rw_sql.masking.refused import hidden_spans
from rw_sql.masking.telling import (
    BEFORE_CONTENT,
    BETWEEN,
    HARMLESS,
    IF_EXISTS,
    KEYWORDS,
    OF_QUERIES,
    OTHER_CHANGES,
    QUOTED_RUN,
    RUN,
    SECRET_KEYS,
    TAIL,
    TELLING_KEY,
    names_server,
    told_values,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_QUOTED_KEY = re.compile(r"[eE]?(['\"])[\w .-]++\1")
_VERBS = frozenset({"CREATE", "ALTER"})
_MORE_VERBS = frozenset({"UPDATE", "REPLACE", "MODIFY", "SET"})
"""Words that a user may write by mistake instead of ALTER at the beginning of a statement."""

_MOST_BETWEEN = 5
_BEFORE_LITERAL = frozenset({"AS", "BY", "TO", "VALUE", "VALUES"})
_AFTER_NAME = BEFORE_CONTENT | {"WITH", "RENAME", "OWNER", "(", ",", ";"}
_NOT_CONTENT = frozenset({"AS", "WITH", "SECRET"})
_BEFORE_OPTIONS = frozenset({"WITH", "SET", "OPTIONS"})
_AFTER_VALUE = frozenset({",", ")", ";", ""})
_MAPS = frozenset({"MAP", "NAMED_STRUCT"})
_GENERIC = frozenset({"ARRAY", "MAP", "ROW", "STRUCT"})
_SHOWN_KEYS = frozenset({
    "aws.credentials.access_key_id", "aws.credentials.role.arn", "aws.credentials.role.external_id",
    "azblob.credentials.account_name", "s3.credentials.access",
})  # fmt: skip
"""Properties whose names suggest a secret, but whose values are not secret. Messages may show these values."""

_KEY_FILE = re.compile(r"'(?:fs://|[/~]|\.\.?/)")
"""Matches the beginning of a literal that is the path of a key file. (The literal may instead be the key itself.)"""

_KEPT = 4
"""The number of texts whose secrets are cached. The cache helps if many errors refer to one script."""


def _tails(text: str, start: int, end: int, runs: re.Pattern[str]) -> list[tuple[int, int]]:
    """Returns the spans of the texts that follow a word that suggests a secret, except keywords and the names of
    options."""
    found = (run for tail in TAIL.finditer(text, start, end) for run in runs.finditer(text, *tail.span(1)))
    return [run.span() for run in found if run["run"] and run["run"].upper() not in KEYWORDS]


class Finder:
    """Finds the secrets of a text. The result is in ``spans``.

    ``told`` are the spans whose contents must not appear in messages about the text. They include neither the values of
    properties in queries nor values that are not secret. ``compared`` are the spans of secret values of properties in
    queries. Messages must not show these values as literals. ``tails`` are the spans of possible secrets in places
    where quotes may be wrong.

    If ``is_comment`` is True, the text is a statement in which spaces replace the comment signs (such as ``--``), and
    comments count as parts of the statement. In this case, ``spans`` does not contain the tails.
    """

    def __init__(self, text: str, *, is_comment: bool = False) -> None:
        self.spans: list[tuple[int, int]] = []
        self.told: list[tuple[int, int]] = []
        self.compared: list[tuple[int, int]] = []
        self.tails: list[tuple[int, int]] = []
        self._queried: list[Lexeme] = []
        self._angles = 0
        every = list(lexemes_of(text))
        comments = [lexeme for lexeme in every if lexeme.kind == "comment"]
        self._lexemes: Sequence[Lexeme] = [lexeme for lexeme in every if lexeme.kind != "comment"]
        for lexeme in self._lexemes:
            if lexeme.is_quoted and (parameter := IN_LITERAL.search(text, lexeme.start, lexeme.end)) is not None:
                self._hide(lexeme)
                self.told += [parameter.span(name) for name in ("value", "header") if parameter[name]]
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
            other = Finder("".join(signs))
            self.spans += other.spans
            self.told += other.told
            self.compared += other.compared
        self._lexemes = ()

    def _match(self, text: str, quoted: Sequence[tuple[int, int]], unsure: Sequence[tuple[int, int]]) -> None:
        """Finds the secrets in comments, in strings, in statements whose quotes may be wrong, and in all addresses."""
        found = [span for part in (*quoted, *unsure) for span in told_values(text, *part)]
        for login in logins(text):
            names = ["login", "password", "token", "bare_login", "bare_password"]
            if login["bare_login"] and (query := self._query_at(login.start(), unsure)) is not None:
                names = ["bare_login"] if query.is_literal and is_login_in_query(login, query) else []
            found += [login.span(name) for name in names if login[name]]
        found += [login.span("login") for login in doubtful_logins(text)]
        for lexeme in self._lexemes:
            if lexeme.is_literal and "@" in lexeme.text and self._query_at(lexeme.start, unsure) is None:
                found += [login.span("login") for login in SPACED_LOGIN.finditer(text, lexeme.start, lexeme.end)]
        self.spans += found
        self.told += found

    def _query_at(self, place: int, unsure: Sequence[tuple[int, int]]) -> Lexeme | None:
        """Returns the lexeme at a position of the text, if it is part of a query. Returns None outside of queries,
        and where quotes may be wrong."""
        at = bisect_right(self._queried, place, key=lambda lexeme: lexeme.start) - 1
        span = bisect_right(unsure, place, key=lambda span: span[0]) - 1
        is_sure = span < 0 or unsure[span][1] <= place
        return self._queried[at] if is_sure and at >= 0 and place < self._queried[at].end else None

    def _read_comments(self, text: str, every: Sequence[Lexeme]) -> None:
        """Reads a statement a second time if one of its comments contains quotes or has no end. A misplaced comment
        sign may have turned a part of the statement into this comment. The second time, the comment's text therefore
        counts as a part of the statement."""
        ends = [at for at, lexeme in enumerate(every) if lexeme.text == ";"]
        for first, last in pairwise([0, *(end + 1 for end in ends), len(every)]):
            lexemes = every[first:last]
            comments = [one for one in lexemes if one.kind == "comment" and (one.is_open or QUOTES.search(one.text))]
            if not comments:
                continue
            start, end = lexemes[0].start, lexemes[-1].end
            other = Finder(without_comment_signs(text, comments, start, end), is_comment=True)
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
        places, has_query = [""], False
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
                places, start, has_query, self._angles = [""], at + 1, False, 0
            elif lexeme.upper in OF_QUERIES:
                places[-1] = "query"
            elif lexeme.text in ("<", ">"):
                self._read_angle(at)
            has_query = has_query or lexeme.upper == "SELECT" or (at == start and lexeme.upper in ("WITH", "FROM"))
            if places[-1] == "query" and has_query and not self._is_server(at):
                self._queried.append(lexeme)
            if lexeme.is_quoted and self._is_content(at, start):
                self._hide(lexeme)
            at += 1
            if self._at(at).text != "." and self._is_telling(at - 1):
                at = self._value(at, places[-1], is_in_list=len(places) > 1)

    def _read_angle(self, at: int) -> None:
        """Counts how many ``<`` of types such as ``STRUCT<…>`` are still open."""
        if self._at(at).text == "<" and self._at(at - 1).upper in _GENERIC:
            self._angles += 1
        elif self._at(at).text == ">" and self._angles:
            self._angles -= 1

    def _is_server(self, at: int) -> bool:
        """True for three kinds of values: the value after the ``=`` of a property that names a server, the literal of a
        named argument (``name => 'value'``), and a literal with a JDBC address."""
        before = self._at(at - 1)
        if self._at(at).is_literal and ("jdbc:" in self._at(at).text.lower() or before.text == ">"):
            return "jdbc:" in self._at(at).text.lower() or self._at(at - 2).text == "="
        return before.text == "=" and names_server(self._key(at - 2).lower())

    def _is_content(self, at: int, start: int) -> bool:
        """True for a text that follows a word such as AS or BY in a statement that resembles CREATE SECRET or ALTER
        SECRET. ``start`` is the position of the statement's first word."""
        before = self._at(at - 2 if self._at(at - 1).is_literal else at - 1)
        if before.upper not in _BEFORE_LITERAL:
            return False
        firsts = [self._at(first).upper for first in range(start, start + _MOST_BETWEEN)]
        return any("SECRET" in first for first in firsts) and OF_QUERIES.isdisjoint(firsts)

    def _is_telling(self, at: int) -> bool:
        """True if the lexeme may be the name of a property, and this name suggests a secret. Words, names and
        strings may be names of properties."""
        lexeme = self._at(at)
        is_key = lexeme.kind in ("word", "name") or _QUOTED_KEY.fullmatch(lexeme.text) is not None
        return is_key and TELLING_KEY.search(self._key(at)) is not None

    def _key(self, at: int) -> str:
        return key_at(self._lexemes, at)

    def _is_of_backend(self, at: int) -> bool:
        """True for the value of an option of CREATE SECRET that is in ``SECRET_KEYS``. The values of these options
        are not secret."""
        return self._key(at - 2 if self._at(at - 1).text == "=" else at - 1).lower() in SECRET_KEYS

    def _value(self, at: int, place: str, *, is_in_list: bool) -> int:
        """Hides the value of the property before ``at``, if it has a value. The property's name suggests a secret.
        ``place`` is "query" in a query, "map" in the arguments of a map function, and otherwise "". ``is_in_list``
        is True if the property is in parentheses. Returns the position after the value."""
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
        if has_sign and not in_query and self._at(at).upper not in HARMLESS:
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
        """True if the lexeme ``at`` begins a value that lacks a literal's quotes. The value directly follows its
        key, or follows the signs (such as ``=``) that begin at ``signs``."""
        lexeme = self._at(at)
        if self._at(signs - 1).upper == "SECRET" or lexeme.is_literal:
            return False
        is_after_colon = at > signs and self._at(at - 1).text == ":" and lexeme.text not in _AFTER_VALUE
        is_after_colon = is_after_colon and not self._angles
        return (
            lexeme.kind == "name"
            or (lexeme.text in TYPOGRAPHIC and (at > signs or lexeme.gap != ""))
            or (is_after_colon and lexeme.upper not in TYPES | HARMLESS)
        )

    def _option_value(self, at: int, *, is_told: bool) -> int:
        """Hides all lexemes from ``at`` up to the next option. Returns the position of the first lexeme that is not
        hidden."""
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
        """Returns the position of the secret's name if CREATE SECRET, ALTER SECRET or a similar statement begins at
        ``at``. Otherwise, returns None."""
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
                while self._at(other).upper in IF_EXISTS:
                    other += 1
                return other
            if word.upper not in BETWEEN:
                return None
        return None

    def _content(self, at: int) -> int:
        """Hides the value in a CREATE SECRET or ALTER SECRET statement. ``at`` is the position of the secret's name.
        Returns the position of the statement's end."""
        if not self._at(at).is_literal or self._at(at).text[:1] == '"':
            at += 1
            while self._at(at).text == "." and self._at(at + 1) is not END:
                at += 2
        after = self._at(at)
        is_last = self._at(at + 1).text in ("", ";") and after.upper not in ("SCHEMA",)
        is_statement = after.is_literal or after.upper in _AFTER_NAME or after is END or is_last
        is_content, options = is_last and after.upper not in _AFTER_NAME, 0
        is_other = after.upper in OTHER_CHANGES or (after.upper == "SET" and self._at(at + 1).upper == "SCHEMA")
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
                if lexeme.is_literal and not self._is_of_backend(at):
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
            elif lexeme.upper in BEFORE_CONTENT:
                is_content = True
            at += 1
        return at


def masked(text: str, *, plain: Collection[str] | None = None) -> str:
    """Replaces the secrets in the text of statements with asterisks. The length of the text does not change.

    Secrets are the values in CREATE SECRET and ALTER SECRET, the values of properties whose names suggest a secret, and
    literals that contain a password. They are replaced even if the statements contain typing errors. If ``plain`` is
    not None, asterisks also replace all other texts in quotes, with four exceptions: the values of properties that are
    never secret, the values of the properties in ``plain``, texts that cannot be secret (such as intervals), and texts
    in Spark's statements and in the queries of views.
    """
    return _masked(text, None if plain is None else frozenset(plain))


def masked_around(text: str, start: int, end: int, *, plain: Collection[str] | None = None) -> str:
    """Does the same as :func:`masked` for the text of a script. The statement from ``start`` to ``end`` is read
    separately. Wrong quotes in other statements thus do not affect it.

    If the quotes of the statement may be wrong, asterisks also replace the parts of the statement that :func:`masked`
    replaces in the whole script.
    """
    shown, own = masked(text, plain=plain), masked(text[start:end], plain=plain)
    lexemes = [lexeme for lexeme in lexemes_of(text[start:end]) if lexeme.kind != "comment" or lexeme.is_open]
    if unsure_spans(lexemes) or any(lexeme.is_open for lexeme in lexemes):
        own = "".join("*" if "*" in pair else pair[0] for pair in zip(shown[start:end], own, strict=True))
    return shown[:start] + own + shown[end:]


@lru_cache(maxsize=_KEPT)
def _masked(text: str, plain: frozenset[str] | None) -> str:
    spans = secrets_in(text).spans
    if plain is not None:
        spans = spans + hidden_spans(text, plain)
    pieces, position = [], 0
    for start, end in sorted(spans):
        if end > position:
            begin = max(start, position)
            pieces += [text[position:begin], stars(text[begin:end])]
            position = end
    return "".join([*pieces, text[position:]])


@lru_cache(maxsize=_KEPT)
def secrets_in(text: str) -> Finder:
    """Finds the secrets in a text, even if its statements are invalid. Caches the results for the last four texts."""
    return Finder(text)
