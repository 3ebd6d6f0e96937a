"""Contains the job of a shared source. The job decodes records from upstream and appends them to the source's log.

The module ``job`` runs large batches as a stateless Spark query, and ``registry_batches`` writes batches of records
whose schemas are in a registry. ``batch_reader`` and ``followed`` read small batches without a query, ``capture`` reads
changes to a database, and ``change_feed`` forms batches of these changes. ``unread_columns`` stores the columns that
were added to upstream tables, but that tables of the source lack. If a statement moves the source's positions, the
reader restarts. ``warm_start`` and the modules that it uses prepare this restart before the statement is committed.

From ``runtime``, this package may import only ``upkeep``, ``positions`` and the packages below these.
Begin with ``job``.
"""
