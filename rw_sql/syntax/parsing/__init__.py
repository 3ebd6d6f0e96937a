"""Parses tokens into statements. The package contains the LALR parser and its tables, the actions of the grammar's
rules, and the messages of syntax errors. The module ``joined_tokens`` combines the tokens of a query or an expression
into one token.

Imports: ``assets``, ``sql_reader``, ``lexing``, ``statements``. Begin with ``script`` (the entry point) and ``parser``.
The grammar itself is in ``grammar/``.
"""
