"""One lowering function per statement, in a package per object: ``source``, ``view``, ``table``, ``sink``, ``move``, …

Functions are named after their statements: ``INJECT SOURCE OFFSETS`` is ``lower_inject_source_offsets``.

Several packages share the module ``common``.

Imports: every other package of ``plan``. Begin with ``source/source.py``; the unsafe operations on positions are in
``move``.
"""
