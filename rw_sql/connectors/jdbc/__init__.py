"""PostgreSQL: tables that REFRESH TABLE loads, and a sink that merges into a table.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``, or ``sink`` and ``writer``.
"""
