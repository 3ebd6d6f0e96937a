"""Carries out plans: runs a warehouse's jobs, reads facts for planning, and waits until statements have taken effect.

- ``status`` shows the state of the warehouse to an operator. Below it, ``remote`` runs the statements of sessions
  without a JVM, and ``control`` decides which jobs run.
- ``views``, ``ingest``, ``sinks`` and ``refresh`` contain the jobs of views and tables, sources, sinks and REFRESH
  TABLE. ``backfill``, ``rewind``, ``upkeep``, ``observe``, ``sql``, ``direct`` and ``positions`` serve these packages.
- ``jobs`` contains code that all jobs share. Below it are ``delta`` and ``decoding``, then ``spark``, then ``support``.

A package imports only packages below itself, such as ``plan`` and ``model``; the command ``lint-imports`` checks this
rule. Begin with ``control/reconciler.py``, then read ``ingest/job.py``.
"""
