"""Parses tokens into statements. Contains the LALR parser and its tables, the actions of the grammar's rules, and
syntax errors. ``joined_tokens`` combines the tokens of a query or an expression into one token.

Imports: ``assets``, ``sql_reader``, ``lexing``, ``statements``. Begin with ``script`` (the entry) and ``parser``; the
grammar itself is in ``grammar/``.
"""
