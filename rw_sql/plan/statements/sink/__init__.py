"""CREATE, DROP, PAUSE and RESUME SINK.

Imports: ``common`` and the packages of ``plan`` below ``statements``. Begin with ``sink``; ``plan/checks/sinks.py`` has
its checks.
"""
