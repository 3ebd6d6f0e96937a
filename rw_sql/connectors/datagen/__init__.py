"""Generated rows, for demos and tests. The same offsets always give the same rows.

From ``rw_sql.connectors``, this package may import only ``support`` and the modules beside the families, except
``registry``, ``docs`` and ``connection_types``. Begin with ``source``.
"""
