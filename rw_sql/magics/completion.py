"""Completes statements in ``%%rw`` cells and on ``%rw`` lines, with the choices that rw_sql's shell offers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from IPython.core.completer import SimpleCompletion, context_matcher
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from rw_sql.cli.shell.backend import CatalogNames
from rw_sql.cli.shell.completion import StatementCompleter

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult

    from rw_sql.metastore import Snapshot
    from rw_sql.session.attach import Attached

_CELL = re.compile(r"\s*%%rw\b[^\n]*\n")
_FIRST_LINE = re.compile(r"\s*%%rw\b(?:[ \t][^\n]*)?[ \t](-{0,2}[\w-]*)\Z")
_LINE = re.compile(r"^\s*(?:[^\W\d]\w*\s*=\s*)?%rw\s+(?:[^\W\d]\w*\s*<<\s*)?")
MATCHER = "rw_sql.statements"
_OPTIONS = ("--confirm", "--var", "--yes", "-o")


class NotebookCatalog:
    """The catalog of the notebook's session. Before rw_sql is attached to a session, nothing is read."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    @property
    def _attached(self) -> Attached | None:
        from pyspark.sql import SparkSession

        from rw_sql.session.attach import attached_to

        named = self._shell.user_ns.get("spark")
        is_session = isinstance(named, SparkSession) or type(named).__module__.startswith("pyspark.sql.connect")
        spark = named if is_session else SparkSession.getActiveSession()
        return None if spark is None else attached_to(spark)

    def snapshot(self) -> Snapshot | None:
        """The current catalog; None before rw_sql is attached to a session."""
        from rw_sql.session.attach import catalog_of

        attached = self._attached
        return None if attached is None else catalog_of(attached)


def statement_at(text: str, place: int) -> tuple[str, int] | None:
    """Returns the statements of a ``%%rw`` cell or ``%rw`` line, and the cursor's position in them. Returns None if
    the cursor is in Python code."""
    cell = _CELL.match(text)
    if cell is not None and place >= cell.end():
        return text[cell.end() :], place - cell.end()
    start = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    line = text[start : end if end >= 0 else len(text)]
    magic = _LINE.match(line)
    if magic is not None and place - start >= magic.end():
        return line[magic.end() :], place - start - magic.end()
    return None


def make_matcher(shell: Any) -> Any:
    """Creates IPython's completion matcher for rw_sql's statements.

    In a statement, the matcher suppresses IPython's other matchers. In any other text, it returns no completions.
    """
    completer = StatementCompleter(CatalogNames(NotebookCatalog(shell)))

    @context_matcher(identifier=MATCHER)  # type: ignore[untyped-decorator, unused-ignore]
    def match(context: CompletionContext) -> SimpleMatcherResult:
        lines = context.full_text.split("\n")
        place = sum(len(line) + 1 for line in lines[: context.cursor_line]) + context.cursor_position
        option = _FIRST_LINE.match(context.full_text[:place])
        if option is not None:
            found = [SimpleCompletion(word, type="option") for word in _OPTIONS if word.startswith(option[1])]
            return {"completions": found, "matched_fragment": option[1], "suppress": True}
        statement = statement_at(context.full_text, place)
        if statement is None:
            return {"completions": [], "suppress": False}
        document = Document(*statement)
        offers = list(completer.get_completions(document, CompleteEvent(completion_requested=True)))
        size = -offers[0].start_position if offers else 0
        return {
            "completions": [
                SimpleCompletion(offer.text, type=offer.display_meta_text or "keyword") for offer in offers
            ],
            "matched_fragment": document.text[document.cursor_position - size : document.cursor_position],
            "suppress": True,
            "ordered": True,
        }

    return match
