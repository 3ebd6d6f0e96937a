"""Makes the error for a word that lacks the option before it. The error's hint is the command line that the user
probably meant.

For example, ``rw-sql source show orders`` gets the hint ``rw-sql source show -s orders``.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, Any

from rw_sql.errors import INVALID_OPTION, SqlError

if TYPE_CHECKING:
    from collections.abc import Sequence

_MEANT: tuple[tuple[str, str], ...] = (
    ("--command", r".*\s.*"),
    ("--source", r"[^/=]+"),
    ("--operation", r"\d+"),
    ("--set", r"[^=]+=.*"),
    ("--of", r"[^/]+"),
    ("--like", r"[^/]+"),
    ("--split", r".+:\d+"),
    ("--port", r"\d+"),
    ("--create", r"[^/]+"),
    ("--file", r".+\.(?:sql|json|csv|txt|svg|mmd)"),
    ("--warehouse", r".*/.*"),
    ("--resource-group", r"[^/]+"),
)
"""The options that users leave out before a value, each with a pattern of its values. The left-out option is the first
option in this list that meets three conditions: the command has the option, the command line does not contain the
option yet, and the option's pattern matches the value."""

_UNLIKELY = "a-word-that-nobody-types-"


def misplaced_word(error: Any, words: Sequence[str]) -> SqlError | None:
    """Returns the error for a command line that the option parser has refused with ``error``. Returns None if no word
    lacks an option, or if the missing option cannot be determined.

    ``words`` is the command line, without the program's name.
    """
    context = getattr(error, "ctx", None)
    if context is None:
        return None
    program, *path = context.command_path.split()
    given = list(words)
    for name in path:
        if name not in given:
            return None
        given = given[given.index(name) + 1 :]
    options = {param.opts[0]: param for param in context.command.params if param.param_type_name == "option"}
    parsed = _parsed(context, given)
    if parsed is None:
        return None
    known, extra = parsed
    places = [at for at in range(len(given)) if _is_extra(context, given, at)]
    if not places or len(places) != len(extra):
        return None
    fixed: dict[int, str] = {}
    for at in places:
        found = _meant(given[at], options, known)
        if found is None:
            return None
        known.add(found.name)
        fixed[at] = min(found.opts, key=len)
    line = [part for at, word in enumerate(given) for part in ((fixed[at], word) if at in fixed else (word,))]
    shown = ", ".join(f'"{given[at]}"' for at in places)
    return SqlError(
        INVALID_OPTION,
        f"{shown} {'needs' if len(places) == 1 else 'need'} an option before {'it' if len(places) == 1 else 'each'}",
        hint=shlex.join([program, *path, *line]),
    )


def _parsed(context: Any, given: Sequence[str]) -> tuple[set[str], list[str]] | None:
    """Returns the names of the options in a command line, and the words that are not the value of an option. Returns
    None if the option parser refuses the command line."""
    try:
        found, extra, _ = context.command.make_parser(context).parse_args(list(given))
    except Exception as refused:
        if not hasattr(refused, "format_message"):  # The class of the parser's errors depends on typer's version.
            raise
        return None
    return {name for name, value in found.items() if value is not None}, extra


def _is_extra(context: Any, given: Sequence[str], at: int) -> bool:
    """True if the word at ``at`` is not the value of an option."""
    if given[at].startswith("-") and len(given[at]) > 1:
        return False
    marked = f"{_UNLIKELY}{at}"
    parsed = _parsed(context, [*given[:at], marked, *given[at + 1 :]])
    return parsed is not None and marked in parsed[1]


def _meant(word: str, options: dict[str, Any], known: set[str]) -> Any:
    free = {name: param for name, param in options.items() if param.name not in known or param.multiple}
    output = free.get("--output")
    if output is not None and "--source" not in free and word in (output.metavar or "").split("|"):
        return output
    for name, form in _MEANT:
        fits = re.fullmatch(form, word, re.DOTALL) is not None or (name == "--warehouse" and os.path.isdir(word))
        if fits and name in free:
            return free[name]
    return None
