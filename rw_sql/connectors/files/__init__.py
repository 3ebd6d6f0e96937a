"""Files in folders and object stores: sources of CSV, JSON lines and Parquet, and a sink that writes files.

From ``rw_sql.connectors``, this package may import only ``support`` and the modules beside the families, except
``registry``, ``docs`` and ``connection_types``. Begin with ``source``. A split is a file, and an offset counts bytes of
the file.
"""
