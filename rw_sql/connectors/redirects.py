"""Prevents redirects between HTTP servers. A request with credentials must not follow a redirect to another server.

``urllib`` sends all headers of a request to the server to which a redirect leads. ``requests`` omits only the header
``Authorization``: the new server receives the body and all other headers, such as Vault's token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from requests import PreparedRequest, Response, Session

_PORTS = {"http": 80, "https": 443}


def other_origin(url: str, target: str) -> str | None:
    """The scheme, host and port of ``target``; None if ``url`` has the same ones."""
    (scheme, host, port), origin = _origin(target), _origin(url)
    if (scheme, host, port) == origin:
        return None
    return f"{scheme}://{f'[{host}]' if ':' in host else host}" + ("" if port == _PORTS.get(scheme) else f":{port}")


def keep_at_origin(session: Session) -> Session:
    """Makes each request of a session fail if the server redirects it to another server."""
    import requests

    rebuild = session.rebuild_auth

    def rebuild_auth(prepared_request: PreparedRequest, response: Response) -> None:
        if (other := other_origin(str(response.request.url), str(prepared_request.url))) is not None:
            raise requests.RequestException(f"the server redirects to {other}: use that address")
        rebuild(prepared_request, response)

    session.rebuild_auth = rebuild_auth  # type: ignore[method-assign]
    return session


def _origin(url: str) -> tuple[str, str, Any]:
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, parts.hostname or "", parts.port or _PORTS.get(scheme)
