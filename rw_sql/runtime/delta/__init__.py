"""The Delta tables of jobs: reads their Delta logs, writes batches fenced against a second writer, and manages files
and checksums.

Imports: ``spark``, ``support``. Begin with ``job_output`` (a batch's commit) and ``delta_log``.
"""
