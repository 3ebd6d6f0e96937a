"""Commands for running a warehouse as a service: ``serve`` and its log, ``status`` and ``lineage``, ``doctor``,
``takeover``.

Imports: ``session``, ``runtime``, ``interface``, ``terminal``. Begin with ``serve`` and ``status``.
"""
