"""PostgreSQL change data capture: reads changes to tables through a logical replication slot (pgoutput), and a snapshot
of each table.

From ``rw_sql.connectors``, this package may import only ``support`` and the modules beside the families, except
``registry``, ``docs`` and ``connection_types``. Begin with ``source`` and ``reader``. The module ``pgoutput`` decodes
messages, ``types`` maps PostgreSQL's types to columns, ``tuples`` converts rows to Arrow, ``snapshot`` reads chunks,
``server`` checks the slot, and ``setup`` creates the slot.
"""
