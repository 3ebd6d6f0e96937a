"""The domain model. It interprets the catalog's records, independently of statements and running jobs.

The package covers definitions, options, names, parameters, the inputs of views, the jobs of a catalog, and offset
ranges. All results are computed from records. The package reads no table, no upstream and no clock.

Imports: ``metastore``, ``connectors``, ``syntax``. Begin with ``definitions`` (a record's statement and its parts) and
``job_specs`` (the jobs of a catalog).
"""
