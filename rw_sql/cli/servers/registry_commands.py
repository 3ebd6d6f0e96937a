"""Defines ``rw-sql dev registry``, the commands for a local schema registry for experiments and tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rw_sql.cli.interface.options import output_option, require_output

DEFAULT_FOLDER = "rw_registry"
OUTPUTS = ("text", "json")

registry_app = typer.Typer(no_args_is_help=True, help="A real schema registry on this machine.")

_Folder = Annotated[
    Path, typer.Option("--folder", "-d", "-f", metavar="PATH", help="The folder for the registry's log and address.")
]
_Output = Annotated[str, output_option(*OUTPUTS)]


@registry_app.command()
def start(
    folder: _Folder = Path(DEFAULT_FOLDER),
    port: Annotated[
        int, typer.Option("--port", "-p", metavar="PORT", help="The port to listen on; 0 selects a free port.")
    ] = 8085,
    output: _Output = "text",
) -> None:
    """Start a schema registry and wait until it responds. The first start downloads the registry. The registry keeps
    running after the command ends. Its schemas are lost when the registry stops."""
    from rw_sql.cli.servers.schema_registry import is_running, start_registry
    from rw_sql.cli.terminal.status_line import Doing, StatusLine

    require_output(output, OUTPUTS)
    was_running = is_running(folder) is not None
    with StatusLine(
        lambda: Doing("starting the registry (the first start downloads it: 140 MB)"), is_quiet=True
    ).running():
        info = start_registry(folder, port)
    if output == "json":
        found = {"url": info.url, "pid": info.pid, "folder": info.folder, "was_running": was_running}
        typer.echo(json.dumps(found))
        return
    state = "was already running" if was_running else "is running"
    typer.echo(f"registry {info.url} {state}: process {info.pid}, log in {info.folder}")


@registry_app.command()
def stop(folder: _Folder = Path(DEFAULT_FOLDER), output: _Output = "text") -> None:
    """Stop the registry of a folder and wait until it has ended. The registry's schemas are lost."""
    from rw_sql.cli.servers.schema_registry import stop_registry

    require_output(output, OUTPUTS)
    was_running = stop_registry(folder)
    if output == "json":
        typer.echo(json.dumps({"folder": str(folder), "was_running": was_running}))
        return
    typer.echo("stopped" if was_running else "no registry was running")


@registry_app.command()
def status(folder: _Folder = Path(DEFAULT_FOLDER), output: _Output = "text") -> None:
    """Print the address of the folder's registry, and whether the registry responds. The exit status is 1 if the
    registry does not respond."""
    from rw_sql.cli.servers.schema_registry import is_answering, is_running

    require_output(output, OUTPUTS)
    info = is_running(folder)
    answers = info is not None and is_answering(info.url)
    if output == "json":
        found = {"url": info.url if info else None, "pid": info.pid if info else None, "answers": answers}
        typer.echo(json.dumps({**found, "folder": str(folder)}))
    elif info is None:
        typer.echo("no registry is running")
    else:
        typer.echo(f"registry {info.url} {'answers' if answers else 'does not answer'}: process {info.pid}")
    if not answers:
        raise typer.Exit(1)
