"""Progress bars below the typed statement for views that are being created."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from rw_sql.metastore.facts import BackfillProgress


class BackfillBar:
    """Shows nothing until the first view is reported; then one bar per view, removed when the statement ends."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks:
            self._bars.stop()

    def tell(self, progress: BackfillProgress) -> None:
        """Moves a view's bar."""
        if not self._tasks:
            self._bars.start()
        if progress.job not in self._tasks:
            self._tasks[progress.job] = self._bars.add_task(progress.job, total=max(1, progress.total))
        done = progress.done if progress.total else 1
        self._bars.update(
            self._tasks[progress.job], completed=done, total=max(1, progress.total), description=progress.phase
        )
