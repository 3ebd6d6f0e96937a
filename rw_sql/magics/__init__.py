"""The extension for notebooks. ``%load_ext rw_sql`` registers ``%%rw``, which runs a cell's statements and shows their
results.

This package may import ``session`` and the layers below it, the shell's completion and styles (``cli/shell``), and the
status line (``cli/terminal``). Begin with ``cell``.
"""

from __future__ import annotations

from typing import Any


def load(shell: Any) -> None:
    """Registers ``%rw`` (one line) and ``%%rw`` (a cell) with an IPython shell."""
    from rw_sql.magics.cell import StatementMagic
    from rw_sql.magics.completion import MATCHER, make_matcher
    from rw_sql.magics.highlighting import add_lexer
    from rw_sql.magics.status import CellStatus
    from rw_sql.session.shown_status import show_statements

    shell.register_magic_function(StatementMagic(shell).run, magic_kind="line_cell", magic_name="rw")
    completer = getattr(shell, "Completer", None)
    if completer is not None:
        # If the extension is loaded a second time, the new matcher replaces the old one.
        others = [known for known in completer.custom_matchers if getattr(known, "matcher_identifier", "") != MATCHER]
        completer.custom_matchers[:] = [*others, make_matcher(shell)]
    add_lexer(shell)
    # Without a kernel, IPython runs in a terminal and shows the status line of a prompt.
    if getattr(shell, "kernel", None) is not None:
        show_statements(CellStatus)
