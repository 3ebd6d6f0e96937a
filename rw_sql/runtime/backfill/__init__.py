"""Backfills views. A backfill reads, in chunks, the records that are older than the view. Afterwards, the view's stream
continues from the source's log.

Imports: ``positions``, ``jobs``, ``delta`` and the packages below these. Begin with ``job``;
``model/backfill_ranges.py`` defines which records are read.
"""
