"""A client for schema registries with Confluent's API. The client uses only Python's standard library.

A registry never assigns one id to two schemas, so each process caches the schemas that it has read. But if a registry
is deleted and created again, the new registry may assign the old ids to different schemas. A process therefore requests
a cached schema again if it was last read more than :data:`VERIFY_SECONDS` ago.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rw_sql.connectors.redirects import other_origin
from rw_sql.connectors.spec import load_spec
from rw_sql.errors import INVALID_PROPERTY
from rw_sql.masking import contains_password

if TYPE_CHECKING:
    import ssl
    import urllib.error
    import urllib.request
    from collections.abc import Mapping

    from rw_sql.errors import ErrorCode

ADDRESSES = "schema.registry"
CA_FILE = "schema.registry.ca_pem_path"
_USER, _PASSWORD = "schema.registry.username", "schema.registry.password"
_CONTENT = "application/vnd.schemaregistry.v1+json"
_CALL_SECONDS = 10.0
VERIFY_SECONDS = 10.0
"""A cached schema that was last read more than this number of seconds ago is read again before its next use."""
_VERIFY_CALL_SECONDS = 2.0
_MISSING = (40401, 40402, 40403)
"""Confluent's error codes for a missing subject, a missing version and a missing schema, in this order."""
_INCOMPATIBLE = (409, 42201)


class RegistryError(Exception):
    """Raised if the registry did not respond, or if it refused the request. A later attempt may succeed.
    ``is_forbidden`` is true if the registry accepted the login but does not permit the request."""

    is_forbidden = False


class RefusedSchemaError(RegistryError):
    """Raised if the registry refuses to register a schema. The error's message is the registry's reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference from one schema to another. ``name`` is the name that the import uses. ``subject`` and ``version``
    identify the imported schema in the registry."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema in a registry.

    ``kind`` is AVRO, PROTOBUF or JSON; ``imports`` maps the names of the schemas that this schema references, directly
    or indirectly, to their text.
    """

    id: int
    kind: str
    text: str
    version: int | None = None
    imports: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Cached:
    schema: RegisteredSchema
    read_at: float


_known: dict[tuple[str, int], _Cached] = {}
"""The schemas that this process has read. The key is the pair of the registry's addresses and the schema's id."""
_silent_since: dict[str, float] = {}
"""Maps a registry's addresses to the time of its last failure to respond to the verification of a cached schema."""
_lock = threading.Lock()


@dataclass(slots=True)
class RegistryClient:
    """Sends requests to one registry. ``options`` are the ``schema.registry…`` options, with the values of secrets.
    Thread-safe."""

    options: Mapping[str, str]
    _trust: ssl.SSLContext | None = field(default=None, init=False, repr=False)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The registry's addresses, without trailing slashes."""
        return addresses_of(self.options.get(ADDRESSES, ""))

    def schema(self, id_: int) -> RegisteredSchema | None:
        """The schema with this id; None if there is no such schema. Raises RegistryError if the schema is not cached
        and the registry cannot be read.

        If the registry does not respond, or no longer has the schema, a cached schema is returned as it is.
        """
        key = (self.options.get(ADDRESSES, ""), id_)
        with _lock:
            cached = _known.get(key)
        if cached is not None:
            return self._verified(cached, key)
        asked_at = time.monotonic()
        told = self._get(f"/schemas/ids/{id_}")
        if told is None:
            return None
        made = self._made(told, id_)
        with _lock:
            _known[key] = _Cached(made, asked_at)
        return made

    def _verified(self, cached: _Cached, key: tuple[str, int]) -> RegisteredSchema:
        """Reads a cached schema again if :data:`VERIFY_SECONDS` have passed. Returns the registry's current schema
        with this id, or the cached schema if the registry cannot be read."""
        now = time.monotonic()
        if now < max(cached.read_at, _silent_since.get(key[0], -VERIFY_SECONDS)) + VERIFY_SECONDS:
            return cached.schema
        try:
            told = self._request("GET", f"/schemas/ids/{key[1]}", None, is_quick=True)
            made = cached.schema if told is None else self._made(told, key[1])
        except RegistryError:
            _silent_since[key[0]] = time.monotonic()
            return cached.schema
        if made == cached.schema:
            made = cached.schema
        with _lock:
            _known[key] = _Cached(made, now)
        return made

    def latest(self, subject: str) -> RegisteredSchema | None:
        """A subject's newest schema; None if there is no such subject. Raises RegistryError."""
        told = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        return None if told is None else self._made(told, int(_part(told, "id")))

    def subjects(self) -> tuple[str, ...]:
        """All subjects. Raises RegistryError."""
        return tuple(self._get("/subjects") or ())

    def ids_of(self, subject: str) -> tuple[int, ...]:
        """The ids of a subject's versions, oldest first; empty if there is no such subject. Raises RegistryError."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        found = []
        for version in self._get(path) or ():
            told = self._get(f"{path}/{version}")
            if told is not None:
                found.append(int(_part(told, "id")))
        return tuple(dict.fromkeys(found))

    def register(self, subject: str, kind: str, text: str, *, is_quick: bool = False) -> int:
        """Registers a schema under a subject if it is not registered yet. Returns the schema's id. Raises
        RefusedSchemaError or RegistryError.

        If ``is_quick`` is true, makes only one attempt, with a short timeout.
        """
        body = {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind})}
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return int(_part(self._post(path, body, is_quick=is_quick), "id"))

    def incompatibility(self, subject: str, kind: str, text: str) -> str | None:
        """The reason why the registry would refuse this schema as the subject's next version; None if it would
        accept the schema. Raises RegistryError."""
        body = {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind})}
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        try:
            told = self._request("POST", path, body)
        except RefusedSchemaError as error:
            return str(error)
        if told is None or told.get("is_compatible", True):
            return None
        return "; ".join(str(line) for line in told.get("messages") or ()) or "the schemas are not compatible"

    def _made(self, told: dict[str, Any], id_: int) -> RegisteredSchema:
        imports: dict[str, str] = {}
        _part(told, "schema")
        self._import(told, imports)
        return RegisteredSchema(
            id=id_,
            kind=str(told.get("schemaType") or "AVRO").upper(),
            text=str(_part(told, "schema")),
            version=told.get("version"),
            imports=tuple(imports.items()),
        )

    def _import(self, told: dict[str, Any], imports: dict[str, str]) -> None:
        """Adds all schemas that a schema references, directly or indirectly, to ``imports``. Each schema is added
        after the schemas that it references itself."""
        for each in told.get("references") or ():
            if each["name"] in imports:
                continue
            path = f"/subjects/{quote(each['subject'], safe='')}/versions/{each['version']}"
            found = self._get(path)
            if found is None:
                raise RegistryError(f"the registry has no version {each['version']} of subject {each['subject']}")
            self._import(found, imports)
            imports[each["name"]] = str(_part(found, "schema"))

    def _get(self, path: str) -> Any:
        return self._request("GET", path, None)

    def _post(self, path: str, body: Mapping[str, object], *, is_quick: bool = False) -> Any:
        told = self._request("POST", path, body, is_quick=is_quick)
        if told is None:
            raise RegistryError(f"the registry does not know {path.partition('?')[0]}")
        return told

    def _request(self, verb: str, path: str, body: Mapping[str, object] | None, *, is_quick: bool = False) -> Any:
        """Sends a request and returns the response; None if the requested object does not exist. Raises RegistryError
        after the last attempt.

        If ``is_quick`` is true, makes only one attempt, with a short timeout.
        """
        spec = load_spec("schema_registry")

        def number(key: str) -> int:
            return int(spec.value(self.options, f"schema.registry.{key}") or 0)

        wait, tries = number("backoff.duration.ms") / 1000, 1 if is_quick else number("retries.max") + 1
        seconds = _VERIFY_CALL_SECONDS if is_quick else _CALL_SECONDS
        for at in range(tries):
            reason = ""
            for address in self.addresses:
                try:
                    return self._call(verb, address + path, body, seconds)
                except _Unanswered as error:
                    reason = f"{address}: {error}"
            if at < tries - 1:
                time.sleep(min(wait, number("max.delay.sec")))
                wait *= number("backoff.factor")
        raise RegistryError(reason or "no address is given")

    def _call(self, verb: str, url: str, body: Mapping[str, object] | None, seconds: float) -> Any:
        import urllib.error
        import urllib.request

        request = urllib.request.Request(
            url, None if body is None else json.dumps(body).encode(), {"Accept": f"{_CONTENT}, application/json"}
        )
        request.method = verb
        if body is not None:
            request.add_header("Content-Type", _CONTENT)
        if user := self.options.get(_USER):
            given = f"{user}:{self.options.get(_PASSWORD, '')}"
            request.add_header("Authorization", "Basic " + base64.b64encode(given.encode()).decode())
        try:
            with self._opener(url).open(request, timeout=seconds) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return self._refused(error)
        except (OSError, ValueError, http.client.HTTPException) as error:
            # A response that is cut off raises HTTPException.
            raise _Unanswered(_short(getattr(error, "reason", error))) from error

    def _refused(self, error: urllib.error.HTTPError) -> None:
        try:
            text = error.read(100_000).decode(errors="replace")
        except (OSError, http.client.HTTPException) as cut:
            raise _Unanswered(f"HTTP {error.code} {_short(cut)}") from error
        try:
            told = json.loads(text)
        except ValueError:
            told = {}
        code, message = (told.get("error_code"), told.get("message")) if isinstance(told, dict) else (None, None)
        said = _short(message or text or error.reason)
        if code in _MISSING:
            return
        if error.code in (401, 403):
            refused = RegistryError(f"the registry refuses the user or the password: HTTP {error.code} {said}")
            refused.is_forbidden = error.code == 403
            raise refused from error
        if error.code in _INCOMPATIBLE or code in _INCOMPATIBLE or error.code == 422:
            raise RefusedSchemaError(said) from error
        if error.code >= 500 or error.code in (408, 429):
            raise _Unanswered(f"HTTP {error.code} {said}") from error
        raise RegistryError(
            f"HTTP {error.code} {said}: check that {ADDRESSES} is the address of the registry's API"
        ) from error

    def _opener(self, url: str) -> urllib.request.OpenerDirector:
        """Returns an opener for requests to ``url``. The opener follows a redirect only if the target is on the same
        server, because no other server may receive the password. It never follows the redirect of a POST, because
        ``urllib`` would send a GET instead."""
        import urllib.request

        class Redirects(urllib.request.HTTPRedirectHandler):
            def redirect_request(
                self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
            ) -> urllib.request.Request | None:
                other = other_origin(req.full_url, newurl)
                if other is None and req.get_method() == "GET":
                    return super().redirect_request(req, fp, code, msg, headers, newurl)
                where = "another path" if other is None else other
                raise RegistryError(f"the registry redirects to {where}: check the address in {ADDRESSES}")

        return urllib.request.build_opener(Redirects, urllib.request.HTTPSHandler(context=self._context(url)))

    def _context(self, url: str) -> ssl.SSLContext | None:
        if not url.lower().startswith("https:"):
            return None
        if self._trust is None:
            import ssl

            path = self.options.get(CA_FILE, "")
            if path.strip().lower() == "ignore":
                self._trust = ssl.create_default_context()
                self._trust.check_hostname = False
                self._trust.verify_mode = ssl.CERT_NONE
            else:
                self._trust = ssl.create_default_context(cafile=path.removeprefix("file://") or None)
        return self._trust


class _Unanswered(Exception):  # noqa: N818 - tried again, and then a RegistryError
    """Raised if one attempt of a request gets no usable response."""


def addresses_of(text: str) -> tuple[str, ...]:
    """The addresses in a comma-separated list."""
    return tuple(dict.fromkeys(part.strip().rstrip("/") for part in text.split(",") if part.strip()))


def _has_login(address: str) -> bool:
    is_url = address.startswith(("http://", "https://"))
    host = address.partition("://")[2].partition("/")[0] if is_url else address
    return "@" in host or contains_password(address)


def address_fault(text: str) -> tuple[ErrorCode, str, str] | None:
    """Returns the code, message and hint of the error in a value of ``schema.registry``. Returns None if the value
    is a list of URLs without logins. The message and the hint never contain a login."""
    if any(map(_has_login, addresses_of(text))):
        message = f'property "{ADDRESSES}" must not contain a login'
        return INVALID_PROPERTY, message, f"{_USER} = '…', {_PASSWORD} = SECRET …"
    wrong = next((part for part in addresses_of(text) or ("",) if not part.startswith(("http://", "https://"))), None)
    if wrong is None:
        return None
    near = f"http://{wrong}" if wrong else "http://registry:8081"
    message = f"property \"{ADDRESSES}\" must be a list of URLs, not '{wrong}'"
    return INVALID_PROPERTY, message, f"{ADDRESSES} = '{near}'"


def _part(told: Any, name: str) -> Any:
    """Returns a member of a JSON response. Raises RegistryError if the member is missing, because the response is
    then not from a schema registry."""
    if not isinstance(told, dict) or name not in told:
        raise RegistryError(
            f'an answer of the registry has no "{name}": check that {ADDRESSES} is the address of its API'
        )
    return told[name]


def _short(said: object) -> str:
    text = " ".join(str(said).split())
    return text if len(text) <= 300 else text[:297] + "..."
