"""What ``rw-sql check`` is given: files in their order, and folders, whose statements go in that of their names.

Variables are replaced first; findings have the places of the files as they are written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.cli.script.environments import environment, environment_above, given_variables
from rw_sql.cli.script.loading import read_assignments
from rw_sql.cli.sql_files import folder_files
from rw_sql.cli.text_input import read_text
from rw_sql.errors import SqlError
from rw_sql.plan.deploy.folder import folder_object
from rw_sql.plan.deploy.order import CircleError, in_order
from rw_sql.plan.offline.report import Checked
from rw_sql.syntax import parse_statement, split_script
from rw_sql.syntax.variables.expand import expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rw_sql.plan.deploy.folder import FolderObject
    from rw_sql.plan.offline.script import ScriptChecker
    from rw_sql.syntax import ScriptStatement
    from rw_sql.syntax.variables.source_map import Expanded, Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """A file that is checked: as it is written, and with its variables replaced."""

    path: str
    text: str
    expanded: Expanded


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedGroup:
    """Files that are checked together: one, whose statements are a script, or those of a folder, which define objects
    in any order."""

    files: tuple[CheckedFile, ...]
    is_folder: bool


def read_groups(
    paths: Sequence[str], env: str | None, variables: Sequence[str]
) -> tuple[list[CheckedGroup], list[tuple[str, SqlError]]]:
    """What paths lead to, and the files that cannot be read with the reason. Raises SqlError for a wrong option, and
    where there is no such environment."""
    groups: list[CheckedGroup] = []
    unreadable: list[tuple[str, SqlError]] = []
    known = read_assignments(variables)
    for path in paths:
        is_folder = Path(path).is_dir()
        values: Mapping[str, str]
        if is_folder:
            values = {**environment(path, env), **given_variables(variables)}
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
                found.append(CheckedFile(path=file, text=text, expanded=expanded))
        except SqlError as error:
            unreadable.append((path, error))
            continue
        groups.append(CheckedGroup(files=tuple(found), is_folder=is_folder))
    return groups, unreadable


def check_group(group: CheckedGroup, checker: ScriptChecker) -> Iterable[tuple[CheckedFile, list[Checked]]]:
    """The statements of each file, in the order in which they stand there, with what is wrong with them."""
    if not group.is_folder:
        for file in group.files:
            yield file, _as_written(file, checker.check(file.expanded.text, file.path))
        return
    found: dict[str, list[Checked]] = {file.path: [] for file in group.files}
    by_path = {file.path: file for file in group.files}
    for path, piece, refusal in _in_reading_order(group.files):
        text = by_path[path].expanded.text
        checked = list(checker.check_piece(piece, text, path))
        if refusal is not None:
            error = piece.locate(refusal, text, path)
            checked = [replace(checked[0], errors=(error,), unsafe=None)]
        found[path] += checked
    for path, statements in found.items():
        statements.sort(key=lambda checked: checked.start)
        yield by_path[path], _as_written(by_path[path], statements)


def _in_reading_order(files: Iterable[CheckedFile]) -> list[tuple[str, ScriptStatement, SqlError | None]]:
    """The statements of a folder, each behind those that it names, with why a folder does not hold it.

    Those that do not parse come first: what names them finds their names.
    """
    wrong: list[tuple[str, ScriptStatement, SqlError | None]] = []
    objects: list[FolderObject] = []
    places: dict[int, tuple[str, ScriptStatement]] = {}
    for file in files:
        end = 0
        for piece in split_script(file.expanded.text):
            before = file.expanded.text[end : piece.start]
            try:
                parse_statement(piece.text)
            except SqlError:
                wrong.append((file.path, piece, None))
                continue
            finally:
                end = piece.start + len(piece.text) + 1
            try:
                made = folder_object(piece.text, before, file=file.path, line=piece.line)
            except SqlError as error:
                wrong.append((file.path, piece, error))
                continue
            objects.append(made)
            places[id(made)] = file.path, piece
    left = objects
    circles: list[CircleError] = []
    ordered: tuple[FolderObject, ...] | None = None
    while ordered is None:
        try:
            ordered = in_order(left)
        except CircleError as error:
            circles.append(error)
            wrong.append((*places[id(error.members[0])], error))
            left = [made for made in left if not any(made is member for member in error.members)]
    # What is defined twice, or reads in a circle, comes last.
    done = {id(made) for made in ordered} | {id(error.members[0]) for error in circles}
    rest = [made for made in objects if id(made) not in done]
    return [*wrong, *((*places[id(made)], None) for made in (*ordered, *rest))]


def _as_written(file: CheckedFile, statements: Iterable[Checked]) -> list[Checked]:
    """Findings moved from the expanded text to the files that it comes from; what the expansion found is among them."""
    expanded = file.expanded
    faults = list(expanded.faults)
    found: list[Checked] = []
    for checked in statements:
        mine = [fault for fault in faults if checked.start <= fault.at <= checked.end]
        faults = [fault for fault in faults if fault not in mine]
        # What stands in the place of a variable without a value is no fault of the statement's.
        errors = tuple(fault.error for fault in mine) or tuple(expanded.locate(error) for error in checked.errors)
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
    """The expansion keeps its errors."""
