"""Writes reports of commands in output formats for other programs: JSON, annotations, SARIF, JUnit.

Imports: ``errors``, ``plan``. Begin with ``check_reports``.
"""
