"""Carries out plans: runs a warehouse's jobs, reads facts for planning, and waits for statements to take effect.

The packages, from the top:

- ``status`` shows the state of the warehouse to an operator.
- ``remote`` runs the statements of sessions without a JVM, and ``control`` decides which jobs run.
- ``views``, ``ingest``, ``sinks`` and ``refresh`` are the jobs.
- ``observe``, ``sql``, ``backfill``, ``direct``, ``upkeep``, ``rewind`` and ``positions`` serve the jobs.
- ``jobs`` is shared by all jobs; ``delta``, ``decoding``, ``spark`` and ``support`` are the lowest layer.

A package imports only packages below it (``lint-imports``), and ``plan``. Begin with ``control/reconciler.py``, then
``ingest/job.py``.
"""
