"""Makes rewind points, and carries out REWIND.

For each unsafe operation on a source, the owner makes a rewind point. REWIND restores the source and its dependents to
a rewind point. The module ``points`` copies checkpoints and deletes the copies of old points. The module ``restore``
restores tables and replaces checkpoints.

From ``runtime``, this package imports only ``positions``, ``jobs``, ``delta`` and the packages below
these. Begin with ``points`` and ``restore``. The module ``scheduler`` calls both modules.
"""
