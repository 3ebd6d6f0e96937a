"""Commands for running a warehouse as a service: ``serve`` and its log, ``status`` and ``lineage``, ``doctor``,
``takeover``.

The package ``rw_sql/runtime/status`` reads the data that ``status`` and ``lineage`` print, and its module ``doctor``
makes the checks of the command ``doctor``.

This package imports mainly ``session``, ``runtime``, ``interface`` and ``terminal``. Begin with ``serve`` and
``status``.
"""
