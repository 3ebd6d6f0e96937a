"""Rewind points, and REWIND.

Each unsafe operation on a source leaves a rewind point. REWIND restores the source and its dependents to such a point.
``points`` copies checkpoints and deletes the copies of old points. ``restore`` restores tables and replaces
checkpoints.

Imports: ``positions``, ``jobs``, ``delta`` and below. Begin with ``points``, then ``restore``; ``scheduler`` calls
both.
"""
