"""Connections to servers: a pool that keeps them open, and TLS contexts made from a connector's options.

Imports: the other modules of ``support``. Begin with ``connection_pool``.
"""
