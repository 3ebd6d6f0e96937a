"""PostgreSQL with JDBC options: tables that REFRESH TABLE loads, and a sink that merges rows into a table.

Of ``rw_sql.connectors``, this package may import only the public modules and the package ``support``. Begin with
``source``, or with ``sink`` and ``writer``.
"""
