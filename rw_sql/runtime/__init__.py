"""Carries out plans. The packages of ``runtime`` run a warehouse's jobs, read the facts that planning needs, and wait
until statements have taken effect.

The packages of ``runtime``, from the highest layer to the lowest:

- ``status`` shows the state of the warehouse to an operator.
- ``remote`` runs the statements of sessions without a JVM, and ``control`` decides which jobs run.
- ``views``, ``ingest``, ``sinks`` and ``refresh`` contain the jobs of views and tables, sources, sinks and REFRESH
  TABLE.
- ``backfill``, ``rewind``, ``upkeep``, ``observe`` and ``sql`` are used by the packages above. Below them is
  ``direct``, and below ``direct`` is ``positions``.
- ``jobs`` contains code that all jobs share. Below it are ``delta`` and ``decoding``, then ``spark``, then ``support``.

A package of ``runtime`` imports only packages below itself, and the packages of rw_sql below ``runtime``, such as
``plan`` and ``model``. The command ``lint-imports`` checks this rule. Begin with ``control/reconciler.py``, then read
``ingest/job.py``.
"""
