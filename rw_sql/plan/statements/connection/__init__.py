"""Statements on connections and secrets, and changes of connector options, which restart the objects that use them.

Imports: ``common`` and the rooms of ``plan`` below ``statements``. Begin with ``connection``.
"""
