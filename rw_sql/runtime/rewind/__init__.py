"""Rewind points, and REWIND.

Each unsafe operation on a source leaves a rewind point; REWIND restores the source and its dependents to one.

Imports: ``positions``, ``jobs``, ``delta`` and below. Imported by: ``control``. Begin with ``points``, then
``restore``; ``scheduler`` calls both.
"""
