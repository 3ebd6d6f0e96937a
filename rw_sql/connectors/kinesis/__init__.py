"""Kinesis data streams as sources. A split is a shard, and an offset is the sequence number of a record.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``. The module ``client`` makes
requests, ``shards`` finds the bounds of shards, ``reader`` reads ranges of sequence numbers, ``poller`` finds the next
ranges of a run, and ``aggregation`` unpacks records of Amazon's producer library. All code outside this folder uses
boto3 for Kinesis only through these modules.
"""
