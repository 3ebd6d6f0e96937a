"""Checks of definitions: formats, columns, options and upstreams, each with an error that says what to write.

A check raises SqlError or returns what it found; it changes nothing.

Imports: ``model``, ``ports``. Imported by: ``queries``, ``effects``, ``statements``. Begin with ``sources``.
"""
