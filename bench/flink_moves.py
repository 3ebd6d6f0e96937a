"""Moves a Flink SQL job from one topic to another, once per input line. Runs in the Python in which PyFlink is
installed.

``python flink_moves.py <rest port> <connector's jar> <bootstrap> <savepoints> <topic> <sink topic> <guarantee>
<checkpoint interval>``: a job copies records of the topic to the sink topic with the guarantee ``exactly-once`` or
``at-least-once``. An input line ``<topic> <offset>`` stops the job with a savepoint, and starts the job again at the
record with this offset of this topic.
"""

from __future__ import annotations

import sys

from pyflink.table import EnvironmentSettings, TableEnvironment

_INSERT = "INSERT INTO v SELECT flight, delay FROM flights"


def main(
    port: str, jar: str, bootstrap: str, savepoints: str, topic: str, into: str, guarantee: str, interval: str
) -> None:
    """Starts the job, prints ``ready``, and moves the job at each input line."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {
        "execution.target": "remote",
        "rest.address": "127.0.0.1",
        "rest.port": port,
        "pipeline.jars": f"file://{jar}",
        "parallelism.default": "1",
        "execution.checkpointing.interval": interval,
        "execution.checkpointing.dir": f"file://{savepoints}/checkpoints",
        "client.heartbeat.interval": "10000",
    }.items():
        tables.get_config().set(name, value)
    tables.execute_sql(
        "CREATE TABLE flights (carrier STRING, flight BIGINT, origin STRING, dest STRING, delay INT, `day` STRING) "
        f"WITH ('connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{bootstrap}', "
        "'scan.startup.mode' = 'earliest-offset', 'properties.fetch.max.wait.ms' = '20', 'format' = 'json')"
    )
    tables.execute_sql(
        f"CREATE TABLE v (flight BIGINT, delay INT) WITH ('connector' = 'kafka', 'topic' = '{into}', "
        f"'properties.bootstrap.servers' = '{bootstrap}', 'sink.delivery-guarantee' = '{guarantee}', "
        # Flink's default transaction timeout is an hour; brokers allow a quarter of an hour.
        f"'sink.transactional-id-prefix' = '{into}', 'properties.transaction.timeout.ms' = '600000', "
        "'format' = 'json')"
    )
    job = tables.execute_sql(_INSERT).get_job_client()
    print("> ready", flush=True)
    for line in sys.stdin:
        topic, offset = line.split()
        job.stop_with_savepoint(False, f"file://{savepoints}").result()
        tables.execute_sql(
            f"ALTER TABLE flights SET ('topic' = '{topic}', 'scan.startup.mode' = 'specific-offsets', "
            f"'scan.startup.specific-offsets' = 'partition:0,offset:{offset}')"
        )
        job = tables.execute_sql(_INSERT).get_job_client()
        print("> moved", flush=True)
    job.cancel().result()


if __name__ == "__main__":
    main(*sys.argv[1:])
