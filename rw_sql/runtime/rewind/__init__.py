"""Rewind points, which an unsafe operation leaves, and REWIND, which puts a source and its dependents back to one.


Imports: ``positions``, ``jobs``, ``delta`` and below. Imported by: ``control``.
Begin with ``points``, then ``restore``; ``scheduler`` calls both.
"""
