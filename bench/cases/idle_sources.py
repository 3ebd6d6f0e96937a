"""20, 100 and 1,000 sources with nothing to read, each with a view: CPU time, memory, the time of ``attach``, and the
time until the first record after a rest is in a view.

20 sources are compared with 20 idle queries. Of the 1,000 sources, 20 get records. These 20 sources are compared with a
warehouse that has only 20 sources.

The benchmark creates one source and its view by statements, lets them run until they rest, and copies their catalog
entries, tables and checkpoints. Creating a thousand sources and views by statements would take longer than the rest of
the benchmark.

``python -m bench.cases.idle_sources run <warehouse>`` attaches a warehouse, reports its figures and runs until the
process is ended.
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.harness import Case, NotRunError, Pair
from bench.streaming import (
    COLUMNS,
    SETTINGS,
    Watched,
    child,
    fill,
    flight,
    flights_broker,
    heap_bytes,
    own_bytes,
    wait_until,
    write_to_parent,
)

if TYPE_CHECKING:
    from rw_sql.connectors.base import PooledTopic
    from rw_sql.metastore import Metastore
    from rw_sql.metastore.records import Change

COUNTS = (20, 100, 1_000)
_SECONDS = 30.0
_SETTLE_SECONDS = 20.0
_RECORDS = 7
_BUSY = 20
_ROUNDS = 15
_MOST_SECONDS = 120.0
_JOB = re.compile(r'\b(ingest|mv)-(\d+)(?=\\*")')


def _template(bootstrap: str, warehouse: str) -> None:
    """Creates the source ``s0`` of topic ``t0`` and its view ``v0``, waits until they have read a record, and leaves
    them at rest."""
    import rw_sql

    spark = rw_sql.connect(warehouse, config=SETTINGS)
    for statement in (
        "ALTER SYSTEM SET idle_job_timeout = '1s'",
        f"CREATE SOURCE s0 ({COLUMNS}) WITH (connector = 'kafka', topic = 't0', "
        f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v0 AS SELECT flight, delay FROM s0",
        "FLUSH",
    ):
        spark.sql(statement).collect()
    wait_until(
        lambda: all((row.reason or "").startswith("idle") for row in spark.sql("SHOW JOBS").collect()),
        "the source and its view rest",
        every=0.5,
    )
    rw_sql.detach(spark)
    spark.stop()
    write_to_parent("done")


def _run(warehouse: str) -> None:
    import rw_sql

    spark = rw_sql.connect(f"{warehouse}-unused", config=SETTINGS, run_jobs=False)
    rw_sql.detach(spark)
    heap, own = heap_bytes(spark), own_bytes()
    began = time.perf_counter()
    rw_sql.attach(spark, warehouse)
    attached = time.perf_counter() - began
    wait_until(lambda: len(spark.sql("SHOW JOBS").collect()) > 0, "the jobs are known", every=0.5)
    usable = time.perf_counter() - began
    wait_until(
        lambda: not any(thread.name == "rw_sql-views" for thread in threading.enumerate()), "all views exist", every=0.1
    )
    views = time.perf_counter() - began
    time.sleep(_SETTLE_SECONDS)
    write_to_parent(f"{attached} {usable} {views} {heap_bytes(spark) - heap} {own_bytes() - own}")
    sys.stdin.readline()
    # From here on, the jobs that get records do not rest between two records. (The value '-1' would start all jobs.)
    spark.sql("ALTER SYSTEM SET idle_job_timeout = '3600s'").collect()
    write_to_parent("awake")
    sys.stdin.read()


def _clone(warehouse: str, count: int, bootstrap: str) -> None:
    """Copies the source and its view until the warehouse has ``count`` of each, all at rest."""
    from rw_sql.connectors.base import PooledConnector
    from rw_sql.connectors.registry import connector
    from rw_sql.metastore import Metastore
    from rw_sql.metastore.records import MaterializedViewRecord, Operation, SourceRecord

    metastore = Metastore.open(warehouse)
    snapshot = metastore.snapshot()
    source, view = snapshot.find("source", "s0"), snapshot.find("materialized_view", "v0")
    kind = connector("kafka")
    if not isinstance(source, SourceRecord) or not isinstance(view, MaterializedViewRecord):
        raise NotRunError("the first source was not made")
    if not isinstance(kind, PooledConnector):
        raise NotRunError("Kafka answers for one source at a time")
    options = {"topic": "t0", "properties.bootstrap.server": bootstrap}
    topics = kind.pooled_topics(options, [f"t{number}" for number in range(count)])
    first = snapshot.next_id
    ids = {number: (first + 2 * number, first + 2 * number + 1) for number in range(1, count)}
    changes: list[Change] = []
    for number, (source_id, view_id) in ids.items():
        changes += _records(warehouse, metastore, source, view, number, source_id, view_id, topics)
        _copy(Path(warehouse), {source.id: source_id, view.id: view_id})
    metastore.commit(Operation(kind="COPY", statement="", objects=(), changes=tuple(changes)), based_on=snapshot)
    # The copied tables contain commits of runs of the first source and of its view, so the runs of the copies need
    # higher numbers.
    last = metastore.jobs.last_runs()
    for at, first_job in enumerate((f"ingest-{source.id}", f"mv-{view.id}")):
        jobs = [f"{first_job.partition('-')[0]}-{pair[at]}" for pair in ids.values()]
        for _ in range(last[first_job].run):
            metastore.jobs.claim_runs(jobs, metastore.snapshot().epoch, "bench")
    metastore.flush(with_upkeep=True)
    _leave_at_rest(warehouse, topics)


def _records(
    warehouse: str,
    metastore: Metastore,
    source: object,
    view: object,
    number: int,
    source_id: int,
    view_id: int,
    topics: Mapping[str, PooledTopic],
) -> list[Change]:
    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.registry import connector
    from rw_sql.metastore.records import (
        AssignSplits,
        MaterializedViewRecord,
        PutObject,
        PutSplitStates,
        SourceRecord,
    )
    from rw_sql.runtime.delta.delta_log import latest_version
    from rw_sql.runtime.support.warehouse import Warehouse

    if not isinstance(source, SourceRecord) or not isinstance(view, MaterializedViewRecord):
        raise TypeError("no source and view to copy")

    def renamed(text: str) -> str:
        found = re.sub(r"\bs0\b", f"s{number}", re.sub(r"\bv0\b", f"v{number}", text))
        return re.sub(r"\bt0\b", f"t{number}", found)

    old = metastore.snapshot().states(f"ingest-{source.id}")["t0:0"]
    kind = connector("kafka")
    before = kind.decode_state("t0:0", old.state)
    topic = f"t{number}"
    state = SplitState(split=f"{topic}:0", offset=1, cluster=before.cluster, incarnation=topics[topic].incarnation)
    version = latest_version(Warehouse.at(warehouse), f"{warehouse}/data/{source.id}/{source.generation}")
    histories = tuple(
        renamed(text)
        .replace(f'"source_id": {source.id}', f'"source_id": {source_id}')
        .replace(f'"source_id":{source.id}', f'"source_id":{source_id}')
        for text in view.histories
    )
    fragment = f"ingest-{source_id}"
    return [
        PutObject(
            record=replace(
                source,
                id=source_id,
                name=f"s{number}",
                definition=renamed(source.definition),
                options=tuple((key, renamed(value)) for key, value in source.options),
            )
        ),
        PutObject(
            record=replace(
                view,
                id=view_id,
                name=f"v{number}",
                definition=renamed(view.definition),
                query=renamed(view.query),
                inputs=(source_id,),
                histories=histories,
                maintenance=replace(view.maintenance, query=renamed(view.maintenance.query or "")),
            )
        ),
        AssignSplits(fragment=fragment, splits=(state.split,)),
        PutSplitStates(fragment=fragment, states={state.split: kind.encode_state(state)}, log_version=version),
    ]


def _copy(warehouse: Path, ids: Mapping[int, int]) -> None:
    """Copies the tables and checkpoints of objects under other ids."""

    def renumbered(found: re.Match[str]) -> str:
        return f"{found[1]}-{ids.get(int(found[2]), int(found[2]))}"

    for old, new in ids.items():
        shutil.copytree(warehouse / "data" / str(old), warehouse / "data" / str(new))
        for log in (warehouse / "data" / str(new)).rglob("_delta_log"):
            for file in log.iterdir():
                if file.name.startswith(".") and file.suffix == ".crc":
                    file.unlink()  # Hadoop's checksum, outdated by the change below; Delta's own checksums stay valid.
                elif file.suffix == ".json":
                    file.write_text(_JOB.sub(renumbered, file.read_text()))
        for folder in (warehouse / "checkpoints").iterdir():
            name, _, number = folder.name.rpartition("-")
            if number == str(old) and folder.is_dir() and name != "ingest":
                copy = warehouse / "checkpoints" / f"{name}-{new}"
                shutil.copytree(folder, copy)
                for file in copy.rglob("metadata"):
                    file.write_text(f'{{"id":"{uuid.uuid4()}"}}')
                    (file.parent / ".metadata.crc").unlink(missing_ok=True)


def _leave_at_rest(warehouse: str, topics: Mapping[str, PooledTopic]) -> None:
    from rw_sql.connectors.base import SplitState
    from rw_sql.metastore import Metastore
    from rw_sql.model.job_specs import IngestSpec, ViewSpec, desired_jobs
    from rw_sql.runtime.control.rest_conditions import Idle, IdleReader, IdleSource, stored
    from rw_sql.runtime.delta.delta_log import latest_version
    from rw_sql.runtime.support.warehouse import Warehouse

    metastore, at = Metastore.open(warehouse), Warehouse.at(warehouse)
    runs = metastore.jobs.last_runs()
    cluster = None
    idle: dict[str, Idle] = {}
    for job, spec in desired_jobs(metastore.snapshot()).items():
        if isinstance(spec, IngestSpec):
            states = {
                split: SplitState(
                    split=split, offset=1, cluster=cluster, incarnation=topics[split.partition(":")[0]].incarnation
                )
                for split in spec.splits
            }
            version = latest_version(at, at.data(spec.source_id, spec.generation))
            idle[job] = IdleSource(spec=spec, run=runs[job].run, states=states, log_version=version)
        elif isinstance(spec, ViewSpec):
            paths = [at.data(given.id, given.generation) for given in spec.inputs]
            versions = {path: latest_version(at, path) for path in paths}
            idle[job] = IdleReader(spec=spec, run=runs[job].run, versions=versions)
    at.write_text(f"{at.uri}/checkpoints/resting.json", stored(idle))


def _topics(bootstrap: str, count: int) -> None:
    """Creates the topics ``t0`` to ``t<count - 1>``, each with one partition and one record."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    made = admin.create_topics([NewTopic(f"t{number}", 1, 1) for number in range(count)])
    for future in made.values():
        future.result()
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(f"t{number}", flight(number))
    if producer.flush(300):
        raise NotRunError("the broker did not take the records")


def measure(count: int) -> dict[str, float]:
    """Measures this many sources and views, all at rest."""
    with flights_broker() as (bootstrap, folder):
        _topics(bootstrap, count)
        warehouse = str(folder / "warehouse")
        with child("bench.cases.idle_sources", "template", bootstrap, warehouse) as made:
            made.read_line()
        _clone(warehouse, count, bootstrap)
        with child("bench.cases.idle_sources", "run", warehouse) as running:
            attached, usable, views, heap, own = (float(word) for word in running.read_line().split())
            before, began = running.cpu_seconds(), time.perf_counter()
            time.sleep(_SECONDS)
            cores = (running.cpu_seconds() - before) / (time.perf_counter() - began)
            times = [_first_record(bootstrap, warehouse, number) for number in range(1, _RECORDS + 1)]
            running.write_line("busy")
            running.read_line()
            busy = _busy(bootstrap, warehouse, min(_BUSY, count - 1))
    return {
        _name("cores", count): cores,
        _name("memory", count): heap / count / 1e6,
        _name("python", count): own / count / 1e6,
        _name("attach", count): attached,
        _name("usable", count): usable,
        _name("views", count): views,
        _name("first", count): median(times),
        _name("both", count): (heap + own) / count / 1e6,
        _name("busy", count): busy,
    }


def measure_bare(count: int) -> dict[str, float]:
    """Measures this many idle queries without rw_sql."""
    with (
        flights_broker(1_000) as (bootstrap, folder),
        child("bench.cases.idle", "bare", bootstrap, str(folder / "bare")) as running,
    ):
        held = float(running.read_line())
        time.sleep(_SETTLE_SECONDS)
        before, began = running.cpu_seconds(), time.perf_counter()
        time.sleep(_SECONDS)
        cores = (running.cpu_seconds() - before) / (time.perf_counter() - began)
    return {_name("cores", count): cores, _name("both", count): held / 1e6}


def _measure_alone(count: int) -> dict[str, float]:
    """Measures the same sources that get records in the measurement with ``count`` sources, but in a warehouse that
    contains only these sources."""
    return {_name("busy", count): measure(_BUSY + 1)[_name("busy", _BUSY + 1)]}


def _busy(bootstrap: str, warehouse: str, count: int) -> float:
    """The median time in milliseconds until the view of a running source has a new record of the source, while this
    many sources get records at the same time."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0})
    tables = {number: _view_table(warehouse, number) for number in range(1, count + 1)}
    times: list[float] = []
    for round_ in range(_ROUNDS + 1):
        rows = {number: table.rows() for number, table in tables.items()}
        began = time.perf_counter()
        for number in tables:
            producer.produce(f"t{number}", flight(number))
        producer.flush(60)
        while rows:
            time.sleep(0.005)
            arrived = [number for number, before in rows.items() if tables[number].rows() > before]
            for number in arrived:
                del rows[number]
            taken = time.perf_counter() - began
            if taken > _MOST_SECONDS:
                raise NotRunError(f"{len(rows)} busy sources are not read within {_MOST_SECONDS:g} s")
            if round_:  # The first round wakes the sources, so it does not count.
                times += [taken] * len(arrived)
    return median(times) * 1000


def _first_record(bootstrap: str, warehouse: str, number: int) -> float:
    """The time in milliseconds until the view of a source at rest has a new record of the source."""
    table = _view_table(warehouse, number)
    rows = table.rows()
    began = time.perf_counter()
    fill(bootstrap, f"t{number}", 1, 1)
    wait_until(lambda: table.rows() > rows, "the first record after the rest", seconds=_MOST_SECONDS)
    return (time.perf_counter() - began) * 1000


def _view_table(warehouse: str, number: int) -> Watched:
    from rw_sql.metastore import Metastore
    from rw_sql.metastore.records import MaterializedViewRecord

    view = Metastore.open(warehouse, only_reads=True).snapshot().find("materialized_view", f"v{number}")
    if not isinstance(view, MaterializedViewRecord):
        raise NotRunError(f"view v{number} does not exist")
    return Watched(f"{warehouse}/data/{view.id}/{view.generation}")


def _name(figure: str, count: int) -> str:
    return f"idle_sources_{figure}_{count}"


@contextmanager
def _open(count: int) -> Iterator[Pair]:
    peers = {COUNTS[0]: measure_bare, COUNTS[-1]: _measure_alone}
    yield Pair(
        ours=partial(measure, count),
        peer=partial(peers[count], count) if count in peers else None,
        settings={
            "ours": f"{count} sources of one Kafka broker, a topic each, with one view each, all at rest",
            "memory": "what attaching adds to the JVM's heap after a garbage collection, per source with its view",
            "first": f"median of {_RECORDS} sources: one record each, from the call that produces it until the view's "
            "table has it",
            "both": "what the sources add to the Python process and to the JVM's heap after a garbage collection",
            "peer": f"{COUNTS[0]} queries from Kafka, from_json, into Delta; {_BUSY} sources without the others",
        },
    )


def _cases(count: int) -> list[Case]:
    is_last = count == COUNTS[-1]
    open_ = partial(_open, count)
    told = f"{count:,} sources at rest with a view each"

    def case(figure: str, title: str, unit: str, goal: float | None, peer: str = "") -> Case:
        return Case(
            name=_name(figure, count),
            title=f"{told}: {title}",
            peer=peer,
            unit=unit,
            goal=goal if is_last or peer else None,
            open=open_,
            runs=1,
            warm_ups=0,
        )

    queries = f"{count} idle queries" if count == COUNTS[0] else ""
    return [
        case("cores", "CPU of Python and the JVM", "cores", 1.0 if queries else 0.1, queries),
        case("memory", "the JVM's memory per source", "MB", 0.5),
        case("python", "Python's memory per source", "MB", None),
        case("attach", "attach", "s", 10.0),
        case("usable", "attach to the first SHOW JOBS", "s", None),
        case("views", "attach until all Spark views exist", "s", None),
        case("first", "the first record after the rest", "ms", 1500.0),
        case("both", "memory of one source with its view", "MB", 1.0 if queries else None, queries),
        *([case("busy", f"freshness of {_BUSY} that get records", "ms", 1.1, "these 20 alone")] if is_last else []),
    ]


CASES = tuple(case for count in COUNTS for case in _cases(count))


if __name__ == "__main__":
    if sys.argv[1] == "template":
        _template(*sys.argv[2:])
    elif sys.argv[1] == "run":
        _run(*sys.argv[2:])
    else:
        for name, figure in measure(int(sys.argv[1])).items():
            print(f"{name}: {figure:.4g}")
