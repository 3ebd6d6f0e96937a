"""CREATE, ALTER and DROP MATERIALIZED VIEW, CANCEL JOBS, and the backfill and rebuild of a view.

Imports: ``common`` and the packages of ``plan`` below ``statements``. Begin with ``view``; ``backfill_plan`` decides
which existing records a new view sees.
"""
