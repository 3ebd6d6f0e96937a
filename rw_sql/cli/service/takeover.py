"""Implements ``rw-sql takeover``, which kills an owner that hangs or that a signal has suspended. The command needs
neither Spark nor Java."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from rw_sql.cli.interface.options import GroupOption, WarehouseOption, output_option, require_output

OUTPUTS = ("text", "json")


def takeover_command(
    warehouse: WarehouseOption = None,
    resource_group: GroupOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Kill an owner's processes (SIGKILL) if the owner is suspended or hangs.")
    ] = False,
    output: Annotated[str, output_option(*OUTPUTS)] = "text",
) -> None:
    """Free the lease of an unresponsive owner on this machine. Does not start Spark.

    Without --force, the command shows the process that holds the lease, and changes nothing. The command never kills an
    owner that still works. A killed process commits nothing, so the next owner continues without gaps or duplicates.
    """
    from rw_sql.metastore.records import DEFAULT_GROUP
    from rw_sql.model.resource_groups import require_group_name
    from rw_sql.runtime.control.takeover import take_over
    from rw_sql.session.sparkless import sparkless

    require_output(output, OUTPUTS)
    group = DEFAULT_GROUP if resource_group is None else require_group_name(resource_group)
    # A takeover writes only the lease. It does not migrate a warehouse, because the owner may still work.
    with sparkless(warehouse, only_reads=True) as context:
        found = take_over(context, group, is_forced=force)
    if output == "json":
        print(json.dumps({"resource_group": group, "ended": found.ended, "said": found.said}, indent=2))
        return
    for pid in found.ended:
        print(f"ended process {pid}")
    print(found.said)
