"""CREATE OR REPLACE: the statements that turn one definition into another, and their plan as one operation.

Imports: the rooms of statements that change an object in place. Imported by: ``lower``, ``plan/deploy``.
Begin with ``least_change``.
"""
