"""Colours ``%%rw`` cells when IPython runs in a terminal. In JupyterLab, the extension in ``labextension/`` does
this."""

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
"""Maps the styles of rw_sql's shell to the names of Pygments' tokens. IPython's themes define colours for these
names."""


class CellLexer(Lexer):
    """Colours the statements of a cell. The first line is coloured as an operator, as IPython does for all magics."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """Returns a function that maps the number of a line to its styled pieces."""
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
    """Enables colours for ``%%rw`` cells. Does nothing if IPython does not run in a terminal."""
    lexers = getattr(getattr(getattr(shell, "pt_app", None), "lexer", None), "magic_lexers", None)
    if isinstance(lexers, dict):
        lexers["rw"] = CellLexer()
