"""``rw-sql shell``: statements typed at a prompt, their results as tables."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from rich.text import Text

from rw_sql.cli.bar import BackfillBar
from rw_sql.cli.output import console_for, print_error, print_rows
from rw_sql.cli.question import ask_at_terminal
from rw_sql.cli.spark_start import spark_for
from rw_sql.errors import UNTERMINATED, SqlError
from rw_sql.session.results import read_rows
from rw_sql.syntax.lexing.tokens import PUNCTUATION, scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import Console

    from rw_sql.session.attach import Attached, Question
    from rw_sql.session.scripts import StatementText

_WORDS = """
    ALTER AS BEGIN BYTES COMMIT CONFIRM CREATE CSV DESCRIBE DROP EARLIEST ENCODE EXISTS EXPLAIN FALSE FILE FLUSH FOR
    FORMAT FROM GROUP HAVING HEADER IF INCLUDE INJECT JOBS JOIN JSON KEY LATEST MATERIALIZED NOT NULL OFFSET OFFSETS
    OPERATIONS ORDER PARTITION PAUSE PLAIN REASON RESET RESUME ROLLBACK SELECT SET SHOW SOURCE SOURCES SPLITS SYSTEM
    TIMESTAMP TRUE UNDO UNSAFE UNSET VALUES VIEW VIEWS WHERE WITH
"""
KEYWORDS = tuple(_WORDS.split())
_WORD = re.compile(r"[\w$.]*$")
_MAY_HOLD_A_SECRET = re.compile(r"\b(secret|password|jaas|token|private_key)\b", re.IGNORECASE)


def is_complete(text: str) -> bool:
    """Whether what was typed is ready to run: nothing, a command of the shell, or statements up to a last ``;``."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\") or stripped.lower() in {"exit", "quit", "help"}:
        return True
    try:
        tokens = scan(text)
    except SqlError as error:
        return error.kind is not UNTERMINATED  # any other error is told when it is run
    last = tokens[-2] if len(tokens) > 1 else None
    return last is not None and last.kind == PUNCTUATION and last.text == ";"


class StatementHistory(FileHistory):
    """What was typed, kept across sessions; a statement that may hold a password or key is not written down."""

    def store_string(self, string: str) -> None:
        """Appends one entry to the file."""
        if not _MAY_HOLD_A_SECRET.search(string):
            super().store_string(string)


class StatementCompleter(Completer):
    """Completes keywords and the names that ``names`` gives, which are asked for again every few seconds."""

    def __init__(self, names: Callable[[], Iterable[str]], *, seconds_to_keep: float = 3.0) -> None:
        self._names = names
        self._seconds = seconds_to_keep
        self._known: tuple[str, ...] = ()
        self._asked_at = -seconds_to_keep

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """The keywords and names that begin as the word before the cursor does."""
        match = _WORD.search(document.text_before_cursor)
        word = match[0] if match else ""
        if not word:
            return
        for name in self._fresh_names():
            if name.lower().startswith(word.lower()):
                yield Completion(name, start_position=-len(word), display_meta="name")
        for keyword in KEYWORDS:
            if keyword.startswith(word.upper()):
                yield Completion(keyword, start_position=-len(word))

    def _fresh_names(self) -> tuple[str, ...]:
        if time.monotonic() - self._asked_at >= self._seconds:
            self._known = tuple(sorted(set(self._names())))
            self._asked_at = time.monotonic()
        return self._known


def make_prompt(names: Callable[[], Iterable[str]], history: Path) -> PromptSession[str]:
    """The prompt: Enter runs what is complete and begins a line otherwise; Alt-Enter always runs."""
    history.parent.mkdir(parents=True, exist_ok=True)
    keys = KeyBindings()
    session: PromptSession[str] = PromptSession(
        history=StatementHistory(history),
        completer=StatementCompleter(names),
        complete_while_typing=False,
        multiline=True,
        key_bindings=keys,
        prompt_continuation=lambda width, _line, _wrap: " " * (width - 2) + "> ",
    )

    @keys.add("enter", filter=Condition(lambda: is_complete(session.default_buffer.text)))
    def _run(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return session


def history_file() -> Path:
    """Where the shell keeps what was typed: ``$XDG_STATE_HOME/rw-sql/history``."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "rw-sql" / "history"


def run_shell(*, warehouse: str | None) -> None:
    """Reads and runs statements until ``exit``, ``quit``, ``\\q`` or the end of input."""
    from rw_sql.session.attach import attach

    console = console_for()
    with spark_for(warehouse) as spark:
        console.print(Text("rw_sql: statements end in ;   help shows more, exit leaves."))
        _read_and_run(console, attach(spark, warehouse))


def _read_and_run(console: Console, attached: Attached) -> None:
    prompt = make_prompt(lambda: known_names(attached), history_file())
    while True:
        # Ctrl-C clears the line; one too many, between two statements, is no reason to leave either.
        try:
            with patch_stdout(raw=True):
                text = prompt.prompt(prompt_of(attached.block_state)).strip()
            match text.rstrip(";").strip().lower():
                case "":
                    continue
                case "exit" | "quit" | "\\q":
                    return
                case "help" | "\\?":
                    console.print(Text(_HELP))
                case _:
                    run_typed(console, attached.spark, text)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def prompt_of(block: str | None) -> str:
    """The prompt, with psql's sign for an open block or an aborted one."""
    return {None: "rw_sql> ", "open": "rw_sql*> ", "aborted": "rw_sql!> "}[block]


def known_names(attached: Attached) -> list[str]:
    """The names a statement could mean: sources and views of ours, tables and views of Spark's."""
    return [*attached.object_names(), *(table.name for table in attached.spark.catalog.listTables())]


def run_typed(console: Console, spark: SparkSession, text: str) -> None:
    """Runs what was typed, prints results and how long it took; an error is printed and leaves the shell running."""
    from rw_sql.session.scripts import run_statements

    def answer(question: Question) -> bool:
        try:
            return ask_at_terminal(console, question)
        except KeyboardInterrupt:
            console.print()
            return False

    def show(_statement: StatementText, result: DataFrame | None) -> None:
        if result is not None:
            print_rows(console, read_rows(result))

    started = time.monotonic()
    try:
        with BackfillBar(console) as bar:
            run_statements(spark, text, answer=answer, on_result=show, on_progress=bar.tell)
    except SqlError as error:
        print_error(error.render())
    except KeyboardInterrupt as interrupt:
        print_error(f"cancelled: {interrupt}" if str(interrupt) else "cancelled")
    else:
        console.print(Text(f"{(time.monotonic() - started) * 1000:.0f} ms", style="dim"))


_HELP = """\
SHOW SOURCES;  SHOW MATERIALIZED VIEWS;  SHOW JOBS;        what there is and how it does
CREATE SOURCE s (...) WITH (...) FORMAT ... ENCODE ...;     a new source
PAUSE SOURCE s;  RESUME SOURCE s;                           hold it, let it go on
EXPLAIN <statement>;                                        what a statement would do
Anything else is Spark SQL. Tab completes, Alt-Enter runs, Ctrl-C clears the line or cancels what runs, Ctrl-D or exit
leaves."""
