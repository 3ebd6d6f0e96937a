"""Runs one statement for ``rw-sql source`` and prints its rows as a table or as JSON."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rw_sql.cli.interface.options import PICTURES, require_move_output, require_output
from rw_sql.cli.terminal.output import console_for, print_rows
from rw_sql.cli.terminal.question import choose_answer
from rw_sql.errors import FILE_UNREADABLE, INVALID_OPTION, SPLITS_UNKNOWN, SqlError, either
from rw_sql.model.offset_files import FORMS, write_offsets
from rw_sql.model.split_status import ORPHAN, OTHER_CLUSTER, RECREATED
from rw_sql.plan.result.confirmation import UnconfirmedError, hint_for_a_command
from rw_sql.session.results import rows_of
from rw_sql.session.sparkless import answer as answer_of
from rw_sql.session.sparkless import records_of, sparkless
from rw_sql.syntax import parse_statement, render
from rw_sql.syntax.statements import Explain, ShowObjects, ShowSourceContinuity, ShowSourceSplits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.cli.terminal.question import Answer
    from rw_sql.plan.result.plan import Table
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.syntax.statements import Name, Statement

OUTPUTS = ("text", "json")


def run_statement(
    statement: Statement,
    *,
    warehouse: str | None,
    output: str,
    is_shown: bool,
    is_explained: bool,
    is_confirmed: bool,
    tokens: frozenset[str],
) -> None:
    """Runs a statement. If ``is_explained`` is true, only explains the statement; if ``is_shown`` is true, only prints
    its text. Raises SqlError.

    This process neither starts Spark nor runs jobs. The warehouse's owner applies the statement. With the output format
    ``json``, only the rows are written to standard output, and previews and questions are written to standard error.
    """
    if is_look(statement):
        require_output("text" if output == "table" else output, OUTPUTS)
    else:
        require_move_output(output, is_dry_run=is_explained)
    is_picture = output in PICTURES
    options = (f"FORMAT {output.upper()}",) if is_picture else ()
    text = render(Explain(statement=statement, options=options) if is_explained else statement)
    if is_shown:
        print(f"{text};")
        return
    is_json = output == "json"
    console = console_for(sys.stderr if is_json or is_picture else None)
    answer = choose_answer(console, is_confirmed=is_confirmed, tokens=tokens)

    with sparkless(warehouse, only_reads=is_explained or is_look(statement)) as context:
        table = _run(context, text, answer)
    if is_picture:
        print("\n".join(str(row[0]) for row in table.rows))
    elif is_json:
        print(json.dumps([_plain(record) for record in records_of(table)], indent=2, ensure_ascii=False))
    else:
        print_rows(console, rows_of(table), is_plan=is_explained)


def is_look(statement: Statement) -> bool:
    """True if a statement only reads and changes nothing."""
    return isinstance(statement, ShowObjects | ShowSourceSplits | ShowSourceContinuity)


def _run(context: Context, text: str, ask: Answer | None = None) -> Table:
    """Runs a statement from its text. The positions in errors therefore refer to the text that --show-sql prints. The
    hint of an error about a missing confirmation names the command's options."""
    try:
        return answer_of(context, parse_statement(text), ask=ask)
    except SqlError as error:
        if isinstance(error, UnconfirmedError):
            error.hint = hint_for_a_command(error.question)
        raise error.located(text) from error.__cause__


def _plain(row: dict[str, object]) -> dict[str, object]:
    return {key: value.isoformat() if isinstance(value, datetime) else value for key, value in row.items()}


def offsets_of(
    rows: Iterable[Mapping[str, Any]], name: str, fragment: str | None
) -> tuple[dict[str, int], tuple[str, ...]]:
    """A source's positions, taken from the rows of SHOW SOURCE SPLITS, and notices for the user.

    Raises SqlError if the source has no position, if ``fragment`` is not one of the source's readers, or if
    ``fragment`` is None and the readers have different offsets.
    """
    standing = [row for row in rows if row["next"] is not None and row["status"] != ORPHAN]
    readers = sorted({row["fragment"] for row in standing})
    if fragment is not None:
        if readers and fragment not in readers:
            raise SqlError(
                INVALID_OPTION,
                f"--fragment must be {either(readers)}, but is {fragment!r}",
                hint=f"--fragment {readers[0]}",
            )
        standing = [row for row in standing if row["fragment"] == fragment]
    offsets: dict[str, int] = {}
    for row in standing:
        if offsets.setdefault(row["split"], row["next"]) != row["next"]:
            raise SqlError(
                SPLITS_UNKNOWN,
                f'source "{name}" has no single position: {", ".join(readers)} read it separately',
                hint=f"--fragment {readers[0]}",
            )
    if not offsets:
        raise SqlError(SPLITS_UNKNOWN, f'source "{name}" has no position yet', hint=f"rw-sql source show -s {name}")
    strange = [row for row in standing if row["status"] in (RECREATED, OTHER_CLUSTER)]
    notes = (f"{row['split']} is {row['status']}: {row['next']} is not an offset of it" for row in strange)
    return offsets, tuple(dict.fromkeys(notes))


def export(
    name: Name,
    *,
    form: str,
    group: str | None,
    file: str | None,
    fragment: str | None,
    warehouse: str | None,
    is_shown: bool,
) -> None:
    """Writes a source's positions, in the format of another tool, to a file or, if ``file`` is None, to standard
    output. If ``is_shown`` is true, only prints the statement that reads the positions. Raises SqlError if the source
    has no positions."""
    require_output(form, FORMS)
    if group is not None and form != "csv":
        raise SqlError(INVALID_OPTION, "--group is for --output csv", hint="omit --group")
    text = render(ShowSourceSplits(name=name))
    if is_shown:
        print(f"{text};")
        return
    with sparkless(warehouse, only_reads=True) as context:
        rows = records_of(_run(context, text))
    offsets, notes = offsets_of(rows, name.key, fragment)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    try:
        made = write_offsets(form, offsets, group=group)
    except ValueError as error:
        raise SqlError(INVALID_OPTION, str(error), hint="--output map") from error
    if file is None:
        sys.stdout.write(made)
        return
    try:
        with open(file, "w", encoding="utf-8") as written:
            written.write(made)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SqlError(
            FILE_UNREADABLE, f"cannot write file {file!r}: {reason}", hint="write to another file: --file FILE"
        ) from error
    print(f"{len(offsets)} offsets written to {file}", file=sys.stderr)
