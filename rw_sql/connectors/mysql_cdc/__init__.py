"""MySQL and MariaDB: reads a snapshot of each table, and the changes to the tables from the binary log.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source`` and ``reader``. The module
``stream`` reads events, ``events`` parses the events, ``values`` decodes cells, ``snapshot`` reads chunks, and
``server`` checks the server.
"""
