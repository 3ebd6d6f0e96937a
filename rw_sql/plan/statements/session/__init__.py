"""Statements on parameters: SET and ALTER SYSTEM SET.

Imports: ``result``, ``ports``, ``model``. Begin with ``parameters``; the parameters themselves are in
``model/parameters.py``.
"""
