"""CREATE OR REPLACE: finds the statements that convert one definition to another, and plans them as one operation.

Imports: the rooms of statements that change an object in place. Imported by: ``lower``, ``plan/deploy``.
Begin with ``least_change``.
"""
