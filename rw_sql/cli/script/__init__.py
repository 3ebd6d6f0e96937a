"""Implements ``rw-sql run``, which executes scripts with variables, or explains them in a dry run, and reports the
results.

Imports: ``session``, ``syntax``, ``plan/deploy``, ``interface``, ``terminal``. Begin with ``command``.
"""
