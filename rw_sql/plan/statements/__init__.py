"""One lowering function a statement, in a room per object: ``source``, ``view``, ``table``, ``sink``, ``move``, …

``INJECT SOURCE OFFSETS`` is ``lower_inject_source_offsets``: one search finds all of a statement.

``common`` has what several of them share.

Imports: every other room of ``plan``. Imported by: ``plan/lower.py``, which dispatches.
Begin with ``source/source.py``; the unsafe operations on positions are in ``move``.
"""
