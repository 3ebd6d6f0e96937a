"""MySQL and MariaDB: reads a snapshot of each table, and the changes to the tables from the binary log.

From ``rw_sql.connectors``, this package may import only ``support`` and the modules beside the families, except
``registry``, ``docs`` and ``connection_types``. Begin with ``source`` and ``reader``. The module ``stream`` reads
events, ``events`` parses the events, ``values`` decodes cells, ``snapshot`` reads chunks, and ``server`` checks the
server.
"""
