"""Backfill: reads, in chunks, the records from before a view, and then lets the view's stream continue in the log.

Imports: ``positions``, ``jobs``, ``delta`` and below. Imported by: ``views``. Begin with ``job``;
``model/backfill_ranges.py`` defines which records are read.
"""
