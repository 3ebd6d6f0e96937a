"""Statements that move positions (the core of the product): UNSAFE SET, RESET, INJECT, SKIP, blocks, UNDO, REWIND.

Each statement builds a preview of duplicates and gaps, requires a confirmation, and is recorded in the log of
operations.

Imports: ``table``, ``view``, ``connection``, ``checkpoint`` and the packages of ``plan`` below ``statements``. Begin
with ``unsafe_set_and_reset``, then ``inject`` and ``inject_targets``. A new kind of target for INJECT must be planned
in ``inject_targets``. The syntax of the target is in ``grammar/source.lark`` and the folders ``statements``,
``parsing`` and ``rendering`` of ``rw_sql/syntax``.
"""
