"""CREATE and DROP MATERIALIZED VIEW, and the backfill and rebuild of a view.

Imports: ``common`` and the rooms of ``plan`` below ``statements``. Imported by: ``show`` and ``plan/lower.py``. Begin
with ``view``; ``backfill_plan`` decides which existing records a new view sees.
"""
