"""Contains the code that all kinds of jobs share.

- Modules for one job: ``job`` (the interface and the life cycle of a job), ``streaming_run`` (a Spark query),
  ``batch_thread`` and ``batch_mode`` (small batches without a query), ``arrow_batches`` (decodes a source's batches
  with Arrow), ``inputs``, ``rate_limit``, ``unfinished``, ``startable``.
- Modules for all jobs of a process: ``context`` (the attached warehouse), ``lease`` (the owner's lease and its
  duration), ``statuses``, ``counters`` (values that no table contains), ``wakes``, ``groups``, ``changed_jobs``,
  ``applied_epoch``, ``downtime``, ``silent_owners``, ``store_watch``.

From ``runtime``, this package may import only ``delta``, ``decoding``, ``spark`` and ``support``. Begin
with ``context``, ``job`` and ``streaming_run``.
"""
