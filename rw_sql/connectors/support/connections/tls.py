"""Makes TLS contexts from the options ``tls.ca``, ``tls.client_cert`` and ``tls.client_key``, whose values are paths or
PEM text."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.connectors.support.private_files import private_file

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY = "tls.client_key"


def tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """Returns a TLS context that verifies the server's certificate.

    Raises OSError with the option's name if a certificate or key cannot be loaded.
    """
    ca, cert, key = (options.get(f"tls.{name}") for name in ("ca", "client_cert", "client_key"))
    try:
        context = ssl.create_default_context(
            cafile=None if ca is None or _is_pem(ca) else _path(ca),
            cadata=ca if ca is not None and _is_pem(ca) else None,
        )
    except (OSError, ValueError) as error:
        raise OSError(_not_loaded({"tls.ca": ca}, error)) from error
    if cert is not None:
        try:
            context.load_cert_chain(_file_of(cert), None if key is None else _file_of(key))
        except (OSError, ValueError) as error:
            raise OSError(_not_loaded({"tls.client_cert": cert, _KEY: key}, error)) from error
    return context


def _not_loaded(given: Mapping[str, str | None], error: Exception) -> str:
    """Returns the error message if a certificate or key in the options ``given`` cannot be loaded. The message
    contains no PEM text and no key."""
    named = [
        f'"{key}"' + ("" if _is_pem(text) or "\n" in text or key == _KEY else f" ({_path(text)})")
        for key, text in given.items()
        if text is not None
    ]
    properties = "property" if len(named) == 1 else "properties"
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"{properties} {' and '.join(named)} cannot be loaded: {why}"


def _is_pem(text: str) -> bool:
    return text.lstrip().startswith("-----BEGIN")


def _path(text: str) -> str:
    return text.removeprefix("fs://")


def _file_of(text: str) -> Path:
    return private_file(text) if _is_pem(text) else Path(_path(text))
