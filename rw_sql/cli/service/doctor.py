"""Implements ``rw-sql doctor``, which finds inconsistencies in a warehouse without Spark or Java."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from rw_sql.cli.interface.exit_codes import FAILED
from rw_sql.cli.interface.options import WarehouseOption, output_option, require_output

if TYPE_CHECKING:
    from rich.console import Console

    from rw_sql.runtime.status.findings import Finding


OUTPUTS = ("text", "json")


def doctor_command(
    warehouse: WarehouseOption = None,
    output: Annotated[str, output_option(*OUTPUTS)] = "text",
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove the leftovers of killed processes and dropped objects.")
    ] = False,
) -> None:
    """Find inconsistencies in a warehouse: definitions that do not parse, checkpoints without tables, leftover folders
    and locks, operations without an outcome, jobs that should run but do not, slots of captured databases that are
    missing or no longer read, a warehouse that cannot be written. Does not start Spark.

    The exit status is 1 if there are findings. --repair never removes anything that a job or a statement may still
    use.
    """
    from rw_sql.cli.terminal.output import console_for
    from rw_sql.runtime.status.doctor import examine
    from rw_sql.runtime.status.doctor import repair as repair_all
    from rw_sql.session.sparkless import sparkless

    require_output(output, OUTPUTS)
    with sparkless(warehouse, only_reads=not repair) as context:
        found = examine(context)
        left = repair_all(context) if repair else found
    kept = {(finding.about, finding.subject) for finding in left}
    # Other findings may be gone too, but not because of the repair.
    repaired = [finding for finding in found if finding.is_repairable and (finding.about, finding.subject) not in kept]
    if output == "json":
        told = {"findings": [each.to_json() for each in left], "repaired": [each.to_json() for each in repaired]}
        print(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        _print(console_for(), left, repaired)
    if left:
        raise typer.Exit(FAILED)


def _print(console: Console, left: tuple[Finding, ...], repaired: list[Finding]) -> None:
    from rich.text import Text

    for finding in repaired:
        console.print(Text(f"repaired: {finding.subject}: {finding.problem}"), soft_wrap=True)
    for finding in left:
        console.print(Text(f"{finding.about}: {finding.subject}: {finding.problem}"), soft_wrap=True)
        console.print(Text(f"  {finding.remedy}", style="bold"), soft_wrap=True)
    if not left:
        console.print("nothing found" if not repaired else "nothing else found")
