"""Shared by all jobs: the attached warehouse (``context``), the lease, inputs, rate limits, paths.

Imports: ``delta``, ``decoding``, ``spark``, ``support``. Begin with ``context``, ``job`` and ``streaming_run``.
"""
