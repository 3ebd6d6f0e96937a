"""Controls statements and jobs. The package contains the executor, which runs statements. It also contains the owner of
the warehouse, and the owner's reconciler, which starts and stops jobs. (The owner's lease is in ``jobs/lease.py``.)

``inspector`` reads the facts that planning needs. A job at rest is stopped because it has no new input, but it still
counts as running. ``rest_conditions`` determines which jobs may rest and whether a job has been quiet for long enough,
and defines the state of a job at rest. ``rest_scheduler`` selects the jobs to rest, and wakes jobs at rest. ``retries``
determines the delay before a failed or stalled job starts again.

This package may import every package of ``runtime`` below ``control``. Begin with the modules ``executor`` (how a
statement runs) and ``reconciler`` (how jobs are started and stopped).
"""
