"""Plans a script's statements without Spark, upstreams and jobs, for ``rw-sql check``.

Imports: every other room of ``plan``. Imported by: ``cli``. Begin with ``script`` (one statement after the other);
``inspector`` defines which facts stay unchecked.
"""
