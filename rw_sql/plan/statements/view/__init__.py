"""Lowers CREATE, ALTER and DROP MATERIALIZED VIEW and CANCEL JOBS, and plans the backfill and the rebuild of a view.

Imports: ``common`` and the packages of ``plan`` below ``statements``. Begin with ``view``. The module ``backfill_plan``
decides which existing records a new view sees.
"""
