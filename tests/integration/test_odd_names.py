"""Columns with the oddest names: right in sources, tables, views and sinks, in small batches and in large ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.errors import SqlError
from rw_sql.runtime.delta import held_rows
from rw_sql.runtime.positions import planned_rows
from rw_sql.runtime.views import recomputed
from rw_sql.syntax.lexing.identifiers import quoted, quoted_for_spark
from tests.integration.attached import READER, produce_json

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

NAMES = (
    *("a b", " a", "a.b", "größe", 'a"b', "a'b", "select", "a-b", "a%20b", "a/b", "a:b", "$x", "日本", "1a", "a\\b"),
    *("a[b]", "a*b", "😀", "value", "key", "timestamp", "partition", "source", "keep", "row", "before"),
)


@pytest.mark.long
def test_odd_names_are_right_everywhere(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)

    def rows(*firsts: int) -> list[dict[str, int]]:
        return [{name: first + at for at, name in enumerate(NAMES)} for first in firsts]

    produce_json(broker.bootstrap, topic_name, rows(0, 100, 0))
    over = (
        f"WITH (connector = 'kafka', topic = '{topic_name}', properties.bootstrap.server = '{broker.bootstrap}') "
        "FORMAT PLAIN ENCODE JSON"
    )
    columns = ", ".join(f"{quoted(name)} INT" for name in NAMES)
    listed = ", ".join(quoted_for_spark(name) for name in NAMES)
    keys = ", ".join(quoted(name) for name in NAMES[:6])
    one, other = (tuple(first + at for at in range(len(NAMES))) for first in (0, 100))
    # First as large batches, which Spark writes and merges, then as small ones, which delta-rs does.
    with monkeypatch.context() as large:
        for place in (*READER, planned_rows, held_rows, recomputed):
            for limit in ("SMALL_ROWS", "LARGE_ROWS"):
                large.setattr(place, limit, -1, raising=False)
        session.run(
            f"CREATE SOURCE src ({columns}) {over}",
            f"CREATE TABLE tab ({columns}, PRIMARY KEY ({keys})) {over}",
            "CREATE MATERIALIZED VIEW every AS SELECT * FROM src",
            f"CREATE MATERIALIZED VIEW counted AS SELECT {listed}, count(*) AS n FROM src GROUP BY {listed}",
            "CREATE MATERIALIZED VIEW maxima AS SELECT max(`a b`) AS `the most`, `a.b` FROM tab GROUP BY `a.b`",
            "CREATE SINK snk FROM every WITH (connector = 'deltalake', type = 'append-only', "
            f"location = '{tmp_path}/sink')",
        )
        assert session.flushed_rows_of("every") == sorted([one, one, other])
    assert session.rows_of("tab") == [one, other]
    assert session.rows_of("counted") == [(*one, 2), (*other, 1)]
    assert session.rows_of("maxima") == [(0, 2), (100, 102)]
    assert session.rows_of(f"delta.`{tmp_path}/sink`") == sorted([one, one, other])
    session.run('ALTER TABLE tab RENAME COLUMN "a-b" TO "b -"', 'ALTER TABLE tab ADD COLUMN "new one" INT')
    produce_json(broker.bootstrap, topic_name, [*rows(100), {**rows(200)[0], "new one": 7}])
    session.sql("FLUSH")
    assert session.rows_of("tab", "`b -`, `new one`") == [(7, None), (107, None), (207, 7)]
    assert session.rows_of("counted", "n") == [(1,), (2,), (2,)]
    assert session.rows_of("maxima") == [(0, 2), (100, 102), (200, 202)]
    assert {job.state for job in session.jobs().values()} == {"RUNNING"}


@pytest.mark.parametrize("name", ["a`b", " ", "a\nb", "_change_type", "_metadata", "a,b", "_rw_keep"])
def test_names_that_cannot_be_are_refused_wherever_they_are_given(session: AttachedSession, name: str) -> None:
    over = "WITH (connector = 'datagen', datagen.rows.total = '3')"
    session.run(f"CREATE SOURCE src (id INT) {over}", f"CREATE TABLE tab (id INT PRIMARY KEY, n INT) {over}")
    word, spark_word = quoted(name), quoted_for_spark(name)
    for statement in (
        f"CREATE SOURCE other ({word} INT) {over}",
        f"CREATE SOURCE other (s STRUCT<{word} INT>) {over}",
        f"CREATE TABLE other (id INT PRIMARY KEY, {word} INT) {over}",
        f"ALTER TABLE tab ADD COLUMN {word} INT",
        f"ALTER TABLE tab RENAME COLUMN n TO {word}",
        f"CREATE MATERIALIZED VIEW other AS SELECT id AS {spark_word} FROM src",
        f"CREATE MATERIALIZED VIEW other AS SELECT named_struct({_text(name)}, id) AS s FROM src",
        f"CREATE SINK other AS SELECT id AS {spark_word} FROM src WITH (connector = 'deltalake', location = '/tmp/no', "
        "type = 'append-only')",
    ):
        if name.startswith("_rw_") and "struct" in statement.lower():
            continue  # only columns are hidden
        with pytest.raises(SqlError) as caught:
            session.sql(statement)
        assert caught.value.code in ("RW212", "RW215"), (statement, caught.value.render())
    assert session.sql("SHOW MATERIALIZED VIEWS") == []


def _text(name: str) -> str:
    return "'" + name.replace("'", "\\'").replace("\n", "\\n") + "'"
