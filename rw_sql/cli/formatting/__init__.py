"""Implements ``rw-sql fmt``, which formats statements and queries. Comments keep their places.

This package imports mainly ``syntax``, ``plan/offline`` and ``interface``. Begin with ``command`` and ``statement``.
"""
