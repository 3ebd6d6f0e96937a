"""Kafka: the source, the sink, and clients that read topics, groups and offsets.

From ``rw_sql.connectors``, this package may import only ``schemas``, ``support`` and the modules beside the families,
except ``registry``, ``docs`` and ``connection_types``. Begin with ``source``, which contains the connector's methods.
The file ``sources/kafka.toml`` has the connector's options, and ``properties`` converts these options to the options of
librdkafka and Spark.
"""
