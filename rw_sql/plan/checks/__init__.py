"""Checks definitions: their formats, columns, options and upstreams.

A check raises SqlError if the definition is wrong, and the error states how to correct the definition. Otherwise, the
check returns its result.

No check changes the catalog or an upstream.

This package may import only ``ports``, ``model``, and the layers below ``model``. Begin with ``sources``.
"""
