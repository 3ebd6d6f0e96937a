"""Lowers CREATE, ALTER and DROP SECRET. Plans, operations and result rows never contain a secret's value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.connection_types import REGISTRY
from rw_sql.errors import (
    INVALID_DEFINITION,
    INVALID_PROPERTY,
    MISSING_PROPERTY,
    UNKNOWN_PROPERTY,
    SqlError,
    near_names,
)
from rw_sql.masking import contains_password
from rw_sql.metastore.records import ConnectionRecord, Operation, PutObject, SecretRecord, SinkRecord, SourceRecord
from rw_sql.model.definitions import definition_of, option_text, sink_definition
from rw_sql.model.object_lookup import find_secret, object_name, require_free_of_kind
from rw_sql.model.options import connection_options, registry_options, secrets_in, sink_options, source_options
from rw_sql.plan.checks.upstreams import no_answer, require_target_of, require_upstream_of
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.plan.statements.common import drop_plan, drop_with_dependents, look_at_sink, nothing
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import CreateSecret, SecretValue, TextValue, WordValue

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import AlterSecret, DropSecret, Option, OptionValue

BACKENDS = {
    "meta": (),
    "env": ("name",),
    "file": ("path",),
    "hashicorp_vault": ("addr", "path", "field", "auth_method", "mount", "namespace"),
}
"""The backends that can store secret values, each with the options that it accepts besides ``backend``."""

_KEYS = frozenset({"backend"}.union(*BACKENDS.values()))

_REQUIRED = {"meta": (), "env": ("name",), "file": ("path",), "hashicorp_vault": ("addr", "path", "field")}


def _backend(statement: CreateSecret) -> str:
    for option in statement.options:
        if option.key == "backend":
            backend = option_text(option.value).lower()
            if backend not in BACKENDS:
                raise SqlError(
                    INVALID_PROPERTY,
                    f"secret backend '{backend}' is not supported",
                    span=option.value.span,
                    hint="supported backends are: " + ", ".join(BACKENDS),
                )
            return backend
    raise SqlError(
        MISSING_PROPERTY,
        f"secret backend is not specified in with clause. Supported backends are: {','.join(BACKENDS)}",
        span=statement.name.span,
        hint=f"CREATE SECRET {sql_name(statement.name.key)} WITH (backend = 'meta') AS '…'",
    )


def _refuse_references(options: tuple[Option, ...]) -> None:
    """Raises SqlError INVALID_PROPERTY if an option's value is ``SECRET s``, because no backend can read its own
    options from a secret."""
    for option in options:
        if isinstance(option.value, SecretValue):
            raise SqlError(
                INVALID_PROPERTY,
                "secret references are not allowed when creating a secret",
                span=option.value_place,
                hint="the credentials of a backend must be in the environment",
            )


def names_backend_alone(statement: CreateSecret) -> bool:
    """True if a CREATE SECRET certainly contains no secret value, because it only specifies where the value is stored.

    An unknown option may contain a value, such as the token of a vault.
    """
    is_empty = statement.content is None or _is_null(statement.content)
    return is_empty and all(
        option.key in _KEYS
        and (isinstance(option.value, SecretValue) or not contains_password(option_text(option.value)))
        for option in statement.options
    )


def _is_null(content: OptionValue | None) -> bool:
    """True if the secret's content is ``NULL``, which RisingWave requires for a secret whose value is stored in the
    backend."""
    return isinstance(content, WordValue) and content.text == "null"


def _check(statement: CreateSecret, backend: str) -> None:
    keys = {option.key for option in statement.options}
    for option in statement.options:
        if option.key != "backend" and option.key not in BACKENDS[backend]:
            near = near_names(option.key, BACKENDS[backend])
            if option.key.startswith("auth_"):
                raise SqlError(
                    UNKNOWN_PROPERTY,
                    f'property "{option.key}" cannot be set here: credentials of the vault come from the environment',
                    span=option.key_place,
                    hint="set VAULT_TOKEN, or VAULT_ROLE_ID and VAULT_SECRET_ID with auth_method = 'approle'",
                )
            raise SqlError(
                UNKNOWN_PROPERTY,
                f'secret backend {backend} has no property "{option.key}"',
                span=option.key_place,
                hint=f'did you mean "{near[0]}"?'
                if near
                else f"omit {option.key}; the properties are " + (", ".join(BACKENDS[backend]) or "backend alone"),
            )
    for option in statement.options:
        is_text = not isinstance(option.value, SecretValue)
        if is_text and contains_password(option_text(option.value), is_address=option.key == "addr"):
            raise SqlError(
                INVALID_PROPERTY,
                f'property "{option.key}" must not contain a password',
                span=option.value_place,
                hint="set VAULT_TOKEN, or VAULT_ROLE_ID and VAULT_SECRET_ID with auth_method = 'approle'"
                if option.key == "addr"
                else f"write {option.key} without a password",
                hides_literals=True,
            )
    for key in _REQUIRED[backend]:
        if key not in keys:
            raise SqlError(
                MISSING_PROPERTY,
                f'missing property "{key}" of backend {backend}',
                span=statement.name.span,
                hint=f"add {key} = '…' to WITH",
            )
    content = None if _is_null(statement.content) else statement.content
    if backend == "meta" and content is None:
        raise SqlError(
            MISSING_PROPERTY,
            "a secret of backend meta needs AS 'value'",
            span=statement.name.span,
            hint="add AS '…' to the statement",
        )
    if backend != "meta" and content is not None:
        raise SqlError(
            INVALID_DEFINITION,
            f"credential must be null for {backend} backend",
            span=content.span,
            hint="write AS NULL, or omit AS: the value is read from the backend",
        )


def lower_create_secret(statement: CreateSecret, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers CREATE SECRET. If the backend is ``meta``, the value is encrypted. For the other backends, rw_sql must be
    able to read the value."""
    name = object_name(statement.name)
    if statement.if_not_exists and snapshot.find("secret", name):
        return nothing(statement, name, f'secret "{name}" already exists')
    require_free_of_kind(snapshot, "secret", statement.name)
    _refuse_references(statement.options)
    backend = _backend(statement)
    _check(statement, backend)
    record = SecretRecord(
        id=snapshot.next_id,
        name=name,
        definition=_public(statement),
        backend=backend,
        sealed=_seal(inspector, name, statement.content) if backend == "meta" else None,
    )
    if backend != "meta":
        inspector.secrets.require_readable(record)
    return _put(statement, snapshot, record, "CREATE SECRET", "CREATED", f"backend {backend}")


def _seal(inspector: Inspector, name: str, content: object, *, is_new_key: bool = False) -> str:
    if not isinstance(content, TextValue):
        raise SqlError(INVALID_PROPERTY, "secret value should be quoted by '", hint="write the value in quotes: AS '…'")
    return inspector.secrets.seal(name, content.text, is_new_key=is_new_key)


def _public(statement: CreateSecret) -> str:
    """A secret's definition without the secret's value."""
    return render(replace(statement, content=None, if_not_exists=False))


def _put(
    statement: CreateSecret | AlterSecret, snapshot: Snapshot, record: SecretRecord, kind: str, word: str, detail: str
) -> Plan:
    change = PutObject(record=record)
    users = snapshot.dependents_of(record.id)
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, (change,)),
        operation=Operation(
            kind=kind,
            statement=record.definition if isinstance(statement, CreateSecret) else _altering(statement, record.name),
            objects=(record.name, *(user.name for user in users)),
            changes=(change,),
        ),
        changes=(ResultRow(object=record.name, change=word, detail=detail),),
        affected=(record.id,),
    )


def _altering(statement: AlterSecret, name: str) -> str:
    """Returns the text of the ALTER SECRET statement with ``…`` in place of the value."""
    options = " WITH (new_key = true)" if _is_new_key(statement) else ""
    return f"ALTER SECRET {sql_name(name)}{options} AS '…'"


def lower_alter_secret(statement: AlterSecret, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers ALTER SECRET. Before the commit, every source, sink and schema registry that uses the secret is validated
    with the new value.

    These sources and sinks restart after the commit. If the statement has ``new_key = true``, the key need not decrypt
    the catalog's secrets. In this case, the options of an object are not validated if they contain another secret that
    is unreadable.
    """
    secret = find_secret(snapshot, statement.name)
    is_new_key = _is_new_key(statement)
    if secret.backend != "meta" or (statement.options and not is_new_key):
        raise SqlError(
            INVALID_DEFINITION,
            f'the value of secret "{secret.name}" is stored in backend {secret.backend}, not in rw_sql'
            if secret.backend != "meta"
            else "the backend of a secret cannot change",
            span=statement.name.span,
            hint="change the value in the backend, then pause and resume the sources and sinks that use it"
            if secret.backend != "meta"
            else "omit WITH: ALTER SECRET … AS '…'",
        )
    sealed = _seal(inspector, secret.name, statement.content, is_new_key=is_new_key)
    record = replace(secret, sealed=sealed)
    changed = after(snapshot, (PutObject(record=record),))
    others = _unreadable(snapshot, inspector, secret) if is_new_key else frozenset()
    users: list[SourceRecord | SinkRecord] = []
    registries: dict[PlannedOptions, tuple[str, str]] = {}
    for user in snapshot.dependents_of(secret.id):
        if isinstance(user, SourceRecord):
            options = source_options(changed, user)
            if _ids(options).isdisjoint(others):
                upstream = inspector.upstreams.look(user.connector, options, (record,))
                require_upstream_of(user, upstream, statement.name.span)
            users.append(user)
            registries.setdefault(registry_options(changed, definition_of(user)), ("SOURCE", user.name))
        elif isinstance(user, ConnectionRecord) and user.connector == REGISTRY:
            registries.setdefault(connection_options(changed, user), ("CONNECTION", user.name))
        elif isinstance(user, SinkRecord) and _has(sink_options(changed, user), secret):
            if _ids(sink_options(changed, user)).isdisjoint(others):
                target = look_at_sink(changed, inspector, user, (record,))
                require_target_of(user, target, statement.name.span)
            users.append(user)
            planned = registry_options(changed, sink_definition(user.definition))
            registries.setdefault(planned, ("SINK", user.name))
    for planned, (kind, name) in registries.items():
        if not _has(planned, secret) or _ids(planned) & others:
            continue
        # A source reads only its own subjects; CREATE CONNECTION lists all subjects.
        is_login_enough = kind != "CONNECTION"
        error = inspector.upstreams.registry_error(planned, (record,), is_login_enough=is_login_enough)
        if error is not None:
            raise no_answer(
                f'the schema registry of {kind.lower()} "{name}"',
                error,
                statement.name.span,
                otherwise=f"SHOW CREATE {kind} {sql_name(name)}",
            )
    detail = f"used by {', '.join(user.name for user in users)}" if users else "no object uses it yet"
    return _put(statement, snapshot, record, "ALTER SECRET", "ALTERED", detail)


def _is_new_key(statement: AlterSecret) -> bool:
    """True if the statement has ``WITH (new_key = true)``, which permits a key that decrypts none of the catalog's
    secrets."""
    return [(option.key, option_text(option.value).lower()) for option in statement.options] == [("new_key", "true")]


def _has(options: PlannedOptions, secret: SecretRecord) -> bool:
    """True if the options contain the secret. This check is necessary because a sink also depends on the secrets that
    only its sources use."""
    return secret.id in _ids(options)


def _ids(options: PlannedOptions) -> frozenset[int]:
    """The ids of the secrets in the options."""
    return frozenset(reference.id for reference in secrets_in(options).values())


def _unreadable(snapshot: Snapshot, inspector: Inspector, secret: SecretRecord) -> frozenset[int]:
    """The ids of the unreadable secrets of the backend ``meta``, except ``secret``.

    While several secrets are unreadable, an object that uses more than one of them cannot be validated.
    """
    found = set()
    for other in snapshot.all("secret"):
        if other.backend == "meta" and other.id != secret.id:
            try:
                inspector.secrets.require_readable(other)
            except SqlError:
                found.add(other.id)
    return frozenset(found)


def lower_drop_secret(statement: DropSecret, snapshot: Snapshot) -> Plan:
    """Lowers DROP SECRET. The statement is refused while objects use the secret. With CASCADE, these objects are
    dropped too."""
    name = object_name(statement.name)
    if statement.if_exists and snapshot.find("secret", name) is None:
        return nothing(statement, name, f'secret "{name}" does not exist')
    secret = find_secret(snapshot, statement.name)
    changes = drop_with_dependents(snapshot, secret.id, "secret", name, statement.name.span, statement.is_cascade)
    return drop_plan(statement, snapshot, "DROP SECRET", changes)
