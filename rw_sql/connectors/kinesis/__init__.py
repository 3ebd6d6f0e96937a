"""Kinesis data streams as sources. A split is a shard; an offset is a record's sequence number.

Imports: the public modules of ``connectors``. Begin with ``source``; ``client`` makes requests, ``shards`` finds the
bounds of shards, ``reader`` reads ranges of sequence numbers, ``poller`` finds the next ranges of a run,
``aggregation`` unpacks records of Amazon's producer library. All other rooms use boto3 for Kinesis only through these.
"""
