"""Checks of definitions: formats, columns, options and upstreams.

The error of a check states how to correct the definition.

A check raises SqlError or returns its result; it changes nothing.

Imports: ``model``, ``ports``. Begin with ``sources``.
"""
