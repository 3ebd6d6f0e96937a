"""Defines one or two examples per command, for ``--help`` and for the reference page. A test parses every example."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": ("rw-sql run move.sql --var topic=orders_v2 --dry-run", "rw-sql run move.sql --yes --output junit"),
    "test": ("rw-sql test pipelines/tests --jobs 4 --env dev",),
    "shell": ("rw-sql shell -w s3://lake/rw", "rw-sql shell -c 'SHOW JOBS'"),
    "serve": (
        "rw-sql serve -w s3://lake/rw --host 0.0.0.0 --token-file token.txt --log json",
        "rw-sql serve -w /mnt/rw --master spark://host:7077 --conf spark.executor.memory=4g --driver-memory 4g",
        "rw-sql serve -w /srv/rw --resource-group nightly",
    ),
    "takeover": ("rw-sql takeover -w /srv/rw", "rw-sql takeover -w /srv/rw --resource-group nightly --force"),
    "pyspark": ("rw-sql pyspark --driver-memory 4g",),
    "status": ("rw-sql status --watch", "rw-sql status -o json"),
    "doctor": ("rw-sql doctor -w s3://lake/rw", "rw-sql doctor --repair -o json"),
    "lineage": ("rw-sql lineage --of totals -o svg -f totals.svg",),
    "fmt": ("rw-sql fmt pipelines", "rw-sql fmt --check pipelines views.sql"),
    "check": ("rw-sql check pipelines --env dev -o github", "rw-sql check a.sql --catalog catalog.json"),
    "export-catalog": ("rw-sql export-catalog -w s3://lake/rw -f catalog.json",),
    "diff": ("rw-sql diff pipelines --env prod -f plan.json --exit-code",),
    "apply": ("rw-sql apply pipelines --env prod --yes --allow duplicates", "rw-sql apply plan.json"),
    "rollback": ("rw-sql rollback totals --yes",),
    "source list": ("rw-sql source list --like 'ord%'",),
    "source show": ("rw-sql source show -s orders -o json",),
    "source pause": ("rw-sql source pause -s orders --reason 'broker moves'",),
    "source resume": ("rw-sql source resume -s orders",),
    "source alter": ("rw-sql source alter -s orders --set topic=orders_v2 --dry-run",),
    "source reset-splits": ("rw-sql source reset-splits -s orders --split orders:3",),
    "source inject-offsets": (
        "rw-sql source inject-offsets -s orders --set orders:0=42 --set orders:1=17 --dry-run",
        "rw-sql source inject-offsets -s orders --shift-by -100 --yes --allow duplicates",
    ),
    "source export-offsets": ("rw-sql source export-offsets -s orders -o csv --group loader -f plan.csv",),
    "source undo": ("rw-sql source undo --operation 12 --dry-run",),
    "source continuity": ("rw-sql source continuity -s orders",),
    "checkpoint show": ("rw-sql checkpoint show /jobs/words --bootstrap broker:9092",),
    "checkpoint export": ("rw-sql checkpoint export /jobs/words -o spark",),
    "checkpoint set-offsets": (
        "rw-sql checkpoint set-offsets /jobs/words --set words:0=5 --bootstrap broker:9092 --dry-run",
        "rw-sql checkpoint set-offsets /jobs/words --to-earliest --yes --assume-stopped",
    ),
    "checkpoint undo": ("rw-sql checkpoint undo /jobs/words",),
    "dev kafka start": ("rw-sql dev kafka start --port 9092",),
    "dev kafka stop": ("rw-sql dev kafka stop",),
    "dev kafka topics": ("rw-sql dev kafka topics --create orders --partitions 4",),
    "dev registry start": ("rw-sql dev registry start --port 8085",),
    "dev registry stop": ("rw-sql dev registry stop",),
    "dev registry status": ("rw-sql dev registry status",),
    "dev kafka produce": ("rw-sql dev kafka produce orders orders.jsonl --key customer --create 2",),
}


def add_examples(app: typer.Typer, path: str = "") -> None:
    """Adds the examples to the help of every command of an application."""
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_examples(group.typer_instance, f"{path}{group.name} ")
    for command in app.registered_commands:
        function = command.callback
        name = command.name or (function.__name__.replace("_", "-") if function is not None else "")
        # Each example gets a paragraph of its own, because the lines of a paragraph are joined.
        command.epilog = "\n\n".join(f"Example: {example}" for example in EXAMPLES[f"{path}{name}"])
