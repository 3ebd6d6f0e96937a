"""The JDBC sink. It writes to a PostgreSQL table, with one transaction per batch. :mod:`rw_sql.connectors.jdbc.writer`
contains the writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS
from rw_sql.connectors.jdbc.table_look import look_at_table
from rw_sql.connectors.jdbc.url import connect, conninfo, query_seconds
from rw_sql.connectors.jdbc.writer import JdbcWriter
from rw_sql.connectors.sink import SinkError, SinkLook
from rw_sql.connectors.spec import check_option_values, load_sink_spec
from rw_sql.connectors.support.messages import without_password

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.sink import SinkShape
    from rw_sql.connectors.spec import ConnectorSpec


class JdbcSink:
    """See :class:`rw_sql.connectors.sink.SinkConnector`."""

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/jdbc.sink.toml``."""
        return load_sink_spec("jdbc")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent."""
        check_option_values(self.spec, options)
        conninfo(options)

    def check_shape(self, options: Mapping[str, str], shape: SinkShape) -> None:
        """Checks nothing. Only :meth:`look` compares the types of ``shape`` with the table's columns."""

    def look(
        self, options: Mapping[str, str], shape: SinkShape | None, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SinkLook:
        """Checks that the server responds, that the table has the columns and the key of ``shape``, and that the user
        has the privileges for the sink's statements. If ``shape`` is None, checks only that the server responds."""
        import psycopg

        try:
            with connect(options, timeout) as connection:
                return SinkLook() if shape is None else look_at_table(connection, self.table(options), shape)
        except psycopg.Error as error:
            return SinkLook(error=without_password(error, options))

    def table(self, options: Mapping[str, str]) -> tuple[str, str]:
        """The schema and name of the table."""
        return self.spec.value(options, "schema.name") or "public", options["table.name"]

    def open(self, options: Mapping[str, str], shape: SinkShape, identity: str) -> JdbcWriter:
        """Opens a connection, over which the writer sends its statements. Raises SinkError."""
        import psycopg

        try:
            connection = connect(options, RESOLVE_TIMEOUT_SECONDS)
            # Determines Python's name for the database's encoding.
            connection.execute("SELECT set_config('client_encoding', current_setting('server_encoding'), false)")
            codec = connection.info.encoding
            connection.execute("SET client_encoding TO 'UTF8'")
            # Otherwise the server's or the role's settings would change how times and amounts are read.
            connection.execute("SET TIME ZONE 'UTC'")
            connection.execute("SET lc_monetary TO 'C'")
            connection.execute(f"SET statement_timeout = {query_seconds(options) * 1000}")
            connection.commit()
        except psycopg.Error as error:
            raise SinkError(without_password(error, options)) from error
        return JdbcWriter(connection, options, shape, self.table(options), codec)
