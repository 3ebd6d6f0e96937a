"""Keys and JWTs of NATS, for servers with decentralized authentication."""

from __future__ import annotations

import base64
import json
import os
from typing import Any
from uuid import uuid4


def new_key(kind: str) -> Any:
    """A new key pair of an operator, an account or a user."""
    import nkeys

    prefix = {
        "operator": nkeys.PREFIX_BYTE_OPERATOR,
        "account": nkeys.PREFIX_BYTE_ACCOUNT,
        "user": nkeys.PREFIX_BYTE_USER,
    }
    make: Any = nkeys
    return make.from_seed(make.encode_seed(os.urandom(32), prefix[kind]))


def signed_jwt(issuer: Any, subject: str, kind: str, claims: dict[str, Any]) -> str:
    """A JWT of NATS, version 2: header, body and an Ed25519 signature of the issuer's key."""
    body = {
        "jti": uuid4().hex,
        "iat": 1_700_000_000,
        "iss": issuer.public_key.decode(),
        "sub": subject,
        "name": kind,
        "nats": {**claims, "type": kind, "version": 2},
    }
    parts = [_encoded(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body)]
    return ".".join([*parts, _encoded(issuer.sign(".".join(parts).encode()))])


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
