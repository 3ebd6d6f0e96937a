"""The errors that users can see: their codes, SQLSTATEs, positions in the SQL text, and text form.

Codes are grouped: ``RW1xx`` for syntax, ``RW2xx`` for names and types, ``RW3xx`` for refused statements, ``RW4xx`` for
upstreams and the runtime. A code is never reused. SQLSTATE values follow appendix A of PostgreSQL's documentation. The
function that raises an error provides its message and hint.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING

from rw_sql.masking import masked, masked_around, without_secrets_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Span:
    """A range of the SQL text: the character offsets ``[start, end)``, and the line and column of ``start``. Lines
    and columns are counted from 1."""

    start: int
    end: int
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One kind of error. ``title`` describes the kind in general. The message of each error names the object
    concerned."""

    code: str
    sqlstate: str
    title: str


SYNTAX_ERROR = ErrorCode("RW101", "42601", "the text is not a statement")
UNTERMINATED = ErrorCode("RW102", "42601", "a string, quoted name or comment does not end")
INVALID_EXPRESSION = ErrorCode("RW103", "42601", "an expression or query is not SQL")
TOO_COMPLEX = ErrorCode("RW104", "54001", "the statement is nested too deeply or too long")
DUPLICATE_CLAUSE = ErrorCode("RW105", "42601", "a clause or option is given twice")
UNKNOWN_OPTION = ErrorCode("RW106", "42601", "the statement has no such option")
INVALID_OPTION = ErrorCode("RW107", "22023", "an option's value is not valid")

DUPLICATE_OBJECT = ErrorCode("RW201", "42710", "the name is already used")
UNDEFINED_OBJECT = ErrorCode("RW203", "42704", "the object does not exist")
UNKNOWN_PROPERTY = ErrorCode("RW204", "42704", "the connector has no such property")
UNDEFINED_COLUMN = ErrorCode("RW205", "42703", "the column does not exist")
UNSUPPORTED_TYPE = ErrorCode("RW206", "42704", "the type does not exist")
MISSING_PROPERTY = ErrorCode("RW207", "42601", "a required property is missing")
INVALID_PROPERTY = ErrorCode("RW208", "22023", "a property's value is not valid")
UNKNOWN_SPLIT = ErrorCode("RW209", "42704", "the source has no such split")
INVALID_SPLIT_STATE = ErrorCode("RW210", "22023", "a split's state is not valid")
OFFSET_OUT_OF_RANGE = ErrorCode("RW211", "22003", "an offset is outside the range that the upstream has")
INVALID_DEFINITION = ErrorCode("RW212", "42P17", "the definition contradicts itself")
UNKNOWN_PARAMETER = ErrorCode("RW213", "42704", "the parameter does not exist")
INVALID_PARAMETER = ErrorCode("RW214", "22023", "the parameter's value is not valid")
INVALID_QUERY = ErrorCode("RW215", "42P17", "the query cannot be kept up to date")
UNDEFINED_SCHEMA = ErrorCode("RW216", "3F000", "the schema does not exist")
INVALID_SCHEMA_NAME = ErrorCode("RW217", "42939", "a schema cannot have this name")
WRONG_KIND = ErrorCode("RW236", "42809", "the statement is for another kind of object")
UNDEFINED_VARIABLE = ErrorCode("RW250", "42704", "a variable of the script is not set")
INVALID_COMMAND = ErrorCode("RW251", "42601", "a backslash command of the script is wrong")
UNDEFINED_OPERATION = ErrorCode("RW230", "42704", "the operation does not exist")

NOT_SUPPORTED = ErrorCode("RW301", "0A000", "rw_sql does not support this statement or clause")
CONNECTOR_IS_FIXED = ErrorCode("RW302", "0A000", "the property cannot be changed")
UNSAFE_OPERATIONS_OFF = ErrorCode("RW303", "55000", "unsafe operations are not enabled")
CONFIRMATION_NEEDED = ErrorCode("RW304", "55000", "the unsafe operation was not confirmed")
SOURCE_IS_RUNNING = ErrorCode("RW305", "55006", "the source must be paused")
DEPENDENTS_EXIST = ErrorCode("RW306", "2BP01", "other objects depend on the object")
INVALID_CONFIRMATION = ErrorCode("RW307", "22023", "the confirmation does not belong to this request")
METASTORE_IS_NEWER = ErrorCode("RW308", "0A000", "a newer rw_sql wrote this metastore")
CONCURRENT_CHANGE = ErrorCode("RW309", "40001", "another statement changed the same objects")
SPLITS_UNKNOWN = ErrorCode("RW310", "55000", "the source's splits are not known yet")
NOT_ALTERABLE = ErrorCode("RW311", "0A000", "the property can be changed only by UNSAFE SET")
CANNOT_REPLACE = ErrorCode("RW312", "0A000", "no statement can change the object to the new definition")
SINK_CANNOT_FOLLOW = ErrorCode("RW320", "0A000", "the sink cannot apply its input's changes to the target")
NOT_IN_A_BLOCK = ErrorCode("RW331", "25001", "the statement cannot run inside a block")
BLOCK_ABORTED = ErrorCode("RW332", "25P02", "the block is aborted")
BLOCK_LEFT_OPEN = ErrorCode("RW333", "25000", "a script ends inside a block")
CANNOT_UNDO = ErrorCode("RW330", "55000", "the operation cannot be undone")
CANNOT_REWIND = ErrorCode("RW334", "55000", "the source cannot be rewound to that operation")
CANNOT_REFRESH = ErrorCode("RW340", "55006", "the table cannot be refreshed now")
CHECKPOINT_IN_USE = ErrorCode("RW321", "55006", "a job or another process is using the checkpoint, or may be using it")
CHECKPOINT_UNFINISHED = ErrorCode("RW322", "55000", "a batch or a rewrite of the checkpoint is not finished")
CANNOT_MOVE_SOURCE = ErrorCode("RW323", "0A000", "the source's position cannot be set")
CANNOT_UNDO_CHECKPOINT = ErrorCode("RW324", "55000", "the rewrite of the checkpoint cannot be undone")

UPSTREAM_UNREACHABLE = ErrorCode("RW401", "08001", "the upstream does not answer")
UPSTREAM_MISSING = ErrorCode("RW402", "08004", "the upstream does not have the topic, file or table")
INVALID_OFFSETS_FILE = ErrorCode("RW403", "22030", "the offsets file cannot be used")
JAVA_MISSING = ErrorCode("RW404", "58000", "Java is missing or too old")
DELTA_MISSING = ErrorCode("RW405", "58000", "the Spark session was built without Delta Lake")
NOT_APPLIED_YET = ErrorCode("RW406", "57014", "the statement is committed but not applied yet")
NO_SESSION = ErrorCode("RW407", "55000", "no Spark session is attached")
FILE_UNREADABLE = ErrorCode("RW408", "58P01", "a file cannot be read")
SPARK_ERROR = ErrorCode("RW409", "38000", "a Spark statement failed")
SPARK_ENDED = ErrorCode("RW410", "57P01", "the Spark session has ended")
SECRET_KEY_MISSING = ErrorCode("RW411", "58000", "there is no key to encrypt secrets with")
SECRET_UNREADABLE = ErrorCode("RW412", "28000", "a secret's value cannot be read")
TARGET_UNFIT = ErrorCode("RW413", "42P16", "the target cannot take the sink's rows")
LIBRARY_MISSING = ErrorCode("RW414", "58000", "a Java library that a connector or the warehouse needs is missing")
CONNECT_SESSION = ErrorCode("RW415", "0A000", "the session uses Spark Connect")
PACKAGE_MISSING = ErrorCode("RW416", "58000", "a Python package that the command needs is not installed")
SPARK_VERSION = ErrorCode("RW417", "0A000", "rw_sql does not run on this version of Spark")
STORE_UNREACHABLE = ErrorCode("RW418", "58030", "the warehouse cannot be read or written")
SPARK_START = ErrorCode("RW419", "58000", "Spark does not start")
OWNER_MISSING = ErrorCode("RW425", "57P03", "no process runs the jobs that the statement needs")
OWNER_ALIVE = ErrorCode("RW426", "55006", "a process holds the lease of the resource group")
NOT_A_CHECKPOINT = ErrorCode("RW420", "58P01", "the path is not a checkpoint of a streaming query")

_HIDES_LITERALS = (
    SYNTAX_ERROR, UNTERMINATED, INVALID_EXPRESSION, TOO_COMPLEX, DUPLICATE_CLAUSE, UNKNOWN_OPTION, INVALID_OPTION,
    UNKNOWN_PROPERTY,
)  # fmt: skip
"""The kinds of errors for which a secret may be anywhere in the source line."""


class SqlError(Exception):
    """The error that a statement raises. It has a code, a one-sentence message, an optional position in the SQL text,
    and an optional hint.

    ``hint`` may be None. ``line`` and ``column`` are counted from 1; None if the error has no position. ``str(error)``
    is the result of :meth:`render`, including the source line and a caret below it. In the source line, asterisks
    replace secrets. Some errors hide most values in the source line: errors with ``hides_literals``, syntax errors,
    errors about an unknown property, and errors about a value that contains ``@``. The source lines of these errors
    show only the values of properties that are known to be harmless, and texts that cannot be secret, such as
    intervals. ``plain_keys`` are the keys of additional harmless properties. If ``text`` is a script,
    ``statement_range`` is the range of the error's statement in it.
    """

    def __init__(
        self,
        kind: ErrorCode,
        message: str,
        *,
        hint: str | None = None,
        span: Span | None = None,
        text: str | None = None,
        file: str | None = None,
        detail: str | None = None,
        hides_literals: bool = False,
        plain_keys: Collection[str] = (),
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint
        self.span = span
        self.text = text
        self.file = file
        self.detail = detail
        self.hides_literals = hides_literals
        self.plain_keys = plain_keys
        self.statement_range: tuple[int, int] | None = None

    @property
    def code(self) -> str:
        """The code, such as ``RW203``."""
        return self.kind.code

    @property
    def sqlstate(self) -> str:
        """The five-character SQLSTATE, as in PostgreSQL."""
        return self.kind.sqlstate

    @property
    def line(self) -> int | None:
        """The line, counted from 1, in the statement; after :meth:`moved_into`, the line in the script. None if the
        error has no position."""
        return self.span.line if self.span else None

    @property
    def column(self) -> int | None:
        """The column in the line, counted from 1. None if the error has no position."""
        return self.span.column if self.span else None

    def _plain_keys_in(self, text: str) -> Collection[str] | None:
        """The keys of the properties in ``text`` whose values may be shown. None if all values except secrets may be
        shown."""
        # An address that a connector refuses may contain a login in any form.
        is_address = self.kind is INVALID_PROPERTY and self.span is not None
        has_login = is_address and self.span is not None and "@" in text[self.span.start : self.span.end]
        hides = self.hides_literals or self.kind in _HIDES_LITERALS or has_login
        return self.plain_keys if hides else None

    def located(self, text: str, file: str | None = None) -> SqlError:
        """Sets the SQL text to which the error's span refers, unless a text is already set. Returns this error.

        If it sets the text, it also replaces the secrets of the text in the message and the hint with asterisks.
        """
        if self.text is None:
            self.text = text
            self._hide_secrets_of(text)
        if self.file is None:
            self.file = file
        return self

    def _hide_secrets_of(self, text: str) -> None:
        """Replaces the secrets of ``text`` in the message and the hint with asterisks. ``text`` is the statement or
        script to which the error's span refers."""
        if self.kind is UNTERMINATED and "$" not in (self.hint or ""):
            return  # The only part of a statement that these texts quote is the tag of dollar quotes.
        plain = self._plain_keys_in(text)
        self.message = without_secrets_of(text, self.message, plain=plain)
        self.args = (self.message,)
        self.hint = None if self.hint is None else without_secrets_of(text, self.hint, plain=plain)

    def moved_into(self, script: str, start: int, line: int, column: int, file: str | None) -> SqlError:
        """Relocates this error from a single statement to its script.

        ``start``, ``line`` and ``column`` are the position of the statement in the script. If :meth:`located` was not
        called before, this method replaces the secrets of the script in the message and the hint with asterisks.
        """
        inner = self.span or Span(start=0, end=1, line=1, column=1)
        shift = column - 1 if inner.line == 1 else 0
        self.span = Span(
            start=inner.start + start, end=inner.end + start, line=inner.line + line - 1, column=inner.column + shift
        )
        if self.text is None:
            self._hide_secrets_of(script)
        self.statement_range = None if self.text is None else (start, start + len(self.text))
        self.text, self.file = script, file
        return self

    def _masked_text(self, text: str, span: Span) -> str:
        """Returns the text to which the span refers, with asterisks in place of secrets."""
        plain = self._plain_keys_in(text)
        start, end = self.statement_range or (0, len(text))
        if (start == 0 and end == len(text)) or not start <= span.start <= end:
            return masked(text, plain=plain)
        return masked_around(text, start, end, plain=plain)

    def render(self) -> str:
        """The text for the user: the code and the message, the source line with a caret, the detail, and the hint.
        Missing parts are left out."""
        where = f"{self.file}: " if self.file else ""
        lines = [f"{where}{self.code}: {self.message}"]
        if self.span is not None and self.text is not None:
            lines += _caret(self._masked_text(self.text, self.span), self.span)
        if self.detail:
            lines += [self.detail]
        if self.hint:
            lines += [f"HINT: {self.hint}"]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()

    def _render_traceback_(self) -> list[str]:
        """IPython calls this method. A notebook therefore shows the message without a traceback."""
        return self.render().splitlines()


_WIDEST_LINE = 160


def _caret(text: str, span: Span) -> list[str]:
    start = text.rfind("\n", 0, span.start) + 1
    stop = text.find("\n", span.start)
    line = text[start:] if stop < 0 else text[start:stop]
    at = span.start - start
    if line.startswith("\ufeff"):  # a byte-order mark is invisible
        line, at, start = line[1:], max(0, at - 1), start + 1
    width = max(1, min(span.end, start + len(line)) - span.start)
    left = max(0, at + min(width, 40) - _WIDEST_LINE + 20) if len(line) > _WIDEST_LINE else 0
    shown = line[left : left + _WIDEST_LINE].replace("\t", " ")
    label = f"LINE {span.line}: "
    return [label + shown, " " * (len(label) + at - left) + "^" * min(width, max(1, len(shown) - (at - left)))]


def first_names(names: Iterable[str], most: int) -> str:
    """The first ``most`` names, separated by commas. If there are more names, ``and N more`` follows."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def either(words: Sequence[str]) -> str:
    """The words as alternatives: ``a``, ``a or b``, or ``a, b or c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


_NEAR_THE_BEST = 0.1


def near_names(wanted: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """At most ``most`` of the ``known`` names that are similar to ``wanted``, best match first.

    Names that are much less similar than the best match are left out. If any names differ from ``wanted`` only in upper
    and lower case, only these names are returned.
    """
    names = sorted(known)
    if alike := [name for name in names if name != wanted and name.lower() == wanted.lower()]:
        return alike[:most]
    near = get_close_matches(wanted, names, n=most, cutoff=0.6)
    if len(near) > 1:
        best = SequenceMatcher(None, near[0], wanted).ratio()
        near = [name for name in near if SequenceMatcher(None, name, wanted).ratio() >= best - _NEAR_THE_BEST]
    return near
