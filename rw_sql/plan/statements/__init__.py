"""One lowering function per statement, in a package per object: ``source``, ``view``, ``table``, ``sink``, ``move``, …

Functions are named after their statements: the function for ``INJECT SOURCE OFFSETS`` is
``lower_inject_source_offsets``.

The packages share ``common`` (required objects, options, names), ``inject_common`` (the new positions of INJECT) and
``other_kind`` (hints for statements whose object is of another kind).

Imports: every other package of ``plan``. Begin with ``source/source.py``; the unsafe operations on positions are in
``move``.
"""
