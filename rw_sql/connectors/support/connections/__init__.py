"""Connections to servers: a pool that keeps connections open, and TLS contexts made from a connector's options.

Imports: the other modules of ``support``. Begin with ``connection_pool``.
"""
