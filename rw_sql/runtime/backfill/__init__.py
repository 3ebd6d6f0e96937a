"""Backfills new and rebuilt views. A backfill reads the records that are older than the view, in chunks. Afterwards,
the view's streaming query continues with the source's log.

Within ``runtime``, this package imports only ``positions``, ``jobs``, ``delta``, ``decoding``, ``spark`` and
``support``. Begin with the module ``job``. The module ``model/backfill_ranges.py`` defines which records are read.
"""
