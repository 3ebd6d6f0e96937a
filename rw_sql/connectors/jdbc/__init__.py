"""PostgreSQL: tables that REFRESH TABLE loads, and the sink that merges into one.


Imports: the public modules of ``connectors`` and ``support``.
Begin with ``source``, or ``sink`` and ``writer``.
"""
