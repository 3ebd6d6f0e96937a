"""Kafka: the source, the sink, and clients that read topics, groups and offsets.

Imports: the public modules of ``connectors``, ``schemas`` and ``support``. Begin with ``source``, which contains the
connector's methods. The file ``sources/kafka.toml`` has the connector's options, and ``properties`` converts these
options to the options of librdkafka and Spark.
"""
