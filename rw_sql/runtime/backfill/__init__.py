"""Backfill: the records that came before a view, read in chunks from the upstream and handed over to its log.


Imports: ``positions``, ``jobs``, ``delta`` and below. Imported by: ``views``.
Begin with ``job``; which records these are is said by ``model/backfill_ranges.py``.
"""
