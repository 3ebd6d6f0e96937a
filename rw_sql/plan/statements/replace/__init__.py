"""Lowers CREATE OR REPLACE. The package finds the statements that convert one definition into another, and plans these
statements as one operation.

This package imports the neighbouring packages whose statements change an object in place. Begin with ``least_change``.
"""
