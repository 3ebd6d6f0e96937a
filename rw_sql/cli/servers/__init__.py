"""``rw-sql dev``: a Kafka broker and a schema registry for experiments and tests, on this machine.

Imports: ``runtime/support``, ``interface``, ``terminal``. Begin with ``command``; ``local_server`` starts and stops the
server processes of ``kafka_broker`` and ``schema_registry``.
"""
