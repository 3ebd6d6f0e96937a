"""MySQL and MariaDB: reads a snapshot of each table, and the changes to the tables from the binary log.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``, then ``reader``; ``stream`` reads
events, ``events`` parses the events, ``values`` decodes cells, ``snapshot`` reads chunks, ``server`` checks the server.
"""
