"""CREATE and DROP MATERIALIZED VIEW, its backfill, and the rebuild with another query.


Imports: ``common`` and the rooms beside ``statements``. Imported by: ``show`` and ``plan/lower.py``.
Begin with ``view``; ``backfill_plan`` says which existing records a new view sees.
"""
