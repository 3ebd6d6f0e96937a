"""Servers that ``rw-sql dev`` starts on this machine besides the broker: a schema registry.

May import ``interface``. Begin with ``schema_registry.py``; the broker uses ``local_server.py`` too.
"""
