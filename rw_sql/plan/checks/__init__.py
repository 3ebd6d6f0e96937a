"""Checks of definitions: formats, columns, options and upstreams. Each check raises an error that says how to correct
the definition.

A check raises SqlError or returns its result; it changes nothing.

Imports: ``model``, ``ports``. Imported by: ``queries``, ``effects``, ``statements``. Begin with ``sources``.
"""
