"""NATS JetStream: streams as sources. An offset is the sequence number of a message in its stream.

From ``rw_sql.connectors``, this package may import only ``support`` and the modules beside the families, except
``registry``, ``docs`` and ``connection_types``. Begin with ``source``. The module ``client`` communicates with the
servers, and ``reader`` reads ranges of sequence numbers. Only ``client`` and ``reader`` may use nats-py.
"""
