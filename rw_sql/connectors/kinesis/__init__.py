"""Kinesis data streams as sources. A split is a shard, and an offset is the sequence number of a record.

From ``rw_sql.connectors``, this package may import only ``support`` and the modules beside the families, except
``registry``, ``docs`` and ``connection_types``. Begin with ``source``. The module ``client`` makes requests, ``shards``
finds the bounds of shards, ``reader`` reads ranges of sequence numbers, ``poller`` finds the next ranges of a run, and
``aggregation`` unpacks records of Amazon's producer library. Code outside this folder must not call boto3 for Kinesis
directly, only through these modules.
"""
