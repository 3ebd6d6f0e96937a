"""PostgreSQL through JDBC options: tables that REFRESH TABLE loads, and a sink that merges rows into a table.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``, or with ``sink`` and ``writer``.
"""
