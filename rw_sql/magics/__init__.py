"""Notebook support: ``%load_ext rw_sql`` registers ``%%rw``, which runs a cell's statements and shows their results.

Imports: ``session`` and the packages below it. Imported by: ``rw_sql`` itself, when a notebook loads it. Begin with
``cell``.
"""

from __future__ import annotations

from typing import Any


def load(shell: Any) -> None:
    """Registers ``%rw`` (one line) and ``%%rw`` (a cell) with an IPython shell."""
    from rw_sql.magics.cell import StatementMagic

    shell.register_magic_function(StatementMagic(shell).run, magic_kind="line_cell", magic_name="rw")
