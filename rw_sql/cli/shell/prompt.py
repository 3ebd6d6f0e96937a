"""Implements the shell's line editor. It decides when Enter runs the text, stores the history, and colours the text."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style

from rw_sql.cli.interface.masked_statements import masked_statement
from rw_sql.cli.shell.commands import is_open
from rw_sql.cli.shell.words import SQL_WORDS
from rw_sql.masking import SECRET_WORDS, masked
from rw_sql.syntax import split_script
from rw_sql.syntax.lexing.statement_ends import statement_lexemes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prompt_toolkit.completion import Completer
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import StyleAndTextTuples

_MAY_HOLD_A_SECRET = re.compile(SECRET_WORDS, re.IGNORECASE)
_STARTING_SECONDS = 0.5
"""The interval in seconds at which the prompt is redrawn while Spark is starting."""

_STYLE = Style.from_dict(
    {
        "sql.keyword": "ansiblue bold",
        "sql.string": "ansigreen",
        "sql.number": "ansicyan",
        "sql.comment": "ansibrightblack",
        "sql.command": "ansimagenta",
        "rprompt": "ansibrightblack",
    }
)


def is_complete(text: str) -> bool:
    """True if the typed text is ready to run. This is the case if the text is empty, is a backslash command, is
    ``exit``, ``quit`` or ``help``, or consists of statements that end in ``;``."""
    return text.strip().lower() in {"exit", "quit", "help"} or not is_open(text)


class StatementHistory(FileHistory):
    """The history of typed input, in a file that only the user can read.

    Statements that may contain a password or key are not stored. A statement with a typing error is not stored if it
    contains a text in quotes that may be secret. If the file cannot be read or written, for example in a read-only
    folder, the history contains only the input of this shell.
    """

    def load_history_strings(self) -> Iterable[str]:
        """The stored entries, newest first."""
        try:
            return super().load_history_strings()
        except OSError:
            return ()

    def store_string(self, string: str) -> None:
        """Appends one entry to the file."""
        if _MAY_HOLD_A_SECRET.search(string) or masked(string) != string:
            return
        is_command = string.lstrip().startswith("\\")
        if not is_command and any(masked_statement(part.text) != part.text for part in split_script(string)):
            return
        file = Path(str(self.filename))
        with contextlib.suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(file, os.O_CREAT | os.O_APPEND, 0o600))
            with contextlib.suppress(OSError):  # the file may belong to another user
                file.chmod(0o600)  # older versions made the file readable by others
            super().store_string(string)


def history_file() -> Path | None:
    """The file of the shell's history: ``$XDG_STATE_HOME/rw-sql/history``, or the same below ``~/.local/state``.
    Returns None for a user without a home folder."""
    state = os.environ.get("XDG_STATE_HOME")
    try:
        return (Path(state) if state else Path.home() / ".local" / "state") / "rw-sql" / "history"
    except RuntimeError:
        return None


def make_prompt(
    completer: Completer | None, history: Path | None, starting: Callable[[], str | None] = lambda: None
) -> PromptSession[str]:
    """Creates the prompt.

    If the text is complete, Enter runs the text; otherwise, Enter begins a new line. Alt-Enter always runs the text.

    ``history`` is the file of the history. If it is None, the history contains only the input of this shell.
    ``starting`` is a function that returns the text to show at the right while Spark is starting; None when Spark is
    running.
    """
    keys = KeyBindings()
    session: PromptSession[str] = PromptSession(
        history=InMemoryHistory() if history is None else StatementHistory(history),
        completer=completer,
        complete_while_typing=False,
        complete_in_thread=True,
        multiline=True,
        key_bindings=keys,
        lexer=StatementLexer(),
        style=_STYLE,
        rprompt=lambda: starting() or "",
        enable_open_in_editor=True,
        prompt_continuation=lambda width, _line, _wrap: " " * (width - 2) + "> ",
    )

    @keys.add("enter", filter=Condition(lambda: is_complete(session.default_buffer.text)))
    def _run(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return session


def prompt_for(session: PromptSession[str], message: str, *, default: str = "", is_starting: bool = False) -> str:
    """Reads one input. While Spark is starting, the prompt shows the current phase of the start.

    Raises EOFError at the end of input. Raises KeyboardInterrupt if Ctrl-C arrives at any moment during the call.
    """
    session.refresh_interval = _STARTING_SECONDS if is_starting else 0
    interrupts: list[int] = []
    # prompt_toolkit handles Ctrl-C only while it waits for keys. Before and after this time, KeyboardInterrupt could
    # interrupt asyncio at any line, and leave asyncio's loop, the terminal or the standard output in an undefined
    # state. The signal is therefore only recorded.
    before = signal.signal(signal.SIGINT, lambda number, _frame: interrupts.append(number))
    try:
        with patch_stdout(raw=True):
            text = asyncio.run(_read(session, message, default, interrupts))
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt
    return text


async def _read(session: PromptSession[str], message: str, default: str, interrupts: list[int]) -> str:
    reading = asyncio.create_task(session.prompt_async(message, default=default))
    await asyncio.sleep(0)  # From its first step on, the prompt itself handles Ctrl-C.
    if not interrupts:
        return await reading
    reading.cancel()
    await asyncio.wait([reading])
    return ""


class StatementLexer(Lexer):
    """Colours the parser's tokens in statements. Strings in Spark's statements follow Spark's quoting rules."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """The styled pieces of each line."""
        lines: list[StyleAndTextTuples] = [[]]
        for style, text in styled(document.text):
            first, *others = text.split("\n")
            lines[-1].append((style, first))
            lines += [[(style, other)] for other in others]
        return lambda number: lines[number] if number < len(lines) else []


def styled(text: str) -> list[tuple[str, str]]:
    """The text in pieces, each with its style."""
    pieces: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        begins = True
        for match, end, is_comment, is_end in statement_lexemes(text, at):
            piece, start, at = text[match.start() : end], match.start(), end
            if begins and piece == "\\":
                at = (text.find("\n", start) + 1 or len(text) + 1) - 1
                pieces.append(("class:sql.command", text[start:at]))
                break
            begins = (begins and piece.isspace()) or piece == "\n"
            pieces.append((_style_of(piece, is_comment=is_comment), piece))
            if is_end:
                break
    return pieces


def _style_of(piece: str, *, is_comment: bool) -> str:
    if is_comment:
        return "class:sql.comment"
    if piece[0] in "'$" or piece[:2] in ("e'", "E'", "r'", "R'", 'r"', 'R"'):
        return "class:sql.string"
    if piece[0].isdigit():
        return "class:sql.number"
    return "class:sql.keyword" if piece.upper() in keywords() else ""


@cache
def keywords() -> frozenset[str]:
    """The words to colour, which are the keywords of the grammar and of queries."""
    from rw_sql.syntax.parsing.lalr_tables import tables

    ours = {word for names in tables().spelled.values() for _, words in names for word in words}
    return frozenset(ours | set(SQL_WORDS))
