"""What a lowering asks of the world: one frozen class a request, and a function that yields it.

The runtime answers them (``runtime/control/inspector.py``), the tests answer from prepared values.

Imports: ``model``. Imported by: every other room of ``plan``.
Begin with ``catalog`` (``Asking``, and requests that the metastore answers).
"""
