"""Plans a script's statements for ``rw-sql check``, without access to Spark, upstreams or jobs.

This package may import every other package of ``plan`` except ``deploy``. Begin with ``script``, which checks one
statement after another. The module ``assumed_catalog`` records the objects to which later statements may refer, and
``inspector`` records which facts remain unchecked.
"""
