"""CREATE OR REPLACE: which statements lead from one definition to another, and those as one operation.

Imports: the rooms of statements that change an object in place. Imported by: ``lower``, ``plan/deploy``.
Begin with ``least_change``.
"""
