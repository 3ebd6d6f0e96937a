"""Prepares the messages of other systems and their clients for error messages: without the secrets in them."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from rw_sql.connectors.support.private_files import SecretText

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

HIDDEN = "[secret]"
"""Replaces a secret in a message."""

_HEADER = re.compile(r"(\b(?:invalid|illegal)\b[^\n]*?\bheader value\b).*", re.IGNORECASE)
"""Clients refuse a header with a message that contains the header's value, which is often a credential."""

_SHORTEST_KNOWN = 8
"""The minimum length of the secrets that are replaced in messages of any origin. A shorter secret may be an ordinary
word."""

_known: set[str] = set()
_lock = threading.Lock()


def without_password(message: object, options: Mapping[str, str]) -> str:
    """A message of a database or its client, as a single line in which ``[secret]`` replaces the secrets in
    ``options`` and the value of the option ``password``."""
    return " ".join(without_secrets(str(message), options, ("password",)).split())


def without_secrets(message: str, options: Mapping[str, str], keys: Collection[str] = ()) -> str:
    """A message in which ``[secret]`` replaces the values of ``options`` that are secrets or belong to ``keys``.

    The values are found with and without white space at their ends, and also as Python writes strings and bytes, and
    as URLs contain them.
    """
    return _without(message, (value for key, value in options.items() if isinstance(value, SecretText) or key in keys))


def remember_secret(value: str) -> SecretText:
    """Marks a value as secret, so that :func:`without_known_secrets` replaces it in the messages of this process."""
    if len(value.strip()) >= _SHORTEST_KNOWN:
        with _lock:
            _known.add(value)
    return SecretText(value)


def without_known_secrets(message: str) -> str:
    """A message in which ``[secret]`` replaces all secrets that this process has read for options.

    Secrets of fewer than eight characters remain, and so does a secret inside a longer word, because a word of the
    message may equal a secret by chance.
    """
    with _lock:
        known = tuple(_known)
    return _without(message, known, whole=True)


def _without(message: str, secrets: Iterable[str], *, whole: bool = False) -> str:
    message = _HEADER.sub(r"\1: a credential contains a line break, or a blank at its beginning", message)
    forms = {form for secret in secrets for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        if form in message:
            pattern = rf"(?<!\w){re.escape(form)}(?!\w)" if whole else re.escape(form)
            message = re.sub(pattern, HIDDEN, message)
    return message


def _forms(secret: str) -> set[str]:
    found = set()
    for text in (secret, secret.strip()):
        found |= {text, repr(text)[1:-1], repr(text.encode())[2:-1], quote(text, safe=""), quote_plus(text)}
    return found - {""}
