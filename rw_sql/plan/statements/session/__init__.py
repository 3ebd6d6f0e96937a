"""Statements on parameters and on the session: SET, ALTER SYSTEM SET, resource groups, the search path.

Imports: ``common``, ``result``, ``ports``, ``model``. Begin with ``parameters``; the parameters themselves are in
``model/parameters.py``.
"""
