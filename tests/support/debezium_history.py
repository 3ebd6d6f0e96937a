"""Random histories of a table of PostgreSQL. The table that rw_sql builds from Debezium's events is compared with
PostgreSQL's table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

from tests.support.debezium_columns import BIG, KEYS, Column, columns_of, late_moment, nullable
from tests.support.postgres import PASSWORD
from tests.support.waits import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tests.integration.attached import AttachedSession
    from tests.support.debezium_columns import Modes
    from tests.support.debezium_topic import DebeziumTopic


@dataclass(slots=True)
class History:
    """A table of PostgreSQL with random transactions, and a table of rw_sql over the topic of its changes."""

    topic: DebeziumTopic
    session: AttachedSession
    modes: Modes
    chance: random.Random
    facts: Counter[str] = field(default_factory=Counter)
    _columns: tuple[Column, ...] = ()
    _keys: tuple[str, ...] = ()
    _added: list[Column] = field(default_factory=list)
    _truncates: int = 0
    _connection: psycopg.Connection[Any] | None = None

    def create(self) -> None:
        """Creates the upstream table with some rows, lets Debezium read it, and creates the table over the topic."""
        table, modes = self.topic.table, self.modes
        self._columns = columns_of(modes, table)
        keys = KEYS[modes.key]
        self._keys = tuple(key.split()[0] for key in keys)
        own = ", ".join((*(f"{column.name} {column.type}" for column in self._columns), "mark INT", "alt INT NOT NULL"))
        self.topic.postgres.run(
            f"""
            CREATE TYPE {table}_mood AS ENUM ('sad', 'ok', 'größe');
            CREATE SEQUENCE {table}_alt;
            CREATE TABLE {table} ({", ".join(keys)}, {own}, PRIMARY KEY ({", ".join(self._keys)}));
            ALTER TABLE {table} ALTER alt SET DEFAULT nextval('{table}_alt');
            CREATE UNIQUE INDEX {table}_by_alt ON {table} (alt, {", ".join(self._keys)});
            """
        )
        for name in BIG:
            self.topic.postgres.run(f"ALTER TABLE {table} ALTER {name} SET STORAGE EXTERNAL")
        index = f" {table}_by_alt" if modes.identity == "USING INDEX" else ""
        self.topic.postgres.run(f"ALTER TABLE {table} REPLICA IDENTITY {modes.identity}{index}")
        self._connection = psycopg.connect(
            host="127.0.0.1", port=self.topic.postgres.port, dbname="postgres", user="postgres", password=PASSWORD
        )
        self._insert_some()
        self.topic.start()
        self.topic.catch_up()
        self.session.sql(self.statement())

    def statement(self) -> str:
        """The statement that creates the table over the topic."""
        columns = ""
        if self.modes.is_listed:
            kinds = {"TEXT": "VARCHAR", "UUID": "VARCHAR", "CHAR(3)": "VARCHAR", "NUMERIC(8, 2)": self._key_decimal()}
            listed = [key.split(maxsplit=1) for key in KEYS[self.modes.key]]
            named = [f"{name} {kinds.get(kind, kind)}" for name, kind in listed]
            named += [f"{column.name} {column.listed}" for column in self._listed()]
            columns = f"({', '.join(named)}, mark INT, PRIMARY KEY ({', '.join(self._keys)}))"
        return (
            f"CREATE TABLE {self.topic.table} {columns} WITH (connector = 'kafka', topic = '{self.topic.topic}', "
            f"properties.bootstrap.server = '{self.topic.bootstrap}') "
            f"FORMAT DEBEZIUM ENCODE AVRO (schema.registry = '{self.topic.registry}')"
        )

    def write(self, transactions: int) -> None:
        """Commits, and sometimes undoes, transactions of random statements."""
        assert self._connection is not None
        for _ in range(transactions):
            for _ in range(self.chance.randint(1, 5)):
                self._run(self._statement())
            if self.chance.random() < 0.15:
                self._connection.rollback()
                self.facts["transactions undone"] += 1
            else:
                self._connection.commit()
                self.facts["transactions"] += 1
                self.facts["truncates"] += self._truncates
            self._truncates = 0

    def add_column(self) -> None:
        """Adds a column to the upstream table, waits until Debezium has registered the new schema, and adds the column
        to the table."""
        assert self._connection is not None
        name = f"more{len(self._added)}"
        self.topic.postgres.run(f"ALTER TABLE {self.topic.table} ADD COLUMN {name} TIMESTAMPTZ")
        before = self.topic.versions()
        self._insert_some()
        self.topic.catch_up()
        wait_until(lambda: self.topic.versions() > before, "Debezium registers the new schema", look_seconds=0.2)
        self.session.sql(f"ALTER TABLE {self.topic.table} REFRESH SCHEMA")
        self._added.append(
            Column(
                name=name,
                type="TIMESTAMPTZ",
                make=nullable(lambda chance: f"'{late_moment(chance)}+01'"),
                listed="TIMESTAMPTZ",
                here=f"CAST({name} AS STRING)",
                there=f"({name} AT TIME ZONE 'UTC')::text",
            )
        )
        self.facts["columns added"] += 1

    def compare(self) -> None:
        """Raises AssertionError unless the table has the rows of the database, value by value, and no errors."""
        self._insert_some()
        self.topic.catch_up()
        self.session.sql("FLUSH")
        known, columns = self._key_texts(), [*self._listed(), *self._added]
        ours = ", ".join((*(here for here, _ in known), *(f"{c.here}" for c in columns)))
        theirs = ", ".join((*(there for _, there in known), *(f"{c.there}" for c in columns)))
        here = self.session.spark.sql(f"SELECT {ours} FROM {self.topic.table}").collect()
        there = self.topic.postgres.run(f"SELECT {theirs} FROM {self.topic.table}")
        count = len(self._keys)
        found = self._by_key(here, count, columns)
        wanted = self._by_key(there, count, columns)
        errors = Counter(row.reason for row in self.session.sql(f"SELECT reason FROM `{self.topic.table}$errors`"))
        truncates = errors.pop("unknown debezium op: t", 0)
        assert not errors, f"records are errors: {errors}"
        assert truncates == (self.facts["truncates"] if self.modes.has_truncates else 0), f"{truncates} truncates"
        assert set(found) == set(wanted), f"rows: {sorted(map(str, set(found) ^ set(wanted)))[:4]}"
        wrong = {
            column.name: (found[key][at], wanted[key][at])
            for key in wanted
            for at, column in enumerate(columns)
            if found[key][at] != wanted[key][at]
        }
        assert not wrong, f"values, here and in the database: {str(wrong)[:1500]}"
        self.facts["rows compared"] += len(wanted)
        self.facts["values compared"] += len(wanted) * len(columns)

    def close(self) -> None:
        """Drops both tables, and the connector."""
        if self._connection is not None:
            self._connection.close()
        self.session.sql(f"DROP TABLE IF EXISTS {self.topic.table}")
        self.topic.stop()

    def _by_key(self, rows: Sequence[Any], keys: int, columns: Sequence[Column]) -> dict[tuple[object, ...], list[Any]]:
        made = {}
        for row in rows:
            values = [column.known(value) for column, value in zip(columns, tuple(row)[keys:], strict=True)]
            made[tuple(row)[:keys]] = values
        assert len(made) == len(rows), "a key is there twice"
        return made

    def _listed(self) -> list[Column]:
        """The columns of the table: the columns that the statement lists, or all columns if it lists none."""
        return [column for column in self._columns if not self.modes.is_listed or column.listed is not None]

    def _key_decimal(self) -> str:
        return "DOUBLE" if self.modes.decimal == "double" else "NUMERIC(8, 2)"

    def _key_texts(self) -> list[tuple[str, str]]:
        made = []
        for name in self._keys:
            here, there = f"CAST({name} AS STRING)", f"{name}::text"
            match self.modes.key, name:
                case "moment", _:
                    there = f"({name} AT TIME ZONE 'UTC')::text"
                case "time", "word":
                    there = f"rpad({name}::text, 3)"
                case "decimal", _:
                    here = f"CAST(CAST({name} AS DECIMAL(8, 2)) AS STRING)"
            made.append((here, there))
        return made

    def _run(self, statement: str) -> None:
        """Runs a statement. If the statement fails because a key exists already, its effects are undone."""
        assert self._connection is not None
        self._connection.execute("SAVEPOINT before")
        try:
            self._connection.execute(statement.encode())
        except psycopg.errors.UniqueViolation:
            self._connection.execute("ROLLBACK TO SAVEPOINT before")
        else:
            self._truncates += statement.startswith("TRUNCATE")
            self._connection.execute("RELEASE SAVEPOINT before")

    def _insert_some(self) -> None:
        """Inserts rows, of which some are new."""
        assert self._connection is not None
        for _ in range(12):
            self._run(self._insert())
        self._connection.commit()

    def _key(self) -> list[str]:
        number = self.chance.randint(1, 40)
        match self.modes.key:
            case "int":
                return [str(number)]
            case "composite":
                return [f"'größe {number % 5} \"x\"'", str(number)]
            case "uuid":
                return [f"'{number:032x}'::uuid"]
            case "decimal":
                return [f"{number / 4:.2f}"]
            case "moment":
                return [f"'2024-01-{number % 28 + 1:02d} 10:00:00.5+02'::timestamptz"]
            case _:
                return [f"'1969-12-{number % 28 + 1:02d} 10:00:00.25'::timestamp", f"'k{number % 3}'"]

    def _where(self) -> str:
        return f"({', '.join(self._keys)}) = ({', '.join(self._key())})"

    def _values(self, columns: Sequence[Column]) -> dict[str, str]:
        return {column.name: column.make(self.chance) for column in columns}

    def _insert(self) -> str:
        values = dict(zip(self._keys, self._key(), strict=True)) | self._values([*self._columns, *self._added])
        return f"INSERT INTO {self.topic.table} ({', '.join(values)}) VALUES ({', '.join(values.values())})"

    def _update(self, columns: Sequence[Column], more: Mapping[str, str] | None = None) -> str:
        values = self._values(columns) | dict(more or {})
        listed = ", ".join(f"{name} = {value}" for name, value in values.items())
        return f"UPDATE {self.topic.table} SET {listed} WHERE {self._where()}"

    def _statement(self) -> str:
        chance, table = self.chance, self.topic.table
        small = [column for column in [*self._columns, *self._added] if column.name not in BIG]
        big = [column for column in self._columns if column.name in BIG]
        what = chance.random()
        if what < 0.30:
            return self._insert()
        if what < 0.55:
            return self._update(chance.sample(small, chance.randint(1, 4)))
        if what < 0.63:
            return self._update(chance.sample(big, chance.randint(1, 2)))
        if what < 0.68:
            return f"UPDATE {table} SET alt = nextval('{table}_alt') WHERE {self._where()}"
        if what < 0.80:
            # With another replica identity, no event of the new key contains the values that did not change.
            columns = [] if self.modes.identity == "FULL" else big
            return self._update(columns, dict(zip(self._keys, self._key(), strict=True)))
        if what < 0.84:
            return f"UPDATE {table} SET i = i / 2, v = left(v || 'x', 40)"
        if what < 0.97:
            return f"DELETE FROM {table} WHERE {self._where()}"
        if what < 0.99 or not self.modes.has_truncates:
            return f"DELETE FROM {table} WHERE i > 0"
        # A truncation is an error and deletes nothing, so the rows are deleted before it.
        self._run(f"DELETE FROM {table}")
        return f"TRUNCATE {table}"
