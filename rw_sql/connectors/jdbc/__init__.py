"""PostgreSQL with JDBC options: tables that REFRESH TABLE loads, and a sink that merges rows into a table.

From ``rw_sql.connectors``, this package may import only ``support`` and the modules beside the families, except
``registry``, ``docs`` and ``connection_types``. Begin with ``source``, or with ``sink`` and ``writer``.
"""
