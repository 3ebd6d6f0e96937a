"""CREATE and DROP MATERIALIZED VIEW, its backfill, and the rebuild with another query.


Imports: ``source`` and the rooms beside ``statements``. Imported by: ``sink``, ``show``, ``plan/lower.py``.
Begin with ``view``; ``backfill_plan`` says which existing records a new view sees.
"""
