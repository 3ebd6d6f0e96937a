"""Makes TLS contexts from the options ``tls.ca``, ``tls.client_cert`` and ``tls.client_key``, whose values are paths or
PEM text."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.connectors.support.private_files import private_file

if TYPE_CHECKING:
    from collections.abc import Mapping


def tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """The context of connections that check the server's certificate.

    Raises OSError, which includes ssl.SSLError, or ValueError if a certificate or key cannot be loaded.
    """
    ca = options.get("tls.ca")
    context = ssl.create_default_context(
        cafile=None if ca is None or _is_pem(ca) else _path(ca), cadata=ca if ca is not None and _is_pem(ca) else None
    )
    cert, key = options.get("tls.client_cert"), options.get("tls.client_key")
    if cert is not None:
        context.load_cert_chain(_file_of(cert), None if key is None else _file_of(key))
    return context


def _is_pem(text: str) -> bool:
    return text.lstrip().startswith("-----BEGIN")


def _path(text: str) -> str:
    return text.removeprefix("fs://")


def _file_of(text: str) -> Path:
    return private_file(text) if _is_pem(text) else Path(_path(text))
