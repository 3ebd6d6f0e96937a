"""Finds users, passwords and tokens in addresses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.masking.telling import SECRET_WORDS, TELLING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.masking.lexemes import Lexeme

_PARAMETER = (
    rf"(?:[\w.-]{{0,60}}(?:{SECRET_WORDS})[\w.-]{{0,60}}|pass|sig|(?:x-amz-)?signature|sharedaccesskey)="
    r"(?P<value>(?!%?['\"]|[(\[\\<{])[^\s&;,)'\"`]++)"
)
_IN_ADDRESS = re.compile(rf"[?&;(]\s?{_PARAMETER}", re.IGNORECASE)
IN_LITERAL = re.compile(
    rf"[?&;(,\s'\"`$]{_PARAMETER}|\b(?:Bearer|Authorization['\"]?\s*[:=]\s*['\"]?\w+)\s+(?P<header>[^\s'\"`]++)",
    re.IGNORECASE,
)
"""Matches a parameter that is a password, or a header that contains one."""

_RUN_OF_SIGNS = re.compile(r"(?:[^\s'\"]|['\"](?![\s,;)]|\Z))+")
_PORT = r"\d{1,5}(?:,[\w.-]{1,99}+:\d{1,5}){0,9}+(?:/|[?;]\w[\w.]*+=)"
"""Matches the port in an address without a login, and the text after the port: other hosts, and a path or a
parameter."""

_NO_PASSWORD = rf"//|\[secret\]|{_PORT}"
_NO_LOGIN = r"(?:mailto|serviceAccount|sips?|acct|xmpp|urn|arn):|:|\d{1,2}:\d\d(?::[\d.]++)?@"
"""Matches a text that resembles a login without ``//``, but is the beginning of an address of another kind, or a time
of day."""

_EDGE = r"[=,'\"`$‘’‚“”„«»]"
_LOGIN = re.compile(
    rf"(?://(?P<login>[^\s/'\":\[]{{0,2000}}:(?!{_NO_PASSWORD})(?P<password>.+))"
    rf"|\b(?:nats|tls|wss?)://(?P<token>[^/:@]+)"
    rf"|(?:(?<={_EDGE})|(?<={_EDGE}\s))(?!{_NO_LOGIN})(?P<bare_login>[^\s/'\":\[]{{0,99}}"
    rf":(?!:|{_NO_PASSWORD}|\d{{1,5}},[^\s,@/:]*+:)(?P<bare_password>(?:(?!//).){{1,500}})))@",
    re.IGNORECASE,
)
"""Matches a user and a password, or a token, in an address. The address may have no scheme."""

_DOUBTFUL_LOGIN = re.compile(r"//(?P<login>(?=[^\s/'@:]*+:(?!\[secret\]))[^\s/'@]*+)@")
SPACED_LOGIN = re.compile(r"//(?P<login>[^\s/'\"@:]*+:(?!\[secret\])(?=(?:[^/'\"@]|'')*\s)(?:[^/'\"@]|'')*+)@")
"""Matches a user and a password in a string, if the password contains blanks."""

_HOST_WITH_PORT = re.compile(r"@(?:[\w.-]+|\[[^\]\s]*\]):\d")
_LONGEST_HOST = 260
_WITH_PATH = "jdbc:sqlite:"
"""The beginning of an address that contains the path of a file and no login."""


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """Divides a text at blanks. Returns the span of each part from the beginning of the part to the last ``@`` in the
    part."""
    return ((run.start(), text.rfind("@", *run.span()) + 1) for run in _RUN_OF_SIGNS.finditer(text))


def logins(text: str) -> Iterator[re.Match[str]]:
    """Finds the users and passwords in the addresses in a text, regardless of the quotes in the text."""
    found = (login for run in _runs(text) for login in _LOGIN.finditer(text, *run))
    return (login for login in found if not (login["bare_login"] and text.startswith("sha256:", login.end())))


def doubtful_logins(text: str) -> Iterator[re.Match[str]]:
    """Finds each text between ``//`` and ``@`` that contains a colon and no ``/``. Such a text may be a login, or it
    may consist of hosts with ports and of parameters."""
    return (login for run in _runs(text) for login in _DOUBTFUL_LOGIN.finditer(text, *run))


def is_login_in_query(login: re.Match[str], literal: Lexeme) -> bool:
    """True if a text in a query's literal not only resembles a login, but probably is a login. This is the case if a
    URL begins before the text, or if a host with a port follows the text."""
    start, end = login.span("bare_login")
    is_inside = end < literal.end
    return is_inside and (
        _HOST_WITH_PORT.search(login.string, start, min(literal.end, end + _LONGEST_HOST)) is not None
        or login.string.rfind("://", max(literal.start, start - _LONGEST_HOST), start) >= 0
    )


def contains_password(value: str, *, is_address: bool = True) -> bool:
    """True if a property's value contains a password. The password may be in the user part of an address, a parameter
    of an address, or a literal after a word that suggests a secret. If ``is_address`` is False, the value is a path, a
    pattern or a name. In such a value, an address begins only with ``scheme://``, and there are no parameters."""
    literals = (match["value"] for match in TELLING.finditer(value))
    if any(stars(literal) != literal for literal in literals):
        return True
    if not is_address:
        return any(login["token"] or value.startswith("://", login.start() - 1) for login in logins(value))
    if _IN_ADDRESS.search(value) is not None or SPACED_LOGIN.search(value) is not None:
        return True
    if value.lower().startswith(_WITH_PATH):
        return False
    quoted = f"'{value}'"
    return any(quoted[login.start() - 1] != "=" for login in logins(quoted))


def password_parameter(value: str) -> str | None:
    """The name of the first parameter of an address that is a password; None if no parameter is a password."""
    found = _IN_ADDRESS.search(value)
    return None if found is None else found[0].partition("=")[0].strip("?&;( ")


def stars(text: str) -> str:
    """Replaces each character of a text with an asterisk, except quotes, dollar signs and line breaks."""
    return re.sub(r"[^\n'\"$]", "*", text)
