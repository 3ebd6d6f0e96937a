"""Implements ``rw-sql dev``, which runs a Kafka broker and a schema registry on this machine for experiments and tests.

This package imports mainly ``runtime/support``, ``interface`` and ``terminal``. Begin with ``command``. The module
``local_server`` starts and stops the server processes of ``kafka_broker`` and ``schema_registry``.
"""
