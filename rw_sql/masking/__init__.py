"""Replaces secrets with asterisks, in the text of statements and in messages about statements.

Every text is split into lexemes, even if it is prose or contains typing errors. ``finding`` finds the secrets in a
text. ``refused`` finds the parts of a refused statement that an error must not show. ``addresses`` finds the logins in
addresses.

This package may import no other part of ``rw_sql``. Begin with ``finding``.
"""

from __future__ import annotations

from rw_sql.masking.addresses import contains_password, login_parts, password_parameter, without_logins
from rw_sql.masking.finding import masked, masked_around
from rw_sql.masking.messages import without_secrets_of
from rw_sql.masking.telling import SECRET_WORDS, names_server

__all__ = [
    "SECRET_WORDS",
    "contains_password",
    "login_parts",
    "masked",
    "masked_around",
    "names_server",
    "password_parameter",
    "without_logins",
    "without_secrets_of",
]
