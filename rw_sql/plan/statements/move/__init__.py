"""Statements that move positions (the core of the product): UNSAFE SET, RESET, INJECT, SKIP, blocks, UNDO, REWIND.

Each statement builds a preview of duplicates and gaps, requires a confirmation, and is recorded in the log of
operations.

Imports: ``table``, ``view``, ``connection``, ``checkpoint`` and the packages of ``plan`` below ``statements``. Begin
with ``unsafe_set_and_reset``, ``inject`` and ``inject_targets``. A new kind of target for INJECT must be planned in
``inject_targets`` and, for checkpoints of jobs that rw_sql does not run, in ``checkpoint/targets.py`` beside this
folder. ``plan/offline/judgement.py`` decides which of the target's errors are certain without the upstream. The syntax
is in ``grammar/source.lark`` and ``rw_sql/syntax``, and the commands are in ``cli/source`` and ``cli/checkpoint``.
"""
