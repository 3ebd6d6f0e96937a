"""Statements on parameters: SET and ALTER SYSTEM SET.

Imports: ``result``, ``ports``, ``model``. Imported by: ``plan/lower.py``. Begin with ``parameters``; the parameters
themselves are in ``model/parameters.py``.
"""
