"""RabbitMQ: streams and super streams as sources. An offset is the number of a message within its stream.

From ``rw_sql.connectors``, this package may import only ``support`` and the modules beside the families, except
``registry``, ``docs`` and ``connection_types``. Begin with ``source``. The module ``reader`` reads ranges of offsets,
``client`` communicates with the servers, ``frames`` encodes and decodes the frames of the stream protocol, and
``chunks`` and ``messages`` decode the delivered data.
"""
