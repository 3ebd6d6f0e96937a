"""Plans a script's statements without Spark, upstreams and jobs, for ``rw-sql check``.

Imports: every other package of ``plan``. Begin with ``script``, which checks one statement after another;
``assumed_catalog`` holds the objects to which later statements may refer; ``inspector`` determines which facts stay
unchecked.
"""
