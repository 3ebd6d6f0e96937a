"""RisingWave's SQL in queries → Spark's, and which names a statement of Spark's own would change.


Imports: ``query``, ``parsing``, ``routing``, ``lexing``. Imported by: ``runtime``, ``session``.
Begin with ``to_spark``.
"""
