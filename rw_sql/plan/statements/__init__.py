"""One lowering function per statement, in a room per object: ``source``, ``view``, ``table``, ``sink``, ``move``, …

Functions are named after their statements: ``INJECT SOURCE OFFSETS`` is ``lower_inject_source_offsets``.

``common`` is shared by several of them.

Imports: every other room of ``plan``. Begin with ``source/source.py``; the unsafe operations on positions are in
``move``.
"""
