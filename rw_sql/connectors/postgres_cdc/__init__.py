"""PostgreSQL: changes of tables through a logical replication slot (pgoutput), beside a snapshot of each table.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``, then ``reader``; ``pgoutput``
decodes messages, ``tuples`` turns rows into Arrow, ``snapshot`` reads chunks, ``server`` checks and makes the slot.
"""
