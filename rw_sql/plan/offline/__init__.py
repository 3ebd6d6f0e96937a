"""Plans a script's statements without Spark, upstreams and jobs: what ``rw-sql check`` finds.

Imports: every other room of ``plan``. Imported by: ``cli``.
Begin with ``script`` (one statement after the other); ``inspector`` says what stays unchecked.
"""
