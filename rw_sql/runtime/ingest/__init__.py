"""The job of a shared source: one stateless query from the upstream into the source's log, where records are decoded.

``warm_start`` and its neighbours keep what a restart after a move needs ready beforehand.

Imports: ``upkeep``, ``positions`` and the rooms below. Imported by: ``control``.
Begin with ``job``.
"""
