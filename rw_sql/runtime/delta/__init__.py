"""Delta tables of jobs: reading their logs, writing batches fenced against a second writer, files, checksums.

Imports: ``spark``, ``support``. Imported by: every room above. Begin with ``job_output`` (a batch's commit) and
``delta_log``.
"""
