"""Delta tables outside the warehouse: a source of appended rows, and a sink that merges into a table.

From ``rw_sql.connectors``, this package may import only the modules that are not in a subfolder, and the subfolder
``support``. Begin with ``source``. An offset is a version of the table.
"""
