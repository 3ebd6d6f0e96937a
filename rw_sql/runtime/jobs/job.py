"""A running job: one run of it, from its run number to its stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rw_sql.model.job_specs import JobSpec
    from rw_sql.runtime.support.failures import Failure


class Job(Protocol):
    """One run of a job."""

    @property
    def spec(self) -> JobSpec:
        """The spec that it was started for."""
        ...

    @property
    def run(self) -> int:
        """Its run number."""
        ...

    @property
    def is_unproven(self) -> bool:
        """True while its first batch is in progress and none has succeeded yet."""
        ...

    def failure(self) -> Failure | None:
        """The reason why the run ended by itself; None while it runs."""
        ...

    def stop(self) -> None:
        """Stops the run; after that, no part of it runs in this process."""
        ...
