"""Decides what runs: the executor of statements, the owner's lease, and the reconciler that starts and stops jobs.

``inspector`` reads the facts that planning needs. ``rest_conditions`` says which jobs may rest and what ends a rest;
``rest_scheduler`` puts jobs to rest and wakes them. ``retries`` has the delays before a failed job starts again.

Imports: every room of ``runtime`` below it. Begin with ``executor`` (how a statement runs) and ``reconciler`` (how a
job runs).
"""
