"""Colours for ``%%rw`` cells in a terminal's IPython. In JupyterLab an extension does it, see ``labextension/``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prompt_toolkit.lexers import Lexer

from rw_sql.cli.shell.prompt import styled

if TYPE_CHECKING:
    from collections.abc import Callable

    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text.base import StyleAndTextTuples

_CLASSES = {
    "class:sql.command": "class:pygments.name.builtin",
    "class:sql.comment": "class:pygments.comment",
    "class:sql.keyword": "class:pygments.keyword",
    "class:sql.number": "class:pygments.literal.number",
    "class:sql.string": "class:pygments.literal.string",
}
"""IPython's names for the shell's styles: its themes know those of Pygments."""


class CellLexer(Lexer):
    """Colours the statements of a cell; its first line is an operator, as IPython has it."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """The styled pieces of each line."""
        first, newline, body = document.text.partition("\n")
        lines: list[StyleAndTextTuples] = [[("class:pygments.operator", first)]]
        if newline:
            lines.append([])
        for style, text in styled(body):
            head, *others = text.split("\n")
            kind = _CLASSES.get(style, style)
            lines[-1] += [(kind, head)] if head else []
            lines += [[(kind, other)] if other else [] for other in others]
        return lambda number: lines[number] if number < len(lines) else []


def add_lexer(shell: Any) -> None:
    """Colours ``%%rw`` cells, if the shell is a terminal's."""
    lexers = getattr(getattr(getattr(shell, "pt_app", None), "lexer", None), "magic_lexers", None)
    if isinstance(lexers, dict):
        lexers["rw"] = CellLexer()
