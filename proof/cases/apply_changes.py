"""Forty changes to the files of the example project, each applied to a live warehouse."""

from __future__ import annotations

from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import broker, spark
from tests.integration.attached import produce_json
from tests.support.live_project import LiveProject, project_topics
from tests.support.project_changes import CHANGES, project_files


def _check(seed: int, folder: Path) -> Facts:
    change = CHANGES[seed]
    bootstrap = broker().bootstrap
    with project_topics(bootstrap, "dev"):
        produce_json(bootstrap, "dev.items", [{"id": "tea", "title": "Tea", "cents": 450}])
        produce_json(
            bootstrap, "dev.orders", [{"id": id_, "customer": "ann", "item": "tea", "pieces": 1} for id_ in range(9)]
        )
        files = change.files()
        project = LiveProject(spark(), folder / "warehouse", bootstrap)
        try:
            project.apply(project_files())
            project.session.run("FLUSH")
            project.apply(files)
            assert project.diff(files) == "", change.name
            assert project.apply(files) == "", change.name
            changed = project.meaning()
        finally:
            project.close()
        fresh = LiveProject(spark(), folder / "fresh", bootstrap)
        try:
            fresh.apply(files)
            assert fresh.meaning() == changed, change.name
        finally:
            fresh.close()
    return {**{f"to {action}": count for action, count in change.classes.items()}, "changes of the folder": 1}


PROOF = Proof(
    name="apply-changes",
    claim="A warehouse to which a changed folder is applied has the same catalog as one that began with that folder.",
    method=(
        "The project of `examples/pipelines`, twelve objects, is applied to an empty warehouse, and its views read "
        "the records of the topics. Then one of forty changes is made to the folder. Among these are every class of "
        "changes, renames, reordered files, changes of the formatting alone, and three changes at once. `rw-sql apply` "
        "applies the changed folder; `rw-sql diff` then prints nothing, and a second `apply` does nothing. The "
        "definitions, inputs and columns of all objects in the catalog are compared with those of another warehouse "
        "to which only the changed folder is applied."
    ),
    seeds=range(len(CHANGES)),
    check=_check,
)
