"""RabbitMQ: streams and super streams as sources. An offset is the number of a message in its stream.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``. The module ``reader`` reads ranges
of offsets, ``client`` communicates with the servers, ``frames`` encodes and decodes the frames of the stream protocol,
and ``chunks`` and ``messages`` decode the delivered data.
"""
