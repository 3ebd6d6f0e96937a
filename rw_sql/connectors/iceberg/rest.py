"""A client of a REST catalog. The client's requests have a time limit, and follow no redirects to other servers. The
requests of pyiceberg's own class have no time limit, and follow such redirects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.rest import RestCatalog
from requests.adapters import HTTPAdapter

from rw_sql.connectors.redirects import keep_at_origin

if TYPE_CHECKING:
    from pyiceberg.catalog.rest.auth import AuthManager
    from requests import Session

ANSWER_SECONDS = 60.0
"""The maximum time, in seconds, to wait for a connection. The same limit applies to each wait for the next bytes of a
response."""


class _Limited(HTTPAdapter):
    """Sets a time limit for requests that have none."""

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = ANSWER_SECONDS
        return super().send(request, *args, **kwargs)


class PatientRestCatalog(RestCatalog):
    """See pyiceberg's ``RestCatalog``."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        for prefix, adapter in tuple(session.adapters.items()):
            if type(adapter) is HTTPAdapter:
                session.mount(prefix, _Limited())
        return session

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        # This method sends the first request of the session.
        return super()._create_legacy_oauth2_auth_manager(keep_at_origin(session))
