"""Plans a script's statements without Spark, upstreams and jobs, for ``rw-sql check``.

Imports: every other package of ``plan``. Begin with ``script``, which checks one statement after another. The module
``assumed_catalog`` contains the objects to which later statements may refer, and ``inspector`` determines which facts
remain unchecked.
"""
