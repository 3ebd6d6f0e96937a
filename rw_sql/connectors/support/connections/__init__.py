"""Connections to servers. The package contains a pool of open connections, and builds TLS contexts from a connector's
options.

This package may import the other modules of ``rw_sql.connectors.support``. Begin with ``connection_pool``.
"""
