"""Statements on the session: SET, SHOW and RESET of parameters.


Imports: ``result``, ``requests``, ``model``. Imported by: ``plan/lower.py``.
Begin with ``parameters``; the parameters themselves are in ``model/parameters.py``.
"""
