"""Reads the input of ``rw-sql check``. Files are read in the given order. The statements of folders are ordered by
their dependencies.

Variables are replaced before checking, but findings refer to positions in the original files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.cli.checking.folder_on_catalog import errors_of_changes, without_objects
from rw_sql.cli.script.environments import environment_above, environment_of_folder, given_variables
from rw_sql.cli.script.loading import hiding_of, read_assignments
from rw_sql.cli.sql_files import folder_files
from rw_sql.cli.text_input import read_text
from rw_sql.errors import INVALID_PROPERTY, SYNTAX_ERROR, UNKNOWN_PROPERTY, SqlError
from rw_sql.metastore.records import PutObject, SecretRecord
from rw_sql.plan.deploy.folder import (
    folder_object,
    repeated,
    require_no_value,
    spark_refusal,
    statements_with_notes,
    stray_note,
)
from rw_sql.plan.deploy.order import CircleError, in_order, named_by
from rw_sql.plan.offline.inspector import SECRET_BY_HAND
from rw_sql.plan.offline.pieces import rest_of
from rw_sql.plan.offline.report import Checked
from rw_sql.plan.result.steps import after
from rw_sql.syntax import parse_statement, render
from rw_sql.syntax.statements import CreateSecret, Name
from rw_sql.syntax.variables.expand import expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rw_sql.cli.script.loading import SecretHider
    from rw_sql.plan.deploy.folder import FolderObject
    from rw_sql.plan.offline.script import ScriptChecker
    from rw_sql.syntax import ScriptStatement
    from rw_sql.syntax.variables.source_map import Expanded, Fault

_KEEPS_OTHERS = (INVALID_PROPERTY, SYNTAX_ERROR, UNKNOWN_PROPERTY)
"""The codes of errors that concern only a single option, or only the ``;`` after the statement. If a statement has such
an error, the statement's other errors are reported too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """A file to check. It has the original text, and the text in which variables are replaced by their values. ``hide``
    masks the values of variables whose names suggest a secret."""

    path: str
    text: str
    expanded: Expanded
    hide: SecretHider


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedGroup:
    """Files that are checked together. This is either a single file, whose statements form a script, or the files of a
    folder, whose statements define objects in any order."""

    files: tuple[CheckedFile, ...]
    is_folder: bool


def read_groups(
    paths: Sequence[str], env: str | None, variables: Sequence[str]
) -> tuple[list[CheckedGroup], list[tuple[str, SqlError]]]:
    """The groups of files at ``paths``, and each unreadable file with the reason.

    Raises SqlError for an invalid option, or for an environment that does not exist.
    """
    groups: list[CheckedGroup] = []
    unreadable: list[tuple[str, SqlError]] = []
    known = read_assignments(variables)
    for path in paths:
        is_folder = Path(path).is_dir()
        values: Mapping[str, str]
        if is_folder:
            values = {**environment_of_folder(path, env), **given_variables(variables)}
        else:
            values = {**environment_above(path, env), **known}
        found: list[CheckedFile] = []
        try:
            for file in folder_files(path) if is_folder else [path]:
                text = read_text(file)
                expanded = expand(
                    text,
                    values,
                    None if is_folder else read_text,
                    file=file,
                    on_error=_keep,
                    braced=values if is_folder or env is not None else None,
                )
                known = known if is_folder else expanded.variables_after(known)
                settings = {name: value for name, value in expanded.settings.items() if value is not None}
                hide = hiding_of({**values, **settings})
                found.append(CheckedFile(path=file, text=text, expanded=expanded, hide=hide))
        except SqlError as error:
            unreadable.append((path, error))
            continue
        groups.append(CheckedGroup(files=tuple(found), is_folder=is_folder))
    return groups, unreadable


def check_group(
    group: CheckedGroup, checker: ScriptChecker, *, has_catalog: bool = True
) -> Iterable[tuple[CheckedFile, list[Checked]]]:
    """Checks a group. Yields each file with its statements, in the order in which the file contains them. Each
    statement comes with its errors.

    If the check has a catalog, the catalog may already contain the folder's objects, as for ``rw-sql diff``. Without a
    catalog, the folder's statements may use secrets that the folder does not define, because users create secrets by
    hand.
    """
    if not group.is_folder:
        for file in group.files:
            yield file, _as_written(file, checker.check(file.expanded.text, file.path))
        return
    by_path = {file.path: file for file in group.files}
    found = _check_folder(group.files, checker, has_catalog=has_catalog)
    for path, statements in found.items():
        statements.sort(key=lambda checked: checked.start)
        yield by_path[path], _as_written(by_path[path], statements)


def _check_folder(
    files: Sequence[CheckedFile], checker: ScriptChecker, *, has_catalog: bool
) -> dict[str, list[Checked]]:
    """Checks the statements of a folder. Maps the path of each file to the file's checked statements."""
    found: dict[str, list[Checked]] = {file.path: _stray_notes(file) for file in files}
    texts = {file.path: file.expanded.text for file in files}
    pieces = _in_reading_order(files)
    objects = [made for *_, made in pieces if made is not None]
    catalog = checker.snapshot
    assumed = frozenset[str]()
    if has_catalog:
        checker.snapshot = without_objects(catalog, objects)
    else:
        assumed = _assume_secrets(checker, objects)
    places: dict[int, tuple[str, ScriptStatement, int]] = {}
    for path, piece, refusal, made in pieces:
        checked = list(checker.check_piece(piece, texts[path], path))
        if made is not None:
            places[id(made)] = path, piece, len(found[path])
            if any(kind == "secret" and name in assumed for kind, name in named_by(made)):
                checked[0] = replace(checked[0], unchecked=(*checked[0].unchecked, SECRET_BY_HAND))
        if refusal is not None:
            checked = [_refused(checked[0], piece.locate(refusal, texts[path], path))]
        found[path] += checked
    has_errors = any(file.expanded.faults for file in files)
    has_errors |= any(checked.errors for statements in found.values() for checked in statements)
    if has_catalog and objects and not has_errors:
        for made, error in errors_of_changes(checker, catalog, objects):
            path, piece, at = places[id(made)]
            error = piece.locate(error, texts[path], path)
            found[path][at] = replace(found[path][at], errors=(*found[path][at].errors, error), unsafe=None)
    return found


def _refused(checked: Checked, error: SqlError) -> Checked:
    """Adds ``error``, the reason why a folder must not contain the statement, to the statement's result. If the kind of
    ``error`` is not in _KEEPS_OTHERS, the statement's other errors are dropped."""
    others = checked.errors if error.kind in _KEEPS_OTHERS else ()
    if not any(other.span is not None and other.span == error.span for other in others):
        others = (*others, error)
    return replace(checked, errors=others, unsafe=None)


def _assume_secrets(checker: ScriptChecker, objects: Sequence[FolderObject]) -> frozenset[str]:
    """Finds the secrets that the objects use but that neither the objects nor the catalog define. Adds these secrets to
    the checker's catalog, and returns their names."""
    defined = {made.name for made in objects if made.kind == "secret"}
    named = {name for made in objects for kind, name in named_by(made) if kind == "secret"}
    found = sorted(name for name in named - defined if checker.snapshot.find("secret", name) is None)
    for name in found:
        statement = CreateSecret(name=Name.of(name), options=())
        record = SecretRecord(
            id=checker.snapshot.next_id, name=name, definition=render(statement), backend="meta", sealed=None
        )
        checker.snapshot = after(checker.snapshot, (PutObject(record=record),))
    return frozenset(found)


def _stray_notes(file: CheckedFile) -> list[Checked]:
    """Returns the errors for comments ``-- rw:`` below the last statement. Such comments do not refer to any
    statement."""
    error = stray_note(file.expanded.text)
    if error is None or error.span is None:
        return []
    error.located(file.expanded.text, file.path)
    span = error.span
    return [
        Checked(
            file=file.path,
            line=span.line,
            column=span.column,
            start=span.start,
            end=span.end,
            kind="COMMENT",
            errors=(error,),
        )
    ]


def _in_reading_order(
    files: Iterable[CheckedFile],
) -> list[tuple[str, ScriptStatement, SqlError | None, FolderObject | None]]:
    """Returns the statements of a folder, sorted so that each statement follows the statements on which it depends.

    Each statement comes with two values: the reason why a folder must not contain the statement, and the object that
    the statement defines. A value is None if there is no such reason or object.

    Statements that do not parse come first. Thus, the names in these statements are known when the statements that do
    parse are checked. Definitions that are repeated, or that depend on each other in a circle, come last.
    """
    wrong: list[tuple[str, ScriptStatement, SqlError | None]] = []
    objects: list[FolderObject] = []
    places: dict[int, tuple[str, ScriptStatement]] = {}
    refused: dict[int, SqlError] = {}
    for file in files:
        for piece, notes, missing in _parts(file.expanded.text):
            try:
                parse_statement(piece.text)
            except SqlError as error:
                wrong.append((file.path, piece, spark_refusal(piece.text, error)))
                continue
            _, span = file.expanded.source(piece.start, piece.start + len(piece.text))
            try:
                made = folder_object(piece.text, notes, file=file.path, line=span.line, has_values=True)
            except SqlError as error:
                wrong.append((file.path, piece, error))
                continue
            try:
                require_no_value(made.statement)
            except SqlError as error:
                refused[id(made)] = error
            if missing is not None:
                refused.setdefault(id(made), missing)
            objects.append(made)
            places[id(made)] = file.path, piece
    repeats = {id(repeat.wanted): repeat for repeat in repeated(objects)}
    for repeat in repeats.values():
        repeat.span = repeat.wanted.statement.name.span
    refused = {**repeats, **refused}
    left = [made for made in objects if id(made) not in repeats]
    circles: list[CircleError] = []
    ordered: tuple[FolderObject, ...] | None = None
    while ordered is None:
        try:
            ordered = in_order(left)
        except CircleError as error:
            circles.append(error)
            wrong.append((*places[id(error.members[0])], error))
            left = [made for made in left if not any(made is member for member in error.members)]
    # Objects that are defined twice or depend on each other in a circle come last.
    done = {id(made) for made in ordered} | {id(error.members[0]) for error in circles}
    rest = [made for made in objects if id(made) not in done]
    right = [(*places[id(made)], refused.get(id(made)), made) for made in (*ordered, *rest)]
    return [*((*one, None) for one in wrong), *right]


def _parts(text: str) -> Iterator[tuple[ScriptStatement, str, SqlError | None]]:
    """Returns the statements of one file of a folder, each with its comments. If a ``;`` is missing between two
    statements, the text is split there, and the first of the two statements comes with the error for the missing
    ``;``."""
    waiting = list(statements_with_notes(text))
    while waiting:
        piece, notes = waiting.pop(0)
        rest: tuple[ScriptStatement, ...] = ()
        missing: SqlError | None = None
        try:
            parse_statement(piece.text)
        except SqlError as error:
            piece, rest = rest_of(piece, error)
            missing = error
        yield piece, "" if rest else notes, missing if rest else None
        waiting[:0] = [(part, "") for part in rest]


def _as_written(file: CheckedFile, statements: Iterable[Checked]) -> list[Checked]:
    """Maps findings from the expanded text to the original files, and adds the errors of the expansion itself."""
    expanded = file.expanded
    faults = list(expanded.faults)
    found: list[Checked] = []
    for checked in statements:
        mine = [fault for fault in faults if checked.start <= fault.at <= checked.end]
        faults = [fault for fault in faults if fault not in mine]
        # If the expansion failed inside a statement, only the error of the expansion is reported, because other errors
        # may be mere consequences of this error.
        errors = tuple(fault.error for fault in mine) or tuple(
            file.hide.error(expanded.locate(error)) for error in checked.errors
        )
        origin, span = expanded.source(checked.start, checked.end)
        found.append(
            replace(
                checked,
                file=origin.file or file.path,
                line=span.line,
                column=span.column,
                start=span.start,
                end=span.end,
                errors=errors,
            )
        )
    found += [_of_fault(file, fault) for fault in faults]
    return found


def _of_fault(file: CheckedFile, fault: Fault) -> Checked:
    error = fault.error
    span = error.span
    assert span is not None
    return Checked(
        file=error.file or file.path,
        line=span.line,
        column=span.column,
        start=span.start,
        end=span.end,
        kind="VARIABLES",
        errors=(error,),
    )


def _keep(_: SqlError) -> None:
    """Does nothing with an error of the expansion, because the result of the expansion contains the error too."""
