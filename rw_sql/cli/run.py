"""``rw-sql run``: a script's statements, one by one, until the first error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.cli.fmt import read_text
from rw_sql.cli.output import console_for, print_error
from rw_sql.cli.question import choose_answer
from rw_sql.cli.spark_start import spark_for
from rw_sql.cli.transcript import Transcript
from rw_sql.errors import BLOCK_LEFT_OPEN, SqlError

if TYPE_CHECKING:
    from rw_sql.session.attach import Attached


def run_file(
    script: str, *, warehouse: str | None, is_confirmed: bool, tokens: frozenset[str], is_quiet: bool = False
) -> None:
    """Runs the statements of a file (``-``: of standard input) and prints each result as it comes.

    Raises SqlError at the first statement that fails, located in the script; those before it stay done.
    """
    text, name = read_text(script), None if script == "-" else script
    console = console_for()
    transcript = Transcript(
        console, choose_answer(console, is_confirmed=is_confirmed, tokens=tokens), is_quiet=is_quiet
    )
    with spark_for(warehouse) as spark:
        from rw_sql.session.attach import attach
        from rw_sql.session.scripts import interrupted_at, run_statements

        try:
            run_statements(spark, text, name, answer=transcript.answer, on_result=transcript.show)
        except KeyboardInterrupt as interrupt:
            print_error(f"cancelled: {interrupted_at(text, transcript.done, str(interrupt))}")
            raise
        require_no_open_block(attach(spark, warehouse), name)


def require_no_open_block(attached: Attached, script: str | None) -> None:
    """Raises SqlError BLOCK_LEFT_OPEN where a script ended inside of a block, which nobody will ever commit."""
    if attached.block_state is not None:
        raise SqlError(
            BLOCK_LEFT_OPEN,
            f"{script or 'the script'} ends inside of a BEGIN UNSAFE block: nothing of the block was done",
            hint="COMMIT; at its end does it",
        )
