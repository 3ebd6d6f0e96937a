"""Defines ``rw-sql dev``, the commands for a local Kafka broker and a schema registry for experiments and tests."""

from __future__ import annotations

import codecs
import contextlib
import json
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from rw_sql.cli.interface.options import old_name, output_option, require_output
from rw_sql.cli.servers.registry_commands import registry_app
from rw_sql.errors import FILE_UNREADABLE, UNDEFINED_COLUMN, UPSTREAM_UNREACHABLE, SqlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rw_sql.cli.servers.kafka_topics import Record

DEFAULT_FOLDER = "rw_kafka"
DEFAULT_BROKER = "127.0.0.1:9092"
ANSWER_SECONDS = 10.0
"""The maximum time in seconds to wait for a broker's response."""

dev_app = typer.Typer(no_args_is_help=True, help="Tools for development.")
kafka_app = typer.Typer(no_args_is_help=True, help="A real Kafka broker on this machine.")
dev_app.add_typer(kafka_app, name="kafka")
dev_app.add_typer(registry_app, name="registry")

OUTPUTS = ("text", "json")

_Folder = Annotated[
    Path, typer.Option("--folder", "-d", "-f", metavar="PATH", help="The folder for the broker's data.")
]
_Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="The broker's address. By default, the address of the broker in the folder.",
    ),
]
_OldBroker = Annotated[str | None, old_name("--broker", "--bootstrap")]
_Output = Annotated[str, output_option(*OUTPUTS)]


@kafka_app.command()
def start(
    folder: _Folder = Path(DEFAULT_FOLDER),
    port: Annotated[
        int, typer.Option("--port", "-p", metavar="PORT", help="The port to listen on; 0 selects a free port.")
    ] = 9092,
    controller_port: Annotated[
        int | None, typer.Option("--controller-port", help="The broker's second port. The default is a free port.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A broker setting, as in server.properties.")
    ] = None,
    output: _Output = "text",
) -> None:
    """Start a broker and wait until it responds. The first start downloads Kafka. The broker keeps running after the
    command ends."""
    from rw_sql.cli.servers.kafka_broker import is_running, start_broker
    from rw_sql.cli.terminal.status_line import Doing, StatusLine

    require_output(output, OUTPUTS)
    extra = dict(_setting(text) for text in setting or ())
    was_running = is_running(folder) is not None
    with StatusLine(lambda: Doing("starting the broker (the first start downloads Kafka)"), is_quiet=True).running():
        info = start_broker(folder, port, controller_port, extra)
    if output == "json":
        found = {"bootstrap": info.bootstrap, "cluster": info.cluster_id, "pid": info.pid, "folder": str(info.folder)}
        typer.echo(json.dumps({**found, "was_running": was_running}))
        return
    state = "was already running" if was_running else "is running"
    typer.echo(f"broker {info.bootstrap} {state}: cluster {info.cluster_id}, process {info.pid}, data in {info.folder}")


@kafka_app.command()
def stop(folder: _Folder = Path(DEFAULT_FOLDER), output: _Output = "text") -> None:
    """Stop the broker of a folder and wait until it has ended. The data remains in the folder."""
    from rw_sql.cli.servers.kafka_broker import stop_broker

    require_output(output, OUTPUTS)
    was_running = stop_broker(folder)
    if output == "json":
        typer.echo(json.dumps({"folder": str(folder), "was_running": was_running}))
        return
    typer.echo("stopped" if was_running else "no broker was running")


@kafka_app.command()
def topics(
    folder: _Folder = Path(DEFAULT_FOLDER),
    bootstrap: _Bootstrap = None,
    broker: _OldBroker = None,
    create: Annotated[str | None, typer.Option("--create", metavar="TOPIC", help="Create a topic.")] = None,
    delete: Annotated[str | None, typer.Option("--delete", metavar="TOPIC", help="Delete a topic.")] = None,
    partitions: Annotated[
        int,
        typer.Option("--partitions", min=1, help="The number of partitions of a topic that is created or extended."),
    ] = 1,
    grow: Annotated[
        str | None, typer.Option("--grow", metavar="TOPIC", help="Add partitions to a topic, up to --partitions.")
    ] = None,
    output: _Output = "text",
) -> None:
    """List the topics. With --create, --grow or --delete, first create, extend or delete a topic."""
    from rw_sql.cli.servers import kafka_topics

    require_output(output, OUTPUTS)
    at = _bootstrap(folder, bootstrap or broker)
    if delete:
        kafka_topics.delete_topic(at, delete)
    if create:
        kafka_topics.create_topic(at, create, partitions)
    if grow:
        kafka_topics.add_partitions(at, grow, partitions)
    listed = kafka_topics.topics(at)
    if output == "json":
        rows = [{"topic": topic.name, "partitions": topic.partitions, "records": topic.records} for topic in listed]
        typer.echo(json.dumps(rows, indent=2))
        return
    width = max([5, *(len(topic.name) for topic in listed)])
    typer.echo(f"{'topic':{width}}  partitions  records")
    for topic in listed:
        typer.echo(f"{topic.name:{width}}  {topic.partitions:10}  {topic.records:7}")


@kafka_app.command()
def produce(
    topic: Annotated[str, typer.Argument(help="The topic to write to.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="One record per line; - reads standard input.")] = "-",
    folder: _Folder = Path(DEFAULT_FOLDER),
    bootstrap: _Bootstrap = None,
    broker: _OldBroker = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="FIELD", help="The JSON field that becomes the record's key.")
    ] = None,
    partition_by: Annotated[
        str | None,
        typer.Option(
            "--partition-by",
            metavar="FIELD",
            help="The JSON field that selects the partition: a number is taken modulo the number of partitions, any "
            "other value is hashed.",
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--create", metavar="N", min=1, help="Create the topic with N partitions if it does not exist."),
    ] = None,
    output: _Output = "text",
) -> None:
    """Write the lines of a file to a topic, one record per line, unchanged.

    Empty lines and a byte-order mark are skipped.
    """
    from rw_sql.cli.servers import kafka_topics

    require_output(output, OUTPUTS)
    at = _bootstrap(folder, bootstrap or broker)
    count = kafka_topics.partition_count(at, topic)
    if count is None and partitions is not None:
        kafka_topics.create_topic(at, topic, partitions)
        count = partitions
    with _opened(file) as lines:
        written = kafka_topics.produce(
            at, topic, records_of(lines, file=file, key=key, partition_by=partition_by, partitions=count or 1)
        )
    if output == "json":
        typer.echo(json.dumps({"topic": topic, "records": written}))
        return
    typer.echo(f"{written} records written to {topic}")


def records_of(
    lines: Iterable[bytes], *, file: str, key: str | None, partition_by: str | None, partitions: int
) -> Iterator[Record]:
    """Returns the records, one record per line. A byte-order mark at the start of the file is left out.

    Raises SqlError if a line lacks a requested field.
    """
    from rw_sql.cli.servers.kafka_topics import Record

    for number, line in enumerate(lines, start=1):
        value = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip(b"\r\n")
        if not value.strip():
            continue
        if key is None and partition_by is None:
            yield Record(value=value)
            continue
        fields = _fields(value, file, number)
        placed = None if partition_by is None else _partition(_field(fields, partition_by, file, number), partitions)
        yield Record(
            value=value,
            key=None if key is None else _text(_field(fields, key, file, number)).encode(),
            partition=placed,
        )


def _fields(value: bytes, file: str, number: int) -> dict[str, Any]:
    try:
        fields = json.loads(value)
    except ValueError as error:
        raise SqlError(
            FILE_UNREADABLE, f"{file}, line {number} is not JSON", hint='write one object a line, such as {"id": 1}'
        ) from error
    if not isinstance(fields, dict):
        raise SqlError(
            FILE_UNREADABLE,
            f"{file}, line {number} is not a JSON object",
            hint='write one object a line, such as {"id": 1}',
        )
    return fields


def _field(fields: dict[str, Any], name: str, file: str, number: int) -> Any:
    if name not in fields:
        raise SqlError(
            UNDEFINED_COLUMN,
            f'{file}, line {number} has no field "{name}"',
            hint="its fields are " + ", ".join(list(fields)[:12]),
        )
    return fields[name]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _partition(value: Any, partitions: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value % partitions
    return zlib.crc32(_text(value).encode()) % partitions


@contextlib.contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as opened:
            yield opened
    except OSError as error:
        raise SqlError(
            FILE_UNREADABLE,
            f"{file} cannot be read: {error.strerror}",
            hint="give a file that this process can read, or - for standard input",
        ) from error


def _bootstrap(folder: Path, broker: str | None) -> str:
    """The address of a broker that responds. Raises SqlError UPSTREAM_UNREACHABLE if no broker responds."""
    from rw_sql.cli.servers.kafka_broker import is_running
    from rw_sql.cli.servers.kafka_topics import answering_cluster

    info = is_running(folder) if broker is None else None
    at = broker or (info.bootstrap if info else DEFAULT_BROKER)
    if answering_cluster(at, ANSWER_SECONDS) is None:
        raise SqlError(
            UPSTREAM_UNREACHABLE,
            f"no broker answers at {at}",
            hint="rw-sql dev kafka start starts one; --bootstrap names another",
        )
    return at


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()
