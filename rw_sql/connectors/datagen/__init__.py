"""Generated rows, for demos and tests. The same offsets always give the same rows.

From ``rw_sql.connectors``, this package may import only the modules that are not in a subfolder, and the subfolder
``support``. Begin with ``source``.
"""
