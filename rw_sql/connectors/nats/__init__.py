"""NATS JetStream: streams as sources. An offset is the sequence number of a message in its stream.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``; ``client`` talks to the servers,
``reader`` reads ranges of sequence numbers. Only ``client`` and ``reader`` use nats-py.
"""
