"""Reads the objects that a folder's files define. Each object has one CREATE statement, which may be in any file."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from rw_sql.errors import (
    DUPLICATE_OBJECT,
    INVALID_DEFINITION,
    INVALID_PARAMETER,
    Span,
    SqlError,
)
from rw_sql.model.object_lookup import object_name, spoken
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.plan.checks.literal_secrets import refuse_literal_secrets
from rw_sql.syntax import parse_statement, route, split_script
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.lexing.spark_words import could_be_sparks
from rw_sql.syntax.parsing.unsupported import unsupported
from rw_sql.syntax.routing import is_ours
from rw_sql.syntax.statements import (
    CreateConnection,
    CreateMaterializedView,
    CreateSchema,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateTable,
    Name,
)
from rw_sql.syntax.variables.expand import expand
from rw_sql.syntax.variables.references import require_fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rw_sql.errors import ErrorCode
    from rw_sql.plan.statements.replace.least_change import Create
    from rw_sql.syntax import ScriptStatement
    from rw_sql.syntax.variables.source_map import Expanded

KINDS: dict[type, str] = {
    CreateSchema: "schema",
    CreateSecret: "secret",
    CreateConnection: "connection",
    CreateSource: "source",
    CreateTable: "table",
    CreateMaterializedView: "materialized_view",
    CreateSink: "sink",
}
"""Maps each statement that a folder may contain to the kind of its object, in the order of creation."""

RELATIONS = ("source", "table", "materialized_view", "sink")
"""The kinds of objects that share one namespace."""

_WORD = r"(?:\"(?:[^\"]|\"\")+\"|[^\W\d][\w$]*)"
_RENAMED = re.compile(rf"--\s*rw:\s*renamed\s+from\s+({_WORD}(?:\.{_WORD})?)\s*$", re.IGNORECASE | re.MULTILINE)
_PART = re.compile(_WORD)
_NOTE = re.compile(r"--\s*rw:(.*)$", re.MULTILINE)
_MOST_PLACES = 5
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIRST_WORD = re.compile(r"\w+|.", re.DOTALL)
_CREATE_TABLE = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b", re.IGNORECASE)
_RUN_OTHERS = "run other statements with rw-sql run"
_ONLY_DEFINITIONS = (
    "a folder may contain only CREATE statements of schemas, sources, tables, views, sinks, connections and secrets"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderObject:
    """An object as a folder defines it. The object's definition is at ``line`` (1-based) of ``file``.

    ``was`` is the object's former name, from a comment ``-- rw: renamed from <name>`` at the object's statement.
    """

    kind: str
    name: str
    statement: Create | CreateSchema
    file: str
    line: int
    was: str | None = None

    @property
    def place(self) -> str:
        """The position as ``file:line``."""
        return f"{self.file}:{self.line}"


class DefinitionError(SqlError):
    """An error in the definition ``wanted`` of a folder. The error's message names the place of this definition."""

    def __init__(self, wanted: FolderObject, kind: ErrorCode, message: str, *, hint: str) -> None:
        super().__init__(kind, message, hint=hint)
        self.wanted = wanted


class _NoObjects:
    """A catalog without objects. With this catalog, the parser determines whether a statement belongs to rw_sql or to
    Spark."""

    def has_object(self, name: Name) -> bool:
        """Returns False, because this catalog has no objects."""
        return False

    def has_parameter(self, name: str) -> bool:
        """True if rw_sql has a session parameter with this name."""
        return name in SESSION_PARAMETERS


def read_folder(texts: Iterable[tuple[str, str]], variables: Mapping[str, str]) -> tuple[FolderObject, ...]:
    """The objects that the files define, in the order of the statements. The files are (name, text) pairs. The function
    replaces each ``${name}`` in a text with the value of the variable.

    Raises SqlError in three cases: a statement is not a CREATE statement of rw_sql, a name is defined twice, or a file
    contains the value of a secret. The error has a position in the file. If several statements are wrong, the error is
    about the first wrong statement, and its detail lists the places of the others.
    """
    found: list[FolderObject] = []
    wrong: list[SqlError] = []
    for file, text in texts:
        try:
            found += _objects(with_variables(text, variables, file), file, wrong)
        except SqlError as error:
            wrong.append(error)
    if wrong:
        raise _first_of(wrong)
    for repeat in repeated(found):
        raise repeat
    return tuple(found)


def _first_of(errors: list[SqlError]) -> SqlError:
    """Returns the first of several errors, with a detail that lists the places of the other errors."""
    first, *others = errors
    if others and first.detail is None:
        places = [f"{error.file}:{error.line}" for error in others[:_MOST_PLACES]]
        if len(others) > _MOST_PLACES:
            places.append(f"{len(others) - _MOST_PLACES} others")
        verb = "statement is" if len(others) == 1 else "statements are"
        first.detail = f"{len(others)} more {verb} wrong: {', '.join(places)}"
    return first


def with_variables(text: str, variables: Mapping[str, str], file: str) -> Expanded:
    """Replaces each variable in the text with its value. A variable is written as ``${name}`` or in the form that
    ``rw-sql run`` accepts.

    Variables in comments are not replaced, except in ``-- rw:`` comments.

    Raises SqlError with a position in the text.
    """
    return expand(text, variables, file=file, braced=variables)


def read_variables(text: str, file: str) -> dict[str, str]:
    """Reads the variables from an environment's file. Each line is ``NAME=value``, empty, or a comment that begins with
    ``#``. Raises SqlError for any other line."""
    found: dict[str, str] = {}
    text = text.removeprefix("\ufeff")
    start = 0
    for line in text.splitlines(keepends=True):
        at, start = start, start + len(line)
        said = line.strip()
        if not said or said.startswith("#"):
            continue
        name, equals, value = said.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or _NAME.fullmatch(name) is None:
            span = _span(text, at, at + len(line.rstrip("\r\n")))
            raise SqlError(
                INVALID_PARAMETER,
                "a line of an environment file must be NAME=value",
                span=span,
                hint="write a line such as topic=orders",
            ).located(text, file)
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        require_fit(name, value)
        found[name] = value
    return found


def statements_with_notes(text: str) -> list[tuple[ScriptStatement, str]]:
    """Returns the statements of a file as pairs (statement, text with its comments). The comments are those above the
    statement, inside the statement, and after the statement on its last line."""
    found = []
    parts = split_script(text)
    above = 0
    for part, following in zip_longest(parts, parts[1:]):
        behind = _line_end(text, part, following)
        found.append((part, text[above:behind]))
        above = behind
    return found


def _line_end(text: str, part: ScriptStatement, following: ScriptStatement | None = None) -> int:
    """The end of the line on which a statement ends. If the following statement begins on this line, the result is the
    start of the following statement."""
    until = following.start if following is not None else len(text)
    end = text.find("\n", part.start + len(part.text), until)
    return until if end < 0 else end


def stray_note(text: str) -> SqlError | None:
    """Returns the error for a comment ``-- rw:`` below the last statement. Such a comment belongs to no statement."""
    parts = split_script(text)
    note = _NOTE.search(text, _line_end(text, parts[-1]) if parts else 0)
    if note is None:
        return None
    return SqlError(
        INVALID_DEFINITION,
        f"{note[0].strip()} belongs to no statement",
        span=_span(text, note.start(), note.end()),
        hint="write the comment above the statement of the renamed object",
    )


def _objects(expanded: Expanded, file: str, wrong: list[SqlError]) -> Iterator[FolderObject]:
    """Returns the objects that a file defines. Adds the errors of the file's statements to ``wrong``. The position of
    each error refers to the file before variables were replaced."""
    for part, notes in statements_with_notes(expanded.text):
        _, span = expanded.source(part.start, part.start + len(part.text))
        try:
            yield folder_object(part.text, notes, file=file, line=span.line)
        except SqlError as error:
            wrong.append(expanded.locate(part.locate(error, expanded.text, file)))
    stray = stray_note(expanded.text)
    if stray is not None:
        wrong.append(expanded.locate(stray.located(expanded.text, file)))


def folder_object(text: str, notes: str, *, file: str, line: int, has_values: bool = False) -> FolderObject:
    """The object that a statement of a folder defines; ``notes`` contains the statement's comments.

    For a statement that a folder must not contain, raises SqlError with a position in the statement. If ``has_values``
    is True, the statement may contain the value of a secret.
    """
    try:
        statement = parse_statement(text)
    except SqlError as error:
        refusal = spark_refusal(text, error)
        if refusal is None:
            raise
        raise refusal from error
    refused = unsupported(statement)
    if refused is not None:
        raise refused
    if isinstance(statement, CreateTable):
        require_ours(statement)
    if not isinstance(
        statement,
        CreateSchema
        | CreateSecret
        | CreateConnection
        | CreateSource
        | CreateTable
        | CreateMaterializedView
        | CreateSink,
    ):
        raise SqlError(
            INVALID_DEFINITION,
            _ONLY_DEFINITIONS,
            span=statement.span,
            hint=_RUN_OTHERS,
        )
    if not has_values:
        require_no_value(statement)
    name = object_name(statement.name)
    return FolderObject(
        kind=KINDS[type(statement)],
        name=name,
        statement=_plain(statement),
        file=file,
        line=line,
        was=_was(notes, name),
    )


def spark_refusal(text: str, error: SqlError) -> SqlError | None:
    """The error for a Spark statement, which a folder must not contain; None if the statement is not a Spark statement.
    ``error`` is the error with which rw_sql's parser refused the statement."""
    try:
        if not could_be_sparks(text) or route(text, _NoObjects()) is not None:
            return None
    except SqlError:
        return None
    word = _FIRST_WORD.match(text)
    hint = _RUN_OTHERS
    if _CREATE_TABLE.match(text):
        hint += f"; or correct it as a definition of rw_sql: {error.message}"
    return SqlError(
        INVALID_DEFINITION,
        f"{_ONLY_DEFINITIONS}; this statement is Spark's",
        span=Span(0, word.end() if word is not None else 1, 1, 1),
        hint=hint,
    )


def require_ours(statement: CreateTable) -> None:
    """Raises SqlError for a statement without any clause that is specific to rw_sql. A session would pass this
    statement to Spark."""
    if is_ours(statement, _NoObjects()):
        return
    if statement.query is None:
        hint = "for a table of rw_sql, add WITH (connector = 'kafka', …)"
    else:
        hint = (
            "for a query whose result is kept up to date, write CREATE MATERIALIZED VIEW "
            f"{sql_name(statement.name.key)} AS …"
        )
    raise SqlError(
        INVALID_DEFINITION,
        "without a clause of rw_sql, such as WITH (connector = …), this CREATE TABLE creates a Spark table; a folder "
        "may not contain it",
        span=statement.span,
        hint=f"{_RUN_OTHERS}; {hint}",
    )


def _plain(statement: Create | CreateSchema) -> Create | CreateSchema:
    """Removes OR REPLACE and IF NOT EXISTS from a CREATE statement, because these clauses have no meaning in a
    folder."""
    if isinstance(statement, CreateSecret | CreateSchema):
        return replace(statement, if_not_exists=False)
    return replace(statement, if_not_exists=False, or_replace=False)


def require_no_value(statement: Create | CreateSchema) -> None:
    """Raises SqlError if an option of the statement contains the value of a secret."""
    if isinstance(statement, CreateSecret) and statement.content is not None:
        raise SqlError(
            INVALID_DEFINITION,
            f'the folder contains the value of secret "{statement.name.key}"',
            span=statement.name.span,
            hint="store the value outside the folder: WITH (backend = 'env' | 'file' | 'hashicorp_vault', …) "
            "without AS; or omit the statement and run CREATE SECRET once by hand",
        )
    refuse_literal_secrets(statement)


def _was(text: str, name: str) -> str | None:
    """Returns the object's former name from the comments of its statement. Returns None if no comment states a name
    that differs from the present name. Raises SqlError for a malformed ``-- rw:`` comment."""
    for note in _NOTE.finditer(text):
        match = _RENAMED.match(note[0])
        if match is None:
            raise SqlError(
                INVALID_DEFINITION,
                f"{note[0].strip()} is not a valid comment for renaming",
                span=Span(0, 1, 1, 1),
                hint="-- rw: renamed from old_name",
            )
        words = _PART.findall(match[1])
        old = Name(parts=tuple(w[1:-1].replace('""', '"') if w.startswith('"') else w.lower() for w in words)).key
        if old != name:
            return old
    return None


def repeated(objects: Iterable[FolderObject]) -> Iterator[DefinitionError]:
    """Returns one error for each definition whose name an earlier definition already has."""
    seen: dict[tuple[str, str], FolderObject] = {}
    for found in objects:
        space = "relation" if found.kind in RELATIONS else found.kind
        other = seen.setdefault((space, found.name), found)
        if other is not found:
            yield DefinitionError(
                found,
                DUPLICATE_OBJECT,
                f'{spoken(found.kind)} "{found.name}" at {found.place} is already defined at {other.place}',
                hint=f"remove or rename one of the two, for example: {found.name}_2",
            )


def _span(text: str, start: int, end: int) -> Span:
    line = text.count("\n", 0, start) + 1
    return Span(start, end, line, start - (text.rfind("\n", 0, start) + 1) + 1)
