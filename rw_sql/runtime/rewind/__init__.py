"""Rewind points, which unsafe operations leave, and REWIND, which restores a source and its dependents to one.

Imports: ``positions``, ``jobs``, ``delta`` and below. Imported by: ``control``. Begin with ``points``, then
``restore``; ``scheduler`` calls both.
"""
