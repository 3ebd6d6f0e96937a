"""MySQL and MariaDB: changes of tables from the binary log, beside a snapshot of each table.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``, then ``reader``; ``stream`` reads
events, ``events`` parses them, ``values`` decodes cells, ``snapshot`` reads chunks, ``server`` checks the server.
"""
