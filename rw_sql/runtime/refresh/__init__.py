"""Contains the job of REFRESH TABLE. The job loads the current rows of the upstream, compares them with the table's
rows, and commits the differences.

Imports: ``upkeep`` and the packages below. Begin with ``job``.
"""
