"""Kafka: source, sink, and the clients that look at topics, groups and offsets.


Imports: the public modules of ``connectors`` and ``support``.
Begin with ``source`` (what the connector answers); ``sources/kafka.toml`` has its options.
"""
