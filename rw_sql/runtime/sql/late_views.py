"""Creates many Spark views in a background thread. Attaching a session therefore does not wait for the views. If a
statement mentions a view that the thread has not created yet, the view is created immediately before the statement
runs.

Spark analyzes each view at its creation, which takes 10 to 20 ms. For a thousand views, the analysis takes longer than
all other steps of attaching a session.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rw_sql.errors import SqlError
from rw_sql.runtime.support.failures import cause_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rw_sql.metastore.records import MaterializedViewRecord

logger = logging.getLogger(__name__)

AT_ONCE = 100
"""The maximum number of missing views that the calling thread creates itself. If more views are missing, a background
thread creates them. Creating this number of views takes about a second."""

_LISTS = re.compile(r"\b(SHOW\s+(TABLES?|VIEWS)|ANALYZE\s+TABLES)\b", re.IGNORECASE)
"""Matches statements that depend on views whose names they do not mention."""


class LateViews:
    """The views that the background thread has not created yet. Thread-safe.

    ``create`` is a function that creates one view. The attribute ``lock`` is held during each call of ``create``.
    """

    def __init__(self, create: Callable[[str, MaterializedViewRecord], object]) -> None:
        self.lock = threading.RLock()
        self._create = create
        self._due: dict[str, MaterializedViewRecord] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def take(self, due: Mapping[str, MaterializedViewRecord]) -> Mapping[str, MaterializedViewRecord]:
        """Decides which of the missing views ``due`` the background thread creates. Returns the other views in ``due``,
        which the caller must create itself."""
        with self.lock:
            if len(due) > AT_ONCE and self._thread is None:
                self._due = dict(due)
                self._thread = threading.Thread(target=self._run, name="rw_sql-views", daemon=True)
                self._thread.start()
            else:
                self._due = {name: due[name] for name in self._due if name in due}
            return {name: view for name, view in due.items() if name not in self._due}

    def create_mentioned(self, text: str) -> None:
        """Of the views that the thread has not created yet, creates those that a statement needs. A statement that
        lists views needs all of these views. Any other statement needs only the views whose names it contains."""
        if not self._due:
            return
        folded, needs_all = text.casefold(), _LISTS.search(text) is not None
        with self.lock:
            for name in [name for name in self._due if needs_all or _last(name) in folded]:
                self._create(name, self._due.pop(name))

    def close(self) -> None:
        """Ends the thread. Views that the thread has not created yet are not created."""
        with self.lock:
            self._due.clear()

    def _run(self) -> None:
        while True:
            with self.lock:
                if not self._due:
                    self._thread = None
                    return
                name = next(iter(self._due))
                try:
                    self._create(name, self._due.pop(name))
                except (SqlError, OSError, DeltaError, Py4JError, PySparkException) as error:
                    logger.warning("the Spark view of %s is not created yet: %s", name, cause_line(str(error)))


def _last(name: str) -> str:
    """The last part of a name in lower case, as statements contain it. The result is empty, and thus a part of every
    statement, if the last part contains a backtick, because statements can write a name with a backtick in several
    ways."""
    last = name.rpartition(".")[2]
    return "" if "`" in last else last.casefold()
