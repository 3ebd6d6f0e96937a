"""Delta tables outside the warehouse: a source of appended rows, and a sink that merges into a table.

From ``rw_sql.connectors``, this package may import only ``support`` and the modules beside the families, except
``registry``, ``docs`` and ``connection_types``. Begin with ``source``. An offset is a version of the table.
"""
