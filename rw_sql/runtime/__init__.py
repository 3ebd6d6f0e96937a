"""Carries out plans: runs a warehouse's jobs, reads facts for planning, and waits until statements have taken effect.

The packages of ``runtime``, from the highest layer to the lowest:

- ``status`` shows the state of the warehouse to an operator.
- ``remote`` runs the statements of sessions without a JVM, and ``control`` decides which jobs run.
- ``views``, ``ingest``, ``sinks`` and ``refresh`` contain the jobs.
- ``observe``, ``sql``, ``backfill``, ``direct``, ``upkeep``, ``rewind`` and ``positions`` provide code for the jobs.
- ``jobs`` contains code that all jobs share; ``delta``, ``decoding``, ``spark`` and ``support`` are the lowest layer.

A package imports only ``plan`` and the packages below itself; the command ``lint-imports`` checks this rule. Begin with
``control/reconciler.py``, then ``ingest/job.py``.
"""
