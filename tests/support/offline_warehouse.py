"""A catalog to which statements are applied without Spark and upstreams. The statements are planned as by ``rw-sql
check``."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from rw_sql.cli.deploy.possible_changes import possible_changes
from rw_sql.metastore import Snapshot
from rw_sql.model.definitions import option_text
from rw_sql.plan.deploy.concurrent_changes import KnownDefinitions
from rw_sql.plan.deploy.definitions import definition_of
from rw_sql.plan.deploy.folder import read_folder
from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.plan.result.steps import after
from rw_sql.plan.statements.replace.normal_form import clauses_of, own_options, plain_column, spec_of
from rw_sql.plan.statements.view.rebuild import rebuild_groups, swap_operation
from rw_sql.syntax import render
from rw_sql.syntax.query.canonical_query import canonical_query
from rw_sql.syntax.statements import (
    CreateConnection,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateTable,
    Wait,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.plan.deploy.change import DeployChange
    from rw_sql.plan.deploy.folder import FolderObject
    from rw_sql.plan.statements.replace.least_change import Create


@dataclass(slots=True)
class OfflineWarehouse:
    """A warehouse that consists only of its catalog. A WAIT statement completes all rebuilds at once."""

    variables: Mapping[str, str]
    snapshot: Snapshot = field(default_factory=Snapshot)

    def changes(self, files: Mapping[str, str]) -> tuple[DeployChange, ...]:
        """The differences between the warehouse and a folder with these files."""
        return possible_changes(self.snapshot, _folder(tuple(files.items()), tuple(self.variables.items())))

    def apply(self, files: Mapping[str, str], *, statements: int | None = None) -> None:
        """Makes the changes that lead to these files. If ``statements`` is given, runs only this number of statements.

        Checks for each change, as ``rw-sql apply`` does, that no other session has changed its object. The statements
        that follow a WAIT in a change do not run, because the rebuild is already complete.
        """
        changes = self.changes(files)
        known = KnownDefinitions(self.snapshot, changes)
        todo = [
            (change, statement)
            for change in changes
            for at, statement in enumerate(change.statements)
            if not any(isinstance(before, Wait) for before in change.statements[:at])
        ]
        for change, statement in todo[:statements]:
            if isinstance(statement, Wait):
                self.catch_up()
                continue
            known.require_unchanged(self.snapshot, change, "")
            self.run(render(statement))
            known.renew(self.snapshot, change)

    def run(self, *texts: str) -> None:
        """Runs statements, none of which may be refused."""
        for text in texts:
            checker = ScriptChecker(self.snapshot)
            for checked in checker.check(text, "apply"):
                assert checked.errors == (), checked.errors[0].render()
            self.snapshot = checker.snapshot

    def catch_up(self) -> None:
        """Completes all rebuilds, so that queries read the new tables."""
        for group in rebuild_groups(self.snapshot):
            self.snapshot = after(self.snapshot, swap_operation(self.snapshot, group, "the owner").changes)

    def meaning(self) -> dict[tuple[str, str], object]:
        """The meaning of every object in the catalog, without ids and without traces of how the object was created."""
        return meaning_of(self.snapshot)


@lru_cache(maxsize=8)
def _folder(files: tuple[tuple[str, str], ...], variables: tuple[tuple[str, str], ...]) -> tuple[FolderObject, ...]:
    """The objects that these files define. A test compares the same files with several states of a warehouse."""
    return read_folder(files, dict(variables))


def meaning_of(snapshot: Snapshot) -> dict[tuple[str, str], object]:
    """The meaning of every object in a catalog, by kind and name: definition, inputs and columns."""
    found: dict[tuple[str, str], object] = {}
    for kind in ("connection", "source", "table", "materialized_view", "sink"):
        for record in snapshot.all(kind):
            inputs = [snapshot.get(id_) for id_ in getattr(record, "inputs", ())]
            definition = definition_of(record)
            query = getattr(record, "query", None)
            found[kind, record.name] = {
                "clauses": _clauses(definition),
                "properties": _properties(definition),
                "inputs": sorted(f"{i.kind} {i.name}" for i in inputs if i is not None),
                "schema": getattr(record, "schema", None),
                "query": canonical_query(query) if query is not None else None,
            }
    return found


def _clauses(definition: Create) -> object:
    if isinstance(definition, CreateConnection | CreateSecret):
        return None
    columns = definition.columns if isinstance(definition, CreateSource | CreateTable) else ()
    return [plain_column(column) for column in columns], clauses_of(definition)


def _properties(definition: Create) -> dict[str, str]:
    if isinstance(definition, CreateSecret):
        return {option.key: option_text(option.value) for option in definition.options}
    spec = spec_of(definition) if isinstance(definition, CreateSource | CreateTable | CreateSink) else None
    return {key: option_text(option.value) for key, option in own_options(definition, spec).items()}
