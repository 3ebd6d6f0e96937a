"""Pulsar topics as sources. A split is a partition; an offset is a message id, written as a single number.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``; ``client`` keeps connections,
``ids`` turns message ids into offsets, ``bounds`` finds first and last messages, ``reader`` reads ranges, ``poller``
finds the next ranges of a run, ``subscriptions`` keeps messages at the broker until they are committed. All code
outside this folder uses pulsar-client only through these modules.
"""
