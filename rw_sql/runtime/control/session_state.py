"""Defines the state of one attached session. The statements of the session read and change this state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.plan.statements.session.search_path import SEARCH_PATH, path_of
from rw_sql.runtime.observe.statement_progress import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.metastore.facts import BackfillProgress
    from rw_sql.plan.result.confirmation import Question
    from rw_sql.plan.result.plan import Plan
    from rw_sql.syntax import statements as ast


@dataclass(slots=True)
class Block:
    """An open BEGIN UNSAFE block with the statements that it has collected. If ``is_aborted`` is True, an error has
    aborted the block: ROLLBACK ends it, and COMMIT ends it with an error."""

    reason: str | None
    statements: list[ast.Statement] = field(default_factory=list)
    is_aborted: bool = False


@dataclass(slots=True)
class SessionState:
    """The state of one attached session. ``refused`` and ``shown`` map the token of each refused statement to the
    statement and to its plan. ``confirmed`` contains the tokens that the running CONFIRM confirms. ``block`` is the
    open block; None if there is none.

    ``ask`` is a function that asks the user to confirm an unsafe statement; None if no user can answer. ``on_progress``
    is a function that receives the progress of backfills and refreshes while a statement waits for them; None if the
    progress is not shown. ``waiting`` describes the jobs for which the running statement waits. If another process
    sends the statements of its session to this process, ``user`` is the operating system's user of the other process;
    otherwise, ``user`` is None.
    """

    parameters: dict[str, str] = field(default_factory=dict)
    refused: dict[str, ast.Statement] = field(default_factory=dict)
    shown: dict[str, Plan] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)
    ask: Callable[[Question], bool] | None = None
    block: Block | None = None
    on_progress: Callable[[BackfillProgress], None] | None = None
    waiting: Waiting = field(default_factory=Waiting)
    user: str | None = None

    def parameter(self, name: str) -> str:
        """The value of a session parameter."""
        return self.parameters.get(name, SESSION_PARAMETERS[name].default)

    @property
    def search_path(self) -> tuple[str, ...]:
        """The schemas in which unqualified names are looked up."""
        return path_of(self.parameter(SEARCH_PATH))

    @property
    def timeout(self) -> float:
        """The value of ``statement_timeout`` in seconds. A statement stops waiting after this time without progress."""
        return int(self.parameter("statement_timeout").removesuffix("ms")) / 1000
