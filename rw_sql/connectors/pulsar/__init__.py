"""Pulsar topics as sources. A split is a partition, and an offset is a message id that is written as a single number.

From ``rw_sql.connectors``, this package may import only ``support`` and the modules beside the families, except
``registry``, ``docs`` and ``connection_types``. Begin with ``source``. The module ``client`` keeps connections open,
``ids`` turns message ids into offsets, ``bounds`` finds first and last messages, ``reader`` reads ranges, ``poller``
finds the next ranges of a run, and ``subscriptions`` makes the broker keep messages until they are committed. Code
outside this folder must not use pulsar-client directly, only through these modules.
"""
