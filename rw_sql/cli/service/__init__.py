"""Commands for running a warehouse as a service: ``rw-sql serve`` and its log, ``rw-sql status`` and ``lineage``.

Imports: ``session``, ``runtime`` and the modules of ``cli`` that print. Begin with ``serve`` and ``status``.
"""
