"""Writes reports of commands in output formats for other programs: JSON, annotations, SARIF, JUnit.

This package imports ``errors`` and ``plan``. Begin with ``check_reports``.
"""
