"""Progress bars for backfills, in a notebook's output."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from IPython.display import display

if TYPE_CHECKING:
    from rw_sql.metastore.facts import BackfillProgress


class BackfillProgressBar:
    """One bar: HTML if the front end supports it, else a line of text."""

    def __init__(self, progress: BackfillProgress) -> None:
        self._progress = progress

    def __repr__(self) -> str:
        return f"{self._progress.phase}: {self._progress.done:,} of {self._progress.total:,}"

    def _repr_html_(self) -> str:
        total = max(1, self._progress.total)
        done = self._progress.done if self._progress.total else total
        return f'<progress value="{done}" max="{total}"></progress> {escape(repr(self))}'


class ProgressBars:
    """The bars of one cell, one per view. Each appears at its first update and is then updated in place."""

    def __init__(self) -> None:
        self._shown: dict[str, Any] = {}
        self._told: dict[str, tuple[str, int]] = {}

    def tell(self, progress: BackfillProgress) -> None:
        """Updates the bar of a view."""
        if self._told.get(progress.job) == (progress.phase, progress.done):
            return
        self._told[progress.job] = (progress.phase, progress.done)
        bar = BackfillProgressBar(progress)
        show: Any = display
        if progress.job in self._shown:
            self._shown[progress.job].update(bar)
        else:
            self._shown[progress.job] = show(bar, display_id=True)
