"""Decides what runs: the executor of statements, the owner's lease, and the reconciler that starts and stops jobs.

``inspector`` reads the facts that planning needs. ``rests`` decides which jobs rest, and wakes jobs at rest;
``resting`` is the stored state of a job at rest.

Imports: every room of ``runtime`` below it. Begin with ``executor`` (how a statement runs) and ``reconciler`` (how a
job runs).
"""
