"""Kafka: the source, the sink, and clients that read topics, groups and offsets.

Imports: the public modules of ``connectors``, ``schemas`` and ``support``. Begin with ``source`` (the connector's
methods); ``sources/kafka.toml`` has the connector's options, and ``properties`` converts them to the options of
librdkafka and Spark.
"""
