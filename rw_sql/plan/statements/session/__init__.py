"""Lowers statements about parameters and about the session: SET, ALTER SYSTEM SET, resource groups, the search path.

This package imports ``statements/common``, ``plan/result``, ``plan/ports``, ``model`` and the layers below ``model``.
Begin with ``parameters``. The parameters are defined in ``model/parameters.py``.
"""
