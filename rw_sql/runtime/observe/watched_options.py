"""Keeps the values of the secrets that the watcher uses to check the upstreams of sources at rest, and detects changes
of these values. The value of a secret may change outside rw_sql, in a file or a vault."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.model.options import SecretReference, secrets_in
from rw_sql.runtime.support.background import run_in_background

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from concurrent.futures import Future

    from rw_sql.model.options import PlannedOptions
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

CHECK_SECONDS = 10.0
"""The minimum interval between two checks of secrets, in seconds. A check may be a request to a vault."""


class WatchedOptions:
    """Maps the job of each source at rest to the values of the secrets that the watcher uses for this source.

    If the upstream no longer accepts the password of a running reader, the reader fails, and its next start reads the
    new password. A source at rest has no running reader. Therefore, if the upstream of the source does not respond,
    :meth:`check` compares the stored values of the secrets with their present values. ``changed`` is called on another
    thread with the jobs whose values have changed. Thread-safe, except for :meth:`check`.
    """

    def __init__(self, context: Context, changed: Callable[[Collection[str]], None]) -> None:
        self._context = context
        self._changed = changed
        self._known: dict[str, tuple[Mapping[str, SecretReference], Mapping[str, str]]] = {}
        self._check_at = 0.0
        self._checking: Future[None] | None = None

    def keep(self, job: str, planned: PlannedOptions, resolved: Mapping[str, str]) -> None:
        """Keeps the values of the secrets in the options of a job."""
        secrets = secrets_in(planned)
        if secrets:
            self._known[job] = secrets, {key: resolved[key] for key in secrets}

    def forget(self, job: str) -> None:
        """Forgets the values of a job."""
        self._known.pop(job, None)

    def check(self, jobs: Collection[str]) -> None:
        """Starts a check of the secrets of jobs whose upstream does not respond, unless a check is running or was
        started less than CHECK_SECONDS ago."""
        now = time.monotonic()
        found = [job for job in jobs if job in self._known]
        if not found or now < self._check_at or (self._checking is not None and not self._checking.done()):
            return
        self._check_at = now + CHECK_SECONDS
        self._checking = run_in_background(partial(self._check, found), "secrets")

    def _check(self, jobs: Collection[str]) -> None:
        # Each secret is read only once, because a thousand sources may use the same secret.
        values: dict[SecretReference, str | None] = {}
        changed = []
        for job in jobs:
            secrets, known = self._known.get(job, ({}, {}))
            for reference in secrets.values():
                if reference not in values:
                    values[reference] = self._value(reference)
            if any(values[reference] not in (None, known[key]) for key, reference in secrets.items()):
                changed.append(job)
        if changed:
            self._changed(changed)

    def _value(self, reference: SecretReference) -> str | None:
        try:
            return self._context.resolve((("", reference),), self._context.metastore.snapshot())[""]
        except Exception as error:
            logger.debug("secret %s cannot be read", reference.name, exc_info=error)
            return None  # The reported problem remains.
