"""Generated rows, for demos and tests. The same offsets always give the same rows.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``.
"""
