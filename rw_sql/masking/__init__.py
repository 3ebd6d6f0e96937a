"""Replaces the secrets in the text of statements, and in messages about statements, with asterisks.

Every text is split into lexemes, even prose and statements with typing errors. ``finding`` finds the secrets of a text.
``refused`` finds the parts of a refused statement that an error must not show. ``addresses`` finds the logins in
addresses.

Imports: nothing of ``rw_sql``. Begin with ``finding``.
"""

from __future__ import annotations

from rw_sql.masking.addresses import contains_password, password_parameter
from rw_sql.masking.finding import masked, masked_around
from rw_sql.masking.messages import without_secrets_of
from rw_sql.masking.telling import SECRET_WORDS, names_server

__all__ = [
    "SECRET_WORDS",
    "contains_password",
    "masked",
    "masked_around",
    "names_server",
    "password_parameter",
    "without_secrets_of",
]
