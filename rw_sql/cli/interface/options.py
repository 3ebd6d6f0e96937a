"""Options that several commands share. An option has the same name and meaning in all these commands. Old names of
options still work."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rw_sql.cli.interface.completion import complete_words
from rw_sql.cli.interface.error_report import remember_output
from rw_sql.errors import INVALID_OPTION, SqlError, either

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WarehouseOption = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        "-w",
        metavar="PATH",
        envvar="RW_SQL_WAREHOUSE",
        help="The warehouse: a folder or URI with all tables and metadata. The default is ./rw_warehouse.",
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--resource-group",
        metavar="NAME",
        help="The resource group, as in WITH (resource_group = 'NAME'). The default is the group named default.",
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--var",
        "-v",
        metavar="NAME=VALUE",
        help="Set a variable. Statements use it as ${NAME}, :NAME, :'NAME' or :\"NAME\".",
    ),
]
Env = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="NAME",
        help="Read variables from the file NAME.env, in the folder of the SQL files or in a folder above it. The "
        "variable ${env} gets the value NAME.",
    ),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        help="Confirm without asking. Predicted gaps or duplicates also need the option --allow or, in a SQL file, the "
        "clause ALLOW.",
    ),
]
Confirm = Annotated[
    list[str] | None,
    typer.Option(
        "--confirm", metavar="TOKEN", help="Confirm the refused operation whose error message contains this token."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the preview and change nothing.")]
ShowSql = Annotated[bool, typer.Option("--show-sql", help="Print the SQL statement instead of running it.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="A reason to store with the operation.")]
Splits = Annotated[
    list[str] | None,
    typer.Option("--split", metavar="SPLIT", help="Apply the command only to this split. Repeatable."),
]
AllowRows = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="WORD",
        help="Accept this predicted effect: gaps or duplicates. Repeatable.",
        autocompletion=complete_words("gaps", "duplicates"),
    ),
]
AllowOffsets = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="WORD",
        help="Accept this predicted effect: gaps, duplicates or clamp. Repeatable.",
        autocompletion=complete_words("gaps", "duplicates", "clamp"),
    ),
]
NoValidate = Annotated[bool, typer.Option("--no-validate", help="Skip the check against the upstream.")]
FileToWrite = Annotated[
    str | None, typer.Option("--file", "-f", metavar="FILE", help="The file to write. The default is standard output.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SPLIT=N",
        help="The next position to read in one split, such as orders:0=42 or version=7. N = null resets the split.",
    ),
]
FileToRead = Annotated[
    str | None,
    typer.Option("--file", "-f", metavar="FILE", help="Move to the offsets in this file, in any supported format."),
]
FromGroup = Annotated[
    str | None,
    typer.Option("--from-group", metavar="GROUP", help="Move to the offsets that this consumer group has committed."),
]
FromCheckpoint = Annotated[
    str | None, typer.Option("--from-checkpoint", metavar="PATH", help="Move to the positions in this checkpoint.")
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="Move to the first existing record of each split.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="Move to the current end of each split.")]
ToOffset = Annotated[int | None, typer.Option("--to-offset", metavar="N", help="Move to position N in every split.")]
ToTimestamp = Annotated[
    str | None,
    typer.Option(
        "--to-timestamp", metavar="TIME", help="Move to the first record at or after this time: '2026-01-31 08:00:00Z'."
    ),
]
ShiftBy = Annotated[int | None, typer.Option("--shift-by", metavar="±N", help="Move the position of each split by N.")]
BackBy = Annotated[
    str | None,
    typer.Option("--back-by", metavar="'2 hours'", help="Move to the first record that is at most this old."),
]
LastSeen = Annotated[
    bool,
    typer.Option(
        "--last-seen", help="The given offsets refer to the last record that was read, not to the next record."
    ),
]


def output_option(*forms: str, help: str = "The output format.") -> Any:
    """Returns the option ``--output`` with the output formats that a command supports. The first format is the
    default."""
    return typer.Option("--output", "-o", metavar="|".join(forms), help=help, autocompletion=complete_words(*forms))


def require_output(output: str, forms: Sequence[str], option: str = "--output") -> None:
    """Raises SqlError INVALID_OPTION if the command does not support the output format. If the command supports the
    format, later errors of the command are reported in this format."""
    if output not in forms:
        message = f"{option} must be {either(forms)}, but is {output!r}"
        raise SqlError(INVALID_OPTION, message, hint=f"{option} {forms[-1]}")
    remember_output(output)


PICTURES = ("mermaid", "svg")
MOVE_OUTPUT = output_option("text", "json", *PICTURES, help="The output format. mermaid and svg require --dry-run.")
"""``--output`` for the commands that move positions. The preview of such a command can be a picture."""


def require_move_output(output: str, *, is_dry_run: bool) -> None:
    """Raises SqlError INVALID_OPTION for an unknown output format, and for a picture (mermaid or svg) without a dry
    run."""
    # "table" is the old name of "text".
    require_output("text" if output == "table" else output, ("text", "json", *PICTURES))
    if output in PICTURES and not is_dry_run:
        raise SqlError(
            INVALID_OPTION, f"--output {output} requires --dry-run: only a preview has a picture", hint="add --dry-run"
        )


def old_name(old: str, new: str, **settings: Any) -> Any:
    """A hidden option that keeps an old name valid. The old name stands for another option, or for one value of another
    option.

    Using the old name prints a note on standard error.
    """
    return typer.Option(old, hidden=True, help=f"An old name of {new}.", callback=_report(old, new), **settings)


def _report(old: str, new: str) -> Callable[[Any], Any]:
    def report(value: Any) -> Any:
        if value not in (None, False, [], ()):
            sys.stderr.write(f"{old.split('/')[0]} is now {new}\n")
        return value

    return report


def allow_words(given: Sequence[str] | None) -> list[str]:
    """Returns the words of ``--allow``. The option may be repeated, and its value may be a list separated by commas."""
    return [word for each in given or () for word in each.replace(",", " ").split()]


def given(*values: Any) -> tuple[Any, ...]:
    """The values that were given for an option under its current and its old names."""
    return tuple(value for value in values if value is not None and value is not False)
