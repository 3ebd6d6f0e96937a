"""Lowers the statements that move positions (the core of the product): UNSAFE SET, RESET, INJECT, SKIP, blocks, UNDO,
REWIND.

Each statement builds a preview of duplicates and gaps, requires a confirmation, and is recorded in the log of
operations.

Of ``plan``, this package imports the neighbours ``table``, ``view``, ``connection`` and ``checkpoint``, and the
packages in the layers below ``statements``. Begin with ``unsafe_set_and_reset``, ``inject`` and ``inject_targets``. To
add a kind of target for INJECT, plan it in ``inject_targets`` and, for checkpoints of foreign jobs, in the neighbouring
``checkpoint/targets.py``. ``plan/offline/judgement.py`` decides which errors in a target are certain without contacting
the upstream. The syntax is in ``grammar/source.lark`` and ``rw_sql/syntax``, and the commands are in ``cli/source`` and
``cli/checkpoint``.
"""
