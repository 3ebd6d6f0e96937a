"""Iceberg tables: a source of appended rows, snapshots for REFRESH TABLE, and a sink that commits each batch once.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``. An offset is the sequence number
of a snapshot. Only ``catalog``, ``history``, ``reader`` and ``sink`` use pyiceberg.
"""
