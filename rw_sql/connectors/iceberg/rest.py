"""A client of a REST catalog. In contrast to pyiceberg's own class, the client's requests have a time limit, and fail
if a server redirects them to another server."""

from __future__ import annotations

import math
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.rest import RestCatalog
from requests.adapters import HTTPAdapter

from rw_sql.connectors.redirects import keep_at_origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.catalog.rest.auth import AuthManager
    from requests import Session

CONNECT_SECONDS = 10.0
"""The maximum wait in seconds for a connection to each of the server's IP addresses."""

ANSWER_SECONDS = 60.0
"""The maximum wait in seconds for the next bytes of a response."""

_LIMIT = ContextVar("limit", default=math.inf)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """A context manager that limits how long the requests of this thread wait. Each request waits at most ``seconds``
    seconds for a connection, and at most ``seconds`` seconds for the next bytes of a response. The limits
    CONNECT_SECONDS and ANSWER_SECONDS still apply if they are shorter."""
    before = _LIMIT.set(seconds)
    try:
        yield
    finally:
        _LIMIT.reset(before)


class _Limited(HTTPAdapter):
    """An HTTP adapter that sets a time limit for each request whose caller sets none."""

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("timeout") is None:
            limit = _LIMIT.get()
            kwargs["timeout"] = (min(CONNECT_SECONDS, limit), min(ANSWER_SECONDS, limit))
        return super().send(request, *args, **kwargs)


def _limit(session: Session) -> Session:
    for prefix, adapter in tuple(session.adapters.items()):
        if type(adapter) is HTTPAdapter:
            session.mount(prefix, _Limited())
    return session


class PatientRestCatalog(RestCatalog):
    """A ``RestCatalog`` whose requests have a time limit, and fail if a server redirects them to another server."""

    def _create_session(self) -> Session:
        return _limit(super()._create_session())

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        # If the catalog has credentials, this method sends the first request of the session.
        return super()._create_legacy_oauth2_auth_manager(keep_at_origin(_limit(session)))
