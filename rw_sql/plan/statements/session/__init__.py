"""Lowers statements about parameters and about the session: SET, ALTER SYSTEM SET, resource groups, the search path.

Imports: ``common``, ``result``, ``ports``, ``model``. Begin with ``parameters``. The parameters themselves are in
``model/parameters.py``.
"""
