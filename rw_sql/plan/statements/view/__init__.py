"""Lowers CREATE, ALTER and DROP MATERIALIZED VIEW and CANCEL JOBS, and plans the backfill and the rebuild of a view.

Within ``plan``, this package imports only ``statements.common`` and the packages below ``statements``. Begin with the
module ``view``. The module ``backfill_plan`` determines which existing records a new view reads.
"""
