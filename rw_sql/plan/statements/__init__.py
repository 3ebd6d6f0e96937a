"""Contains one lowering function per statement. There is one package per kind of object (``source``, ``view``,
``table``, ``sink``, …) or task (``move``, ``show``, …).

Functions have the names of their statements. For example, the function for ``INJECT SOURCE OFFSETS`` is
``lower_inject_source_offsets``.

The packages share ``common`` (required objects, options, names), ``inject_common`` (the new positions of INJECT) and
``other_kind`` (hints for statements whose object is of another kind).

From ``plan``, this package imports only ``effects``, ``queries``, ``checks``, ``result`` and ``ports``. Begin with
``source/source.py``. The unsafe operations on positions are in ``move``.
"""
