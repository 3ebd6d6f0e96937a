"""Contains the job that maintains a materialized view or a table, and the strategies for applying a batch to the view's
table.

The module ``swap`` replaces a view's table with a rebuilt table. ``own_rows`` delays the batches of a table that reads
a change data capture source, while the source's log only gets rows of other tables.

This package may import the packages of ``runtime`` below it, such as ``jobs``, ``backfill``, ``delta`` and ``spark``.
Begin with ``job`` and ``strategy``.
"""
