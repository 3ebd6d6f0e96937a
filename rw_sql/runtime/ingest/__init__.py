"""Contains the job of a shared source. The job decodes records from upstream and appends them to the source's log.

The module ``job`` runs large batches as a stateless Spark query, and ``registry_batches`` writes batches of records
whose schemas are in a registry. ``batch_reader`` and ``followed`` read small batches without a query, ``capture`` reads
changes to a database, and ``change_feed`` forms batches of these changes. ``unread_columns`` stores the upstream
columns that no table reads. If a statement moves the source's positions, the reader restarts. ``warm_start``, with the
modules that it uses, prepares this restart before the move is committed.

From ``runtime``, this package may import only ``upkeep``, ``positions`` and the packages below these.
Begin with ``job``.
"""
