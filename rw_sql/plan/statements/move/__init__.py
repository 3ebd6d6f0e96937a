"""Lowers the statements that move positions: UNSAFE SET, RESET, INJECT, SKIP, blocks, UNDO, REWIND.

Each statement builds a preview of duplicates and gaps, requires a confirmation, and is recorded in the log of
operations.

From ``plan``, this package imports the neighbours ``table``, ``view``, ``source``, ``connection``, ``checkpoint``,
``common`` and ``inject_common``, and the packages in the layers below ``statements``. Begin with
``unsafe_set_and_reset``, ``inject`` and ``inject_targets``. To add a kind of target for INJECT, also look at
``checkpoint/targets.py`` (checkpoints of foreign jobs). ``plan/offline/judgement.py`` decides which errors in a target
are certain without contacting the upstream. The syntax is in ``grammar/source.lark`` and ``rw_sql/syntax``, and the
commands are in ``cli/source`` and ``cli/checkpoint``.
"""
