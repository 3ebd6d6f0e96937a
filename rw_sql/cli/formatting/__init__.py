"""Implements ``rw-sql fmt``, which formats statements and queries. Comments keep their places.

Imports: ``syntax``, ``interface``, ``terminal``. Begin with ``command`` and ``statement``.
"""
