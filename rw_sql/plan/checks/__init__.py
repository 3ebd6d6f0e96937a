"""Checks definitions: their formats, columns, options and upstreams.

The error that a check raises states how to correct the definition.

A check raises SqlError or returns its result. No check changes anything.

Imports: ``model``, ``ports``. Begin with ``sources``.
"""
