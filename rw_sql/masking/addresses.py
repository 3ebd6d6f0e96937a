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
"""Matches a parameter of an address that is a password, or an HTTP header that contains a credential."""

_RUN_OF_SIGNS = re.compile(r"(?:[^\s'\"]|['\"](?![\s,;)]|\Z))+")
_PORT = r"\d{1,5}(?:,[\w.-]{1,99}+:\d{1,5}){0,9}+(?:/|[?;]\w[\w.]*+=)"
"""Matches the port in an address without a login, and the text that follows the port: further hosts, and the
beginning of a path or a parameter."""

_NO_PASSWORD = rf"//|\[secret\]|{_PORT}"
_NO_LOGIN = r"(?:mailto|serviceAccount|sips?|acct|xmpp|urn|arn):|:|\d{1,2}:\d\d(?::[\d.]++)?@"
"""Matches a text that resembles a login without ``//`` but is not one: the scheme of an address such as ``mailto:``,
or a time of day."""

_EDGE = r"[=,'\"`$‘’‚“”„«»]"
_LOGIN = re.compile(
    rf"(?://(?P<login>[^\s/'\":\[]{{0,2000}}:(?!{_NO_PASSWORD})(?P<password>.+))"
    rf"|(?:\b(?:nats|tls|wss?)://|(?:(?<=\bhttps:)|(?<=\bhttp:))//)(?P<token>[^/:@?#]+)"
    rf"|(?:(?<={_EDGE})|(?<={_EDGE}\s))(?!{_NO_LOGIN})(?P<bare_login>[^\s/'\":\[]{{0,99}}"
    rf":(?!:|{_NO_PASSWORD}|\d{{1,5}},[^\s,@/:]*+:)(?P<bare_password>(?:(?!//).){{1,500}})))@",
    re.IGNORECASE,
)
"""Matches a login in an address: a user and a password, or a token. The address may lack a scheme."""

_DOUBTFUL_LOGIN = re.compile(r"//(?P<login>(?=[^\s/'@:]*+:(?!\[secret\]))[^\s/'@]*+)@")
SPACED_LOGIN = re.compile(r"//(?P<login>[^\s/'\"@:]*+:(?!\[secret\])(?=(?:[^/'\"@]|'')*\s)(?:[^/'\"@]|'')*+)@")
"""Matches a user and a password in a string literal. The password contains white space."""

_HOST_WITH_PORT = re.compile(r"@(?:[\w.-]+|\[[^\]\s]*\]):\d")
_LONGEST_HOST = 260
_WITH_PATH = "jdbc:sqlite:"
"""The beginning of an address that consists of a file's path and cannot contain a login."""


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """Divides a text at white space and closing quotes. Returns a span for each part, from the part's beginning to
    its last ``@``."""
    return ((run.start(), text.rfind("@", *run.span()) + 1) for run in _RUN_OF_SIGNS.finditer(text))


def logins(text: str) -> Iterator[re.Match[str]]:
    """Finds the logins in all addresses of a text, whether or not the addresses are in quotes."""
    found = (login for run in _runs(text) for login in _LOGIN.finditer(text, *run))
    return (login for login in found if not (login["bare_login"] and text.startswith("sha256:", login.end())))


def doubtful_logins(text: str) -> Iterator[re.Match[str]]:
    """Finds each text between ``//`` and ``@`` that contains a colon and no ``/``. This text may be a login; it may
    also be a list of hosts and ports with parameters."""
    return (login for run in _runs(text) for login in _DOUBTFUL_LOGIN.finditer(text, *run))


def without_logins(text: str, shown: str = "[secret]") -> str:
    """Replaces the login in each address of a message, such as ``user:password`` or a token before ``@``, with
    ``shown``. An address is recognized by its ``//``."""
    found = [login.span("login" if login["login"] else "token") for login in logins(text) if not login["bare_login"]]
    found += [login.span("login") for login in doubtful_logins(text)]
    pieces, at = [], 0
    for start, end in sorted(found):
        if start >= at:
            pieces += [text[at:start], shown]
        at = max(at, end)
    return "".join([*pieces, text[at:]])


def login_parts(value: str) -> set[str]:
    """The logins in the addresses of a value, and the passwords of these logins."""
    return {
        login[name] for login in logins(value) for name in ("login", "password", "token") if login[name] is not None
    }


def is_login_in_query(login: re.Match[str], literal: Lexeme) -> bool:
    """True if a text in a query's literal probably is a login, and does not just resemble one. This is the case if
    ``://`` precedes the text in the literal, or if a host with a port follows it."""
    start, end = login.span("bare_login")
    is_inside = end < literal.end
    return is_inside and (
        _HOST_WITH_PORT.search(login.string, start, min(literal.end, end + _LONGEST_HOST)) is not None
        or login.string.rfind("://", max(literal.start, start - _LONGEST_HOST), start) >= 0
    )


def contains_password(value: str, *, is_address: bool = True) -> bool:
    """True if a property's value contains a password. The password may be in the user part of an address, a
    parameter of an address, or a literal after a word that suggests a secret. If ``is_address`` is False, the value
    is a path, a pattern or a name. In a path, pattern or name, only a text after ``://`` counts as an address, and
    parameters are not searched."""
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
    """The name of the first parameter in an address whose value is a password; None if there is no such parameter."""
    found = _IN_ADDRESS.search(value)
    return None if found is None else found[0].partition("=")[0].strip("?&;( ")


def stars(text: str) -> str:
    """Replaces each character of a text with an asterisk, except quotes, dollar signs and line breaks."""
    return re.sub(r"[^\n'\"$]", "*", text)
