"""Statements on connections and secrets, and statements that change connector options. The objects that use a changed
option restart.

Imports: ``common`` and the packages of ``plan`` below ``statements``. Begin with ``connection``.
"""
