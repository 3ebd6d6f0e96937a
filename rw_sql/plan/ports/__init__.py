"""The facts that planning requests from outside: one frozen class per request, and a function that yields it.

The runtime answers them (``runtime/control/inspector.py``); tests answer with prepared values.

Imports: ``model``. Imported by: every other room of ``plan``. Begin with ``catalog`` (``Asking``, and requests that the
metastore answers).
"""
