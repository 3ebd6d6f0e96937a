"""The domain model interprets the catalog's records. It depends neither on the statement that is being planned nor on
running jobs.

The package covers definitions, options, names, parameters, the inputs of views, the jobs of a catalog, and offset
ranges. It computes all results from records and arguments, and reads no table, no upstream and no clock.

This package may import only ``metastore``, ``connectors``, ``syntax`` and the packages below these, such as ``errors``.
Begin with ``definitions`` (a record's statement and the parts of the statement) and ``job_specs`` (the jobs of a
catalog).
"""
