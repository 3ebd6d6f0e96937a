"""What a server lacks, each with the statement that gives it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.mysql_cdc.source import MysqlCdcConnector
from rw_sql.connectors.mysql_cdc.tables import cascades_in
from rw_sql.connectors.spec import OptionError
from tests.support.captured import reason
from tests.support.mysql import MARIADB, SERVERS, running_server
from tests.support.mysql_changes import Replica, cdc_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.mysql import MysqlInfo

pytestmark = pytest.mark.mysql

KIND = MysqlCdcConnector()


def lacks(options: dict[str, str], *tables: str, **columns: str) -> list[tuple[str, str]]:
    """What is missing, as (message, hint)."""
    found = KIND.find_lacks(options, dict.fromkeys(tables, columns or None))
    return [(lack.message, lack.hint) for lack in found]


@pytest.mark.parametrize("kind", [MARIADB, *(pytest.param(name, marks=pytest.mark.long) for name in SERVERS[1:])])
def test_a_user_with_few_rights(servers: Callable[[str], MysqlInfo], kind: str) -> None:
    server = servers(kind)
    word = uuid.uuid4().hex[:8]
    database, user = f"v_{word}", f"u_{word}"
    server.run(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.t VALUES (1)",
        f"CREATE USER {user}@'%' IDENTIFIED BY 'secret word'",
        f"GRANT INSERT ON {database}.* TO {user}@'%'",
    )
    options = cdc_options(server, database, username=user, password="secret word")
    (lack,) = lacks(options)
    assert lack[0] == "MySQL user doesn't have enough privileges: [REPLICATION CLIENT]"
    server.run(f"GRANT REPLICATION CLIENT ON *.* TO {user}@'%'")
    (lack,) = lacks(options)
    assert lack == (
        "MySQL user doesn't have enough privileges: [REPLICATION SLAVE]",
        f"GRANT REPLICATION SLAVE ON *.* TO '{user}'@'%'",
    )
    server.run(lack[1])
    (lack,) = lacks(options, f"{database}.t")
    assert lack == (
        f"MySQL user doesn't have enough privileges: [SELECT] on table '{database}.t'",
        f"GRANT SELECT ON `{database}`.`t` TO '{user}'@'%'",
    )
    server.run(lack[1])
    if kind == "8.0":  # The one that is tested is older than 8.0.22.
        (lack,) = lacks(options, f"{database}.t")
        assert lack[0].startswith("MySQL user doesn't have enough privileges: [LOCK TABLES]")
        server.run(lack[1])
    assert lacks(options, f"{database}.t") == []
    replica = Replica(options, [f"{database}.t"])
    replica.catch_up()
    server.run(f"INSERT INTO {database}.t VALUES (2)")
    replica.catch_up()
    assert replica.differences() == {}
    replica.close()
    with pytest.raises(CaptureError) as caught:
        lacks(options | {"password": "wrong"})
    assert "wrong" not in caught.value.message
    assert not caught.value.is_temporary


@pytest.mark.parametrize("kind", [MARIADB, *(pytest.param(name, marks=pytest.mark.long) for name in SERVERS[1:])])
@pytest.mark.parametrize("password", ["pä€", "pass\u00e4", "\u5bc6\u7801"], ids=["euro", "latin", "chinese"])
def test_a_password_may_have_letters_of_any_script(
    servers: Callable[[str], MysqlInfo], kind: str, password: str
) -> None:
    server = servers(kind)
    word = uuid.uuid4().hex[:8]
    database, user = f"v_{word}", f"u_{word}"
    server.run(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY)",
        f"CREATE USER {user}@'%' IDENTIFIED BY '{password}'",
        f"GRANT ALL ON *.* TO {user}@'%'",
    )
    replica = Replica(cdc_options(server, database, username=user, password=password), [f"{database}.t"])
    replica.catch_up()
    server.run(f"INSERT INTO {database}.t VALUES (2)")
    replica.catch_up()
    assert replica.differences() == {}
    replica.close()


def test_tables_that_cannot_be_captured(mariadb: MysqlInfo) -> None:
    database = f"v_{uuid.uuid4().hex[:8]}"
    mariadb.run(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.parent (id INT PRIMARY KEY, word TEXT, made INT AS (id + 1))",
        f"CREATE TABLE {database}.child (id INT PRIMARY KEY, FOREIGN KEY f (id) REFERENCES {database}.parent (id) "
        "ON DELETE CASCADE)",
        f"CREATE TABLE {database}.keyless (id INT)",
        f"CREATE TABLE {database}.other_engine (id INT PRIMARY KEY) ENGINE = Aria",
        f"CREATE VIEW {database}.v AS SELECT * FROM {database}.parent",
    )
    options = cdc_options(mariadb, database)
    shown = {
        name: lacks(options, name if "." in name else f"{database}.{name}")[0][0]
        for name in ("child", "keyless", "other_engine", "v", "paren", "mysql.user")
    }
    assert shown == {
        "child": f"foreign key `f` of table {database}.child has an action (CASCADE or SET NULL), and MySQL does not "
        "log the rows that the action changes",
        "keyless": f"MySQL table doesn't define the primary key: the rows of {database}.keyless cannot be identified",
        "other_engine": f"table {database}.other_engine has the engine Aria, which has no transactions",
        "v": f"{database}.v is a view: its changes are not in the server's log",
        "paren": f"MySQL table '{database}.paren' doesn't exist",
        "mysql.user": f"The database name `mysql` in the FROM clause is not included in the database name `{database}` "
        "in source definition",
    }
    parent = f"{database}.parent"
    assert lacks(options, f"{database}.paren")[0][1] == f"did you mean '{parent}'?"
    assert [message for message, _ in lacks(options, parent, nam="INT", made="INT", word="INT", id="BIGINT")] == [
        f"Column 'nam' not found in the upstream database: table {parent} has no such column",
        f"Column 'made' of table {parent} is generated, so it is not in the stream",
        "Incompatible data type of column word. MySQL type: text, RisingWave type: INT",
    ]
    (lack,) = lacks(options | {"database.name": f"{database},no_such"})
    assert lack[0] == "MySQL database 'no_such' doesn't exist"


@pytest.mark.parametrize("kind", [MARIADB, *(pytest.param(name, marks=pytest.mark.long) for name in SERVERS[1:])])
def test_foreign_keys_that_a_user_who_only_reads_may_not_see(servers: Callable[[str], MysqlInfo], kind: str) -> None:
    """MariaDB shows them in ``information_schema`` only to users who may write to the table."""
    server = servers(kind)
    word = uuid.uuid4().hex[:8]
    database, user = f"v_{word}", f"u_{word}"
    server.run(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.parent (id INT PRIMARY KEY)",
        f"CREATE USER {user}@'%' IDENTIFIED BY 'secret word'",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}@'%'",
        f"GRANT SELECT{'' if kind == MARIADB else ', LOCK TABLES'} ON {database}.* TO {user}@'%'",
    )
    options = cdc_options(server, database, username=user, password="secret word")
    for at, action in enumerate(("ON DELETE CASCADE", "ON UPDATE SET NULL", "ON DELETE RESTRICT ON UPDATE CASCADE")):
        server.run(
            f"CREATE TABLE {database}.`chi``ld{at}` (id INT PRIMARY KEY, p INT, CONSTRAINT `f{at} ``x` FOREIGN KEY (p) "
            f"REFERENCES {database}.parent (id) {action})"
        )
        ((message, hint),) = lacks(options, f"`{database}`.`chi``ld{at}`")
        assert f"foreign key `f{at} ``x` of table" in message
        server.run(hint.partition(",")[0])
        assert lacks(options, f"`{database}`.`chi``ld{at}`") == []
    table = f"{database}.late"
    server.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, p INT)")
    replica = Replica(options, [table])
    replica.catch_up()
    server.run(
        f"ALTER TABLE {table} ADD CONSTRAINT f FOREIGN KEY (p) REFERENCES {database}.parent (id) ON DELETE CASCADE"
    )
    assert "foreign key `f`" in reason(replica)


def test_foreign_keys_in_the_definition_of_a_table() -> None:
    definition = r"""CREATE TABLE `t` (
      `on` int DEFAULT NULL COMMENT '\n it''s \' CONSTRAINT z FOREIGN KEY (x) ON DELETE CASCADE \' \\',
      `at` timestamp NOT NULL DEFAULT current_timestamp() ON UPDATE current_timestamp(),
      PRIMARY KEY (`on`),
      CONSTRAINT `a``b` FOREIGN KEY (`on`) REFERENCES `CASCADE`.`p` (`SET`) ON DELETE NO ACTION ON UPDATE SET DEFAULT,
      CONSTRAINT bare FOREIGN KEY (x) REFERENCES p (id) ON DELETE SET NULL ON UPDATE CASCADE,
      CONSTRAINT `kept` FOREIGN KEY (`x`) REFERENCES `p` (`id`) ON DELETE RESTRICT,
      CONSTRAINT `c` CHECK (`x` <> 'CONSTRAINT `d` FOREIGN KEY ON DELETE CASCADE')
    )"""
    assert list(cascades_in(definition)) == ["a`b", "bare"]


def test_settings_of_the_server() -> None:
    with running_server(binlog_row_image="MINIMAL", binlog_format="MIXED", binlog_ignore_db="hidden") as server:
        server.info.run("SET GLOBAL binlog_row_metadata = 'MINIMAL'", "CREATE DATABASE hidden")
        found = lacks(cdc_options(server.info, "hidden"))
        assert [message for message, _ in found] == [
            "MySQL binlog_format should be 'ROW', not 'MIXED'",
            "MySQL binlog_row_image should be 'FULL', not 'MINIMAL'",
            "MySQL binlog_row_metadata should be 'FULL', not 'MINIMAL': the log does not name the columns",
            "the server does not log database 'hidden' (binlog_do_db, binlog_ignore_db)",
        ]
        (split,) = KIND.look(cdc_options(server.info, "hidden")).splits.values()
        assert split.start < split.end


def test_options() -> None:
    given = {"hostname": "h", "username": "u", "database.name": "d"}
    KIND.check_options(given)
    with pytest.raises(OptionError, match="must name a database"):
        KIND.check_options(given | {"database.name": " , "})
    with pytest.raises(OptionError, match=r"\"ssl\.mode\" = 'verify-ca' needs ssl\.root\.cert"):
        KIND.check_options(given | {"ssl.mode": "verify-ca"})
    assert KIND.look(given | {"hostname": "127.0.0.1", "port": "1"}).error is not None
