"""The domain model: what the catalog's records mean, apart from any statement and any running job.

Definitions, options, names, parameters, what a view reads, what jobs there must be, which offsets are left.
All of it is computed from records; nothing here reads a table, an upstream or a clock.

Imports: ``metastore``, ``connectors``, ``syntax``. Imported by: ``plan``, ``runtime``, ``cli``.
Begin with ``definitions`` (a record's statement and its parts) and ``job_specs`` (the jobs of a catalog).
"""
