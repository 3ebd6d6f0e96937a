"""What connectors need to keep connections to servers: a pool, and TLS by options.

Imports: the other modules of ``support``. Begin with ``connection_pool``.
"""
