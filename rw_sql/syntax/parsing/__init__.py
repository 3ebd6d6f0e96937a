"""Parses tokens into statements. The package contains the LALR parser and its tables, the actions of the grammar's
rules, and the messages of syntax errors. The module ``joined_tokens`` combines the tokens of a query or an expression
into one token.

From ``syntax``, this package imports ``sql_reader``, ``lexing`` and ``statements``. Begin with ``script`` (the entry
point) and ``parser``. The grammar itself is in ``grammar/``.
"""
