"""Lowers CREATE, DROP, PAUSE and RESUME SINK.

From ``plan``, this package imports ``statements/common`` and the packages in the layers below ``statements``. Begin
with ``sink``. The checks are in ``plan/checks/sinks.py``.
"""
