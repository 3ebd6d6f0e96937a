"""Functions for the tests of all database sources. A *replica* consists of tables that are kept up to date by a
reader's changes."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from rw_sql.connectors.changes import CaptureError


class Reading(Protocol):
    """A replica with a reader, which :meth:`step` opens if it is closed."""

    def step(self, *, wait: float) -> Any:
        """Applies the changes of at most ``wait`` seconds."""

    def close(self) -> None:
        """Ends the reader."""


def read_on(replica: Reading) -> None:
    """Reads until an error ends the reader."""
    while True:
        replica.step(wait=0.1)


def reason(replica: Reading) -> str:
    """The error that ends the running reader. Checks that the next reader ends with the same error, because a retry
    must not skip its cause."""
    with pytest.raises(CaptureError) as running:
        read_on(replica)
    replica.close()
    with pytest.raises(CaptureError) as opening:
        read_on(replica)
    replica.close()
    assert running.value.message == opening.value.message
    assert not opening.value.is_temporary
    assert opening.value.hint
    return opening.value.message
