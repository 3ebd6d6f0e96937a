"""Carries out plans: runs a warehouse's jobs, reads facts for planning, and waits until statements have taken effect.

The packages of ``runtime``, from the highest layer to the lowest: ``status`` shows the state of the warehouse to the
user. ``remote`` runs the statements of sessions without a JVM, and ``control`` decides which jobs run. ``views``,
``ingest``, ``sinks`` and ``refresh`` contain the jobs; ``backfill``, ``rewind``, ``upkeep``, ``observe`` and ``sql``,
then ``direct``, then ``positions`` serve them. ``jobs`` contains code that all jobs share. Below it are ``delta`` and
``decoding``, then ``spark``, then ``support``. A package imports only packages below itself, such as ``plan`` and
``model``; the command ``lint-imports`` checks this rule.

Begin with ``control/reconciler.py``, then read ``ingest/job.py``.
"""
