"""Iceberg tables: a source of appended rows, snapshots for REFRESH TABLE, and a sink that commits each batch once.

From ``rw_sql.connectors``, this package may import only ``support`` and the modules beside the families, except
``registry``, ``docs`` and ``connection_types``. Begin with ``source``. An offset is the sequence number of a snapshot.
Only ``catalog``, ``history``, ``key_deletes``, ``reader``, ``rest`` and ``sink`` use pyiceberg.
"""
