"""Finds the parts of a statement that an error must not show. The parser has refused the statement, and the error
quotes one of its lines.

In a statement with a typing error, a password may be anywhere: after a wrong sign, after a mistyped property, or
between wrong quotes. The quoted line therefore shows words, numbers and signs. A text in quotes is shown only if it
cannot be a secret.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

from rw_sql.masking.lexemes import (
    END,
    NEXT_STATEMENT,
    QUOTES,
    TYPES,
    TYPOGRAPHIC,
    Lexeme,
    is_near,
    is_of_spark,
    key_at,
    lexemes_of,
    unsure_spans,
)
from rw_sql.masking.telling import IF_EXISTS, KEYWORDS, RUN, SECRET_KEYS, SECRET_WORDS, TELLING_KEY, names_server

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_PLAIN_KEYS = frozenset({
    "backend", "backfill_order", "backfill_rate_limit", "connection", "connector", "convention", "database",
    "database.name", "delimiter", "delta.path", "force_append_only", "format", "fs.path", "group.id.prefix",
    "key.format", "location", "match_pattern", "message", "name", "owner", "paused", "primary_key",
    "properties.bootstrap.server", "properties.client.id", "properties.security.protocol", "refresh_mode",
    "scan.startup.mode", "schema", "schema.name", "snapshot", "stream", "subject", "table", "table.name", "topic",
    "type", "validate", "value.format", "watch",
})  # fmt: skip
"""Properties whose values are never secret. An error about an unknown property masks the values of all properties that
are not in this set, because the unknown property may be a mistyped password."""

_NO_KEYS = frozenset({
    "CHECKPOINT", "COMMENT", "CONFIRM", "CONNECTION", "DEFAULT", "FILE", "FROM", "LOCATION", "OFFSET", "OFFSETS",
    "REASON", "TABLE",
})  # fmt: skip
"""If one of these words precedes a literal, the literal is not the value of a property."""

_AFTER_OPTIONS = frozenset({"CONFIRM", "REASON"})
"""Words that may come after the properties of a statement. A literal after such a word is not the value of a
property."""

_NO_PROPERTIES = frozenset({
    "ANALYZE", "BEGIN", "CANCEL", "COMMENT", "COMMIT", "DESC", "DESCRIBE", "DROP", "FLUSH", "INJECT", "OPTIMIZE",
    "PAUSE", "REBUILD", "REFRESH", "RESET", "RESUME", "REWIND", "ROLLBACK", "SET", "SHOW", "SKIP", "TRUNCATE", "UNDO",
    "USE", "VACUUM", "VALIDATE", "WAIT",
})  # fmt: skip
"""A statement that begins with one of these words usually has no properties. :func:`_has_properties` finds the
exceptions, such as statements about a CHECKPOINT."""

_OBJECTS = (
    "CONNECTION", "DATABASE", "FUNCTION", "INDEX", "MATERIALIZED", "SCHEMA", "SINK", "SOURCE", "SUBSCRIPTION",
    "SYSTEM", "TABLE", "TEMPORARY", "USER", "VIEW",
)  # fmt: skip
_WITHOUT_VALUE = frozenset({"DESC", "DESCRIBE", "DROP", "SHOW"})
_BEFORE_SECRETS = 5
_OF_SECRETS = frozenset({
    "AS", "BY", "CASCADE", "EXISTS", "FALSE", "FILE", "IDENTIFIED", "IF", "NOT", "NULL", "OWNER", "RENAME", "SCHEMA",
    "SECRET", "SET", "TO", "TRUE", "VALUE", "WITH",
})  # fmt: skip
"""Words in CREATE SECRET and ALTER SECRET that are not the value of the secret."""

_LONG_OF_SECRETS = tuple(sorted(word for word in _OF_SECRETS if len(word) > 3))

_BEFORE_OPTIONS = frozenset({"WITH", "SET", "OPTIONS"})
_BEFORE_NAME = frozenset({"OWNER", "RENAME", "SCHEMA", "TO"})
_BEFORE_QUERY = frozenset({"SELECT", "WITH", "FROM", "VALUES", "("})
_AFTER_PLAIN = frozenset({",", ")", ";", ""})
_SIGNS = frozenset("(),=;")
_NAME = re.compile(r"[\w$-](?:[\w .$-]{0,61}[\w.$-])?")
_KEY = re.compile(r"[\w.:/-]{1,100}")
_HOSTS = re.compile(r"[\w.-]{1,100}:\d{1,5}(?:\s*,\s*[\w.-]{1,100}:\d{1,5}){0,9}")
_VARIABLE = re.compile(r"[a-z_]{1,60}", re.IGNORECASE)
"""Matches a text in quotes after ``:`` that is probably the name of a script's variable."""

_SEVERAL = re.compile(r"['\"`=]")
"""Matches a quote or ``=``. A literal that contains a match probably consists of several options between wrong
quotes."""

_SHOWN_WORDS = KEYWORDS | TYPES | {
    "AND", "AVRO", "CSV", "DEBEZIUM", "ENCODE", "FORMAT", "GROUP", "INCLUDE", "INTO", "KEY", "LIMIT", "NATIVE", "ORDER",
    "PLAIN", "PRIMARY", "PROTOBUF", "UPSERT", "WATERMARK",
}  # fmt: skip
"""Words that errors show even if the statement's quotes may be wrong."""

_LONGEST_KEY = 100
_MOST_SHOWN = 2
"""A text of at most this many characters is shown, because it is too short to be a secret."""

_VALUE = re.compile(r"[(,\n]\s*([\w.]++)\s*=\s*\Z")
"""Matches the name of an option and the ``=`` directly before the option's value."""

_NEXT = re.compile(NEXT_STATEMENT, re.IGNORECASE)
_TELLING = re.compile(SECRET_WORDS, re.IGNORECASE)
_QUOTE_OR_TELLING = re.compile(rf"{QUOTES.pattern}|{SECRET_WORDS}", re.IGNORECASE)
_UNIT = r"(?:milli|micro)?(?:second|sec|minute|min|hour|day|week|month|year)s?|ms|[smhd]"
_NO_SECRET = re.compile(
    rf"(?:[-+]?\d{{1,9}}(?:\.\d{{1,6}})?\s*(?:{_UNIT})\s*)+"
    r"|\d{4}-\d\d?-\d\d?(?:[T ]\d\d?:\d\d(?::\d\d(?:\.\d{1,9})?)?)?\s*(?:Z|UTC|[-+]\d\d:?\d\d)?"
    rf"|[-+]?\d{{1,4}}|\d\d?:\d\d(?::\d\d)?|.{{0,{_MOST_SHOWN}}}"
    r"|(?:https?|s3|jdbc:\w+)://[\w.-]{1,100}(?::\d{1,5})?(?:/[\w-]{0,30})?"
    r"|true|false|earliest|latest|meta|env|file|append-only|upsert|debezium|plain|json|csv|avro|protobuf"
    r"|kafka|datagen|posix_fs|s3|jdbc|nats|mqtt|kinesis|pulsar|rabbitmq|iceberg|delta|(?:postgres|mysql)-cdc",
    re.IGNORECASE,
)
"""Matches a text that cannot be a secret: an interval, a time, a short number, at most two characters, an address
without a login, or the name of a connector or of a format."""


def hidden_spans(text: str, plain: Collection[str], *, with_comments: bool = True) -> list[tuple[int, int]]:
    """The spans of ``text`` that errors must not show if the parser has refused the statements in ``text``.

    The values of the properties ``plain`` are shown. Values that are never secret are shown too. The result has no
    spans for a statement that cannot have properties, such as a SELECT.
    """
    every = list(lexemes_of(text))
    comments = [lexeme for lexeme in every if lexeme.kind == "comment" and with_comments]
    statements = list(_statements([lexeme for lexeme in every if lexeme.kind != "comment"]))
    unsure = unsure_spans([lexeme for lexeme in every if lexeme.kind != "comment"])
    spans: list[tuple[int, int]] = []
    done = 0
    for statement, following in zip_longest(statements, statements[1:]):
        start, end = statement[0].start, statement[-1].end
        until = following[0].start if following is not None else len(text)
        inside = comments[_place(comments, start) : _place(comments, max(end, until))]
        at = bisect_right(unsure, start, key=lambda span: span[0]) - 1
        is_doubtful = at >= 0 and start < unsure[at][1]
        if start < done or not _has_properties(text, statement):
            # A comment without an end, or a string with a wrong quote, may contain the statements that follow.
            for comment in inside:
                spans += _hidden_in_comment(text, comment, hides_all=False) if comment.is_open else ()
            if is_doubtful and start >= done and (other := _NEXT.search(text, start, unsure[at][1])) is not None:
                done = unsure[at][1]
                spans += _doubtful_runs(text, other.end(), done)
            continue
        refused = _Refused(statement, plain)
        if is_doubtful and (not refused.is_view or _TELLING.search(text, start, unsure[at][1])):
            end = done = unsure[at][1]
            first = QUOTES.search(text, start, end)
            spans += _doubtful_runs(text, first.start() if first else start, end)
            spans += [span for span in refused.spans if first is not None and span[0] < first.start()]
        else:
            spans += refused.spans
        inside = comments[_place(comments, start) : _place(comments, max(end, until))]
        hides_all = _TELLING.search(text, start, end) is not None
        for comment in inside:
            spans += _hidden_in_comment(text, comment, hides_all=hides_all)
    first_start = statements[0][0].start if statements else len(text)
    for comment in comments[: _place(comments, first_start)]:
        spans += _hidden_in_comment(text, comment, hides_all=False)
    return spans


def _hidden_in_comment(text: str, comment: Lexeme, *, hides_all: bool) -> Iterator[tuple[int, int]]:
    """The spans of a comment that errors must not show. A comment may contain a secret if it was a part of a
    statement."""
    begin = _QUOTE_OR_TELLING.search(text, comment.start, comment.end)
    if hides_all or begin is not None:
        start = comment.start + len("--") if hides_all or begin is None else begin.start()
        yield from _doubtful_runs(text, start, comment.end)


def _place(comments: Sequence[Lexeme], position: int) -> int:
    return bisect_left(comments, position, key=lambda comment: comment.start)


def _statements(lexemes: Sequence[Lexeme]) -> Iterator[Sequence[Lexeme]]:
    """The statements of a text. If a ``;`` may be missing, a statement also ends before CREATE or ALTER."""
    first = 0
    for at, lexeme in enumerate([*lexemes, END]):
        is_end = lexeme.text in (";", "")
        if at > first and (is_end or _begins_statement(lexemes, at)):
            yield lexemes[first:at]
            first = at
        first += is_end


def _begins_statement(lexemes: Sequence[Lexeme], at: int) -> bool:
    if lexemes[at].upper not in ("CREATE", "ALTER") or lexemes[at - 1].upper in ("EXPLAIN", "SHOW"):
        return False
    following = lexemes[at + 1].upper if at + 1 < len(lexemes) else ""
    return following in ("OR", "SECRET", *_OBJECTS)


def _has_properties(text: str, statement: Sequence[Lexeme]) -> bool:
    """True if a statement may have properties. For a statement of Spark, returns False, unless the statement begins
    with WITH or FROM and has no SELECT."""
    words = [lexeme.upper for lexeme in statement if lexeme.kind == "word"]
    if is_of_spark(text, statement[0].start):
        return words[0] in ("WITH", "FROM") and "SELECT" not in words
    first = next((word for word in words if word != "EXPLAIN"), "")
    if first not in _NO_PROPERTIES or any(TELLING_KEY.search(lexeme.text) for lexeme in statement):
        return True
    has_list = "WITH" in words or any(lexeme.text in ("(", "=") for lexeme in statement)
    return has_list and (first == "SHOW" or any(_is_checkpoint(word) for word in words))


def _is_checkpoint(word: str) -> bool:
    return abs(len(word) - len("CHECKPOINT")) <= 2 and is_near(word, ("CHECKPOINT",))


def _doubtful_runs(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Returns the spans that errors must not show in a part of a text whose quotes may be unbalanced. These spans cover
    everything except keywords, the names of options, very short texts, and values that are never secret."""
    for run in RUN.finditer(text, start, end):
        key = _VALUE.search(text, max(0, run.start() - _LONGEST_KEY), run.start())
        is_plain = key is not None and key[1].lower() in _PLAIN_KEYS
        is_short = run["run"] is not None and len(run["run"].strip("'\"`$")) <= _MOST_SHOWN
        if run["run"] and not (is_plain or is_short or run["run"].upper() in _SHOWN_WORDS):
            yield run.span()


class _Refused:
    """Finds the spans of one refused statement that errors must not show. The attribute ``spans`` contains the
    result."""

    def __init__(self, lexemes: Sequence[Lexeme], plain: Collection[str]) -> None:
        self.spans: list[tuple[int, int]] = []
        self._lexemes = lexemes
        self._plain = plain
        self._is_told = self._has_options = False
        self._name_end = 0
        """The index of the first lexeme after the secret's name in CREATE SECRET or ALTER SECRET."""
        self._opening: list[int] = []
        """For each lexeme, the index of the ``(`` that encloses it; -1 if the lexeme is not in parentheses."""
        self._with_options: set[int] = set()
        """The index of each ``(`` whose parentheses directly contain an ``=``."""
        self._read_parentheses()
        secret = self._secret()
        self._has_secret = secret is not None
        query, query_end = self._query()
        self.is_view = query < query_end == len(lexemes)
        read = typographic = 0
        if secret is not None:
            self._name_end = self._after_name(secret)
            read = self._read_unquoted(self._name_end, len(lexemes))
        for at, lexeme in enumerate(lexemes):
            if query <= at < query_end:
                continue
            if (lexeme.is_quoted and not self._is_shown(at)) or "$$" in lexeme.text:
                self._hide(at)
            elif lexeme.text in TYPOGRAPHIC and at >= typographic:
                typographic = self._hide_typographic(at)
            self._has_options = self._has_options or lexeme.text == "="
            if self._is_telling(at):
                self._is_told = True
                if at >= read and self._begins_option(at):
                    read = self._read_unquoted(at + 1, self._end_of_option(at + 1))

    def _read_parentheses(self) -> None:
        opened = [-1]
        for at, lexeme in enumerate(self._lexemes):
            if lexeme.text == ")" and len(opened) > 1:
                opened.pop()
            self._opening.append(opened[-1])
            if lexeme.text == "(":
                opened.append(at)
            elif lexeme.text == "=" and opened[-1] >= 0:
                self._with_options.add(opened[-1])

    def _at(self, at: int) -> Lexeme:
        return self._lexemes[at] if 0 <= at < len(self._lexemes) else END

    def _hide(self, at: int) -> None:
        self.spans.append((self._lexemes[at].start, self._lexemes[at].end))

    def _is_telling(self, at: int) -> bool:
        lexeme = self._at(at)
        is_value = self._at(at - 1).text in ("=", ":") and (lexeme.is_quoted or lexeme.upper == "SECRET")
        is_key = lexeme.kind in ("word", "name", "string") and not is_value and self._at(at + 1).text != "."
        return is_key and TELLING_KEY.search(key_at(self._lexemes, at)) is not None

    def _secret(self) -> int | None:
        """Returns the index of the word SECRET, or of a similarly spelled word, in a statement that may create or
        change a secret. Returns 0, the index of the verb, if CREATE or ALTER names no kind of object. Returns None for
        any other statement."""
        if self._at(0).upper in _WITHOUT_VALUE:
            return None
        for at in range(_BEFORE_SECRETS):
            word = self._at(at)
            if word.kind != "word" or is_near(word.upper, _OBJECTS):
                return None
            if is_near(word.upper, ("SECRET", "SECRETS")):
                return at
            if at == 1 and self._at(0).upper in ("CREATE", "ALTER") and self._at(2).upper in ("AS", "WITH"):
                return 0
        return None

    def _after_name(self, secret: int) -> int:
        at = secret + 1
        while self._at(at).upper in IF_EXISTS:
            at += 1
        if self._at(at).upper in _OF_SECRETS:
            return at
        while self._at(at + 1).text == "." and not self._at(at).text.startswith("'"):
            at += 2
        return at if self._at(at).text.startswith("'") else at + 1

    def _query(self) -> tuple[int, int]:
        """Returns the indexes at which the query of a materialized view or sink begins and ends. Both are the number of
        lexemes if the statement has no query, or if the end of a sink's query is uncertain."""
        end = len(self._lexemes)
        words = [lexeme.upper for lexeme in self._lexemes[:6]]
        if words[:1] == ["EXPLAIN"]:
            words.pop(0)
        if words[1:3] == ["OR", "REPLACE"]:
            del words[1:3]
        is_sink = words[:2] == ["CREATE", "SINK"]
        if not is_sink and (words[:1] not in (["CREATE"], ["ALTER"]) or words[1:3] != ["MATERIALIZED", "VIEW"]):
            return end, end
        pairs = [(one.upper, other.upper) for one, other in pairwise(self._lexemes)]
        start = next((at for at, (one, other) in enumerate(pairs) if one == "AS" and other in _BEFORE_QUERY), end)
        if not is_sink:
            return start, end
        options = (at for at in range(start + 2, len(pairs)) if pairs[at] == ("WITH", "("))
        stop = next(options, end)
        # A parenthesis with ``=`` may be a list of options after a mistyped WITH.
        is_sure = stop < end and not any(start < at < stop for at in self._with_options)
        return (start, stop) if is_sure else (end, end)

    def _is_shown(self, at: int) -> bool:
        """True if the text in quotes at the index ``at`` cannot be a secret."""
        lexeme, before, after = self._at(at), self._at(at - 1), self._at(at + 1)
        content = re.sub(r"^[eE]?['\"`$]|['\"`$]$", "", lexeme.text)
        if lexeme.is_open or (before.is_literal and not lexeme.gap) or (after.is_quoted and not after.gap):
            return False
        if after.text in ("=", ".") and before.text in ("(", ",", "") and _KEY.fullmatch(content):
            return not self._is_told or self._is_telling(at) or content.lower() in self._plain
        if before.text == ":" and not lexeme.gap and not self._is_told and _VARIABLE.fullmatch(content):
            return True
        if lexeme.text[0] in '"`':
            is_value = before.text in ("=", ":", ">") or before.is_quoted or self._is_in_options(at)
            is_name = _NAME.fullmatch(content) is not None and (before.kind in ("word", "end") or before.text in "(,.<")
            if is_name and (before.upper == "SECRET" or at < self._name_end or not (is_value or self._is_told)):
                return True
        if not _SEVERAL.search(content) and self._is_plain(at - 2 if before.text == "=" else at - 1):
            return after.text in _AFTER_PLAIN or (after.gap != "" and not after.is_quoted)
        if self._is_told or self._has_secret:
            return False
        key = key_at(self._lexemes, at - 2 if before.text == "=" else at - 1).lower()
        if (names_server(key) or key == "bootstrap") and _HOSTS.fullmatch(content):
            return True
        return self._is_no_value(at) or _NO_SECRET.fullmatch(content.strip()) is not None

    def _is_no_value(self, at: int) -> bool:
        """True if a word such as REASON precedes the text at the index ``at``. This text is then not the value of a
        property."""
        before, opening = self._at(at - 1).upper, self._opening[at]
        if before == "TABLE" and "FROM" in (self._at(at - 3).upper, self._at(at - 5).upper):
            return True
        return opening not in self._with_options and before in (_AFTER_OPTIONS if self._has_options else _NO_KEYS)

    def _is_plain(self, at: int) -> bool:
        """True if an option's name ends at the index ``at``, and the option's value is never secret."""
        key = key_at(self._lexemes, at).lower()
        if key not in _PLAIN_KEYS and key not in self._plain and not (self._has_secret and key in SECRET_KEYS):
            return False
        first, before = self._at(self._first(at)), self._at(self._first(at) - 1)
        return (
            before.text in ("(", ",", "") or before.upper in _BEFORE_OPTIONS or first.begins_line or before.is_literal
        )

    def _first(self, at: int) -> int:
        """The index of the first word of the dotted name whose last word is at the index ``at``."""
        while self._at(at - 1).text == "." and at > 1:
            at -= 2
        return at

    def _hide_typographic(self, at: int) -> int:
        """Hides the text between typographic quotation marks that begins at the index ``at``. Returns the index after
        the text."""
        end = at + 1
        while end < len(self._lexemes) and self._at(end - 1).text not in TYPOGRAPHIC - {self._at(at).text}:
            if self._at(end).begins_line:
                break
            end += 1
        is_plain = self._at(at - 1).text == "=" and self._is_plain(at - 2)
        for other in range(at, at if is_plain else end):
            self._hide(other)
        return end

    def _begins_option(self, at: int) -> bool:
        """True if the name that ends at ``at`` may be the name of an option instead of the name of a column."""
        first = self._first(at)
        before, opening = self._at(first - 1), self._opening[at]
        if opening < 0:
            return first < at or before.upper in _BEFORE_OPTIONS or before.text == ","
        return self._follows_with(opening) or (opening in self._with_options and before.text in ("(", ",", "."))

    def _is_in_options(self, at: int) -> bool:
        """True if the lexeme at the index ``at`` is inside a list of options in parentheses."""
        opening = self._opening[at]
        return opening >= 0 and (opening in self._with_options or self._follows_with(opening))

    def _follows_with(self, opening: int) -> bool:
        """True if WITH, SET, OPTIONS or ENCODE with its format precedes the ``(`` at the index ``opening``."""
        return self._at(opening - 1).upper in _BEFORE_OPTIONS or self._at(opening - 2).upper == "ENCODE"

    def _end_of_option(self, start: int) -> int:
        """Returns the index after the value that begins at the index ``start``. The value extends to the next
        option."""
        depth = 0
        for at in range(start, len(self._lexemes)):
            lexeme = self._at(at)
            depth += (lexeme.text == "(") - (lexeme.text == ")")
            if depth < 0 or (depth == 0 and lexeme.text == ","):
                return at
            if at > start and lexeme.begins_line and lexeme.kind == "word" and self._at(at + 1).text in ("=", "."):
                return at
        return len(self._lexemes)

    def _read_unquoted(self, start: int, end: int) -> int:
        """Hides the unquoted words of a value, and the numbers and signs that are joined to these words. Words of the
        grammar and names of options are not hidden. Returns ``end``."""
        is_hidden = False
        for at in range(start, end):
            lexeme, before = self._at(at), self._at(at - 1)
            is_option = self._at(at + 1).text == "=" and before.text in ("(", ",")
            is_name = before.upper == "SECRET" or (self._has_secret and before.upper in _BEFORE_NAME)
            is_word = lexeme.kind == "word" and not (is_option or is_name or self._is_of_grammar(lexeme))
            is_joined = is_hidden and not lexeme.gap and lexeme.text not in _SIGNS
            is_hidden = is_word or is_joined
            if is_hidden:
                self._hide(at)
        return end

    def _is_of_grammar(self, lexeme: Lexeme) -> bool:
        if self._has_secret:
            return lexeme.upper in _OF_SECRETS or is_near(lexeme.upper, _LONG_OF_SECRETS)
        return lexeme.upper in KEYWORDS or lexeme.upper in TYPES
