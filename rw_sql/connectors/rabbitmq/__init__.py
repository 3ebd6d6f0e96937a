"""RabbitMQ: streams and super streams as sources. An offset is the number of a message in its stream.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``; ``reader`` reads ranges of
offsets, ``client`` talks to the servers, ``frames`` encodes and decodes the frames of the stream protocol, ``chunks``
and ``messages`` decode the delivered data.
"""
