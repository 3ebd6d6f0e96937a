"""NATS JetStream: streams as sources. An offset is the sequence number of a message in its stream.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``. The module ``client`` communicates
with the servers, and ``reader`` reads ranges of sequence numbers. Only ``client`` and ``reader`` use nats-py.
"""
