"""Carries out plans: runs the jobs of a warehouse in its owner process, reads facts for planning, and waits for
statements to take effect.

Packages, from the top: ``status`` shows an operator the warehouse; ``remote`` runs the statements of sessions without a
JVM; ``control`` decides which jobs run; ``views``, ``ingest``, ``sinks`` and ``refresh`` are the jobs; ``observe``,
``sql``, ``backfill``, ``direct``, ``upkeep``, ``rewind`` and ``positions`` serve them; ``jobs`` is shared by all;
``delta``, ``decoding``, ``spark`` and ``support`` are the lowest layer. A package imports only packages below it
(``lint-imports``), and ``plan``. Begin with ``control/reconciler.py``, then ``ingest/job.py``.
"""
