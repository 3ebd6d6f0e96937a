"""Removes secrets from the messages of other systems and their clients. rw_sql can then quote these messages in its
own errors."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from rw_sql.connectors.support.private_files import SecretText
from rw_sql.masking import SECRET_WORDS, contains_password, login_parts, without_logins

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

HIDDEN = "[secret]"
"""The text that replaces a secret in a message."""

_HEADER = re.compile(r"(\b(?:invalid|illegal)\b[^\n]*?\bheader value\b).*", re.IGNORECASE)
"""Matches a client's message that it refuses an HTTP header. The message contains the header's value, which is often
a credential."""

_SHORTEST_KNOWN = 8
"""The minimum length of the secrets that :func:`remember_secrets` remembers. A shorter secret may be an ordinary
word."""

_SHORTEST_WORD = 4
"""The minimum length of the secrets that are replaced wherever they appear as a word in a message. For shorter
secrets, see :func:`without_secrets`."""

_BEFORE_SECRET = rf"(?i:{SECRET_WORDS})\w*['\"]?\s*[=:]\s*b?['\"]?|//[^\s/:@]*:(?=[^\s/@]+@)"
"""Matches the text that precedes a secret in a message: the name of a property, or the user in an address."""

_USERS_KEY = re.compile(
    r"(?:^|(?<!secret)[._])(?:user|username|access|access[._]key|access_key_id|account_name|client_id)$"
)
"""Matches the names of properties whose values are not secret, such as a user's name. This applies even if a
statement takes the value from a SECRET object."""

_BORDER = r"(?:(?<!\w)|(?<=\\[nrt0])|(?<=\\x[0-9a-f]{2})|(?<=\\u[0-9a-f]{4})|(?<=%[0-9A-Fa-f]{2}))"
"""Matches the position before a word: the beginning of the message, or the position after a character that is not
part of a word, or after an escape sequence such as ``\\n``."""

_known: set[str] = set()
_lock = threading.Lock()


def without_password(message: object, options: Mapping[str, str]) -> str:
    """Returns a message from a database or its client as one line. ``[secret]`` replaces the secrets in ``options``
    and the value of the option ``password``."""
    return " ".join(without_secrets(str(message), options, ("password",)).split())


def without_secrets(message: str, options: Mapping[str, str], keys: Collection[str] = ()) -> str:
    """In a message, replaces two kinds of values of ``options`` with ``[secret]``: values that are marked as secret
    (:class:`SecretText`), and values whose keys are in ``keys``.

    A value is found with and without white space at its ends. It is also found as a Python literal of a string or of
    bytes, and with the percent-encoding of URLs. Two kinds of values are replaced only after a property's name or in
    the user part of an address: values of fewer than four characters, and values that are also a word in an option that
    is not secret, such as the host. A value of fewer than four characters that is no such word is also replaced in
    quotes. ``[secret]`` also replaces the login in every address of the message.
    """
    secrets = {value for key, value in options.items() if isinstance(value, SecretText) or key in keys}
    # The value of a secret may be an address with a login, of which a message quotes only a part.
    secrets |= {part for value in secrets for part in login_parts(value)}
    shown = (value for key, value in options.items() if not (isinstance(value, SecretText) or key in keys))
    return _without(message, secrets, _words(shown))


def remember_secrets(options: Mapping[str, str], names: Collection[str] = ()) -> None:
    """Remembers the secrets in ``options``. From then on, :func:`without_known_secrets` replaces them in the messages
    of this process.

    A secret of fewer than eight characters is not remembered, because it may be an ordinary word. The following secrets
    are not remembered either: a user's name, a secret that is also a word in an option that is not secret, a secret
    that is in ``names``, and the value of an option whose key is empty.
    """
    secrets: set[str] = {
        value for key, value in options.items() if key and isinstance(value, SecretText) and not _USERS_KEY.search(key)
    }
    if not secrets:
        return
    secrets |= {part for value in secrets for part in login_parts(value)}
    shown = {*names, *_words(value for value in options.values() if not isinstance(value, SecretText))}
    with _lock:
        _known.update(
            value for value in secrets if len(value.strip()) >= _SHORTEST_KNOWN and value.strip() not in shown
        )


def without_known_secrets(message: str) -> str:
    """In a message, replaces all secrets that this process remembers with ``[secret]``.

    A secret inside a longer word is not replaced, because a part of an ordinary word may equal a secret by chance.
    """
    with _lock:
        known = tuple(_known)
    return _without(message, known)


def _words(values: Iterable[str]) -> set[str]:
    """Splits values that are not secret into words, such as the parts of an address. Values that contain a password
    are left out."""
    shown = [value for value in values if not contains_password(value)]
    return {*shown, *(word for value in shown for word in re.findall(r"\w+", value))}


def _without(message: str, secrets: Iterable[str], shown: Collection[str] = ()) -> str:
    message = _HEADER.sub(r"\1: a credential contains a line break, or a blank at its beginning", message)
    patterns = {form: pattern for secret in secrets for form, pattern in _patterns(secret, shown).items()}
    for form in sorted(patterns, key=len, reverse=True):
        if form in message:
            message = re.sub(patterns[form], rf"\1{HIDDEN}", message)
    return without_logins(message, HIDDEN)


def _patterns(secret: str, shown: Collection[str]) -> dict[str, str]:
    """The forms in which a secret can appear in messages, each with the pattern that finds it."""
    patterns = {}
    for text in (secret, secret.strip()):
        for form in (repr(text)[1:-1], repr(text.encode())[2:-1], quote(text, safe=""), quote_plus(text)):
            patterns[form] = f"(){re.escape(form)}"
        is_word = len(text) >= _SHORTEST_WORD and text not in shown
        before = f"(){_BORDER}" if text[:1].isalnum() else "()"
        if not is_word:
            quoted = rf"|(?<!\w)b?['\"`](?={re.escape(text)}['\"`])" if text not in shown else ""
            before = f"({_BEFORE_SECRET}{quoted})"
        patterns[text] = before + re.escape(text) + (r"(?!\w)" if text[-1:].isalnum() else "")
    return {form: pattern for form, pattern in patterns.items() if form}
