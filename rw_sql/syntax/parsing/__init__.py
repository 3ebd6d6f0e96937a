"""Parses tokens into statements. Contains the LALR parser and its tables, the actions of the grammar's rules, and
syntax errors.

Imports: ``assets``, ``sql_reader``, ``lexing``, ``statements``. Begin with ``script`` (the entry) and ``parser``; the
grammar itself is in ``grammar/``.
"""
