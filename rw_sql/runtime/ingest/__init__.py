"""The job of a shared source: decodes records from upstream and appends them to the source's log.

``job`` runs large batches as a stateless Spark query; ``registry_batches`` writes the batches whose schemas are in a
registry. ``batch_reader`` and ``followed`` read small batches without a query, ``capture`` reads changes to a database,
and ``change_feed`` forms batches of these changes. ``warm_start`` and the modules that it uses prepare in advance the
restart that follows a move.

Imports: ``upkeep``, ``positions`` and the packages below. Begin with ``job``.
"""
