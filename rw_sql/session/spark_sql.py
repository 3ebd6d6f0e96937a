"""Wraps Spark's own ``sql`` and ``table``, once per class. The wrappers have no effect on a session that is not
attached to a warehouse."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark.sql import DataFrameReader, SparkSession

from rw_sql.errors import SqlError
from rw_sql.runtime.spark.arguments import bound_arguments
from rw_sql.runtime.spark.interrupts import interruptible
from rw_sql.runtime.spark.sessions import ORIGINAL_SQL
from rw_sql.syntax.dialect.bound_statement import bound_statement

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame

    from rw_sql.syntax.dialect.bound_statement import BoundStatement
    from rw_sql.syntax.statements import Statement


class TakesStatements(Protocol):
    """The interface through which an attached session handles the text of a call to ``spark.sql``.

    :class:`rw_sql.session.attached.Attached` implements this interface.
    """

    def route(self, text: str) -> Statement | None:
        """The parsed statement if ``text`` is an rw_sql statement; None if the statement is for Spark."""
        ...

    def run(self, text: str, statement: Statement) -> DataFrame:
        """Runs an rw_sql statement."""
        ...

    def refuse_changes(self, text: str) -> None:
        """Raises SqlError if a Spark statement would change rw_sql's tables."""
        ...

    def before_spark(self, text: str) -> None:
        """Prepares the rw_sql objects that ``text`` may name, so that Spark can read them. Must be called before Spark
        runs a statement or resolves a table name."""
        ...

    def read(
        self, text: str, read: Callable[[], DataFrame], args: Any = None, fields: Mapping[str, Any] | None = None
    ) -> DataFrame:
        """Calls ``read``, which runs a Spark statement with these arguments. During the call, the statement can read
        rw_sql sources."""
        ...

    def abort_block(self) -> None:
        """Aborts the block after an error. COMMIT then does not run the block's statements."""
        ...


_Session = TypeVar("_Session", bound=TakesStatements)


def wrap_sql(
    attached_to: Callable[[SparkSession], _Session | None],
    with_schemas: Callable[[SparkSession, str], str],
    shown: Callable[[_Session], AbstractContextManager[None]],
) -> None:
    """Wraps ``sql`` and ``table`` of PySpark's classes, unless they are already wrapped.

    Statements with arguments are always passed to Spark. A call on a session that is not attached uses the original
    method.

    ``with_schemas`` rewrites the names in a statement to names that Spark can resolve. ``shown`` shows the status of a
    statement while the statement runs.
    """
    if wrap_class(SparkSession, attached_to, with_schemas, shown):
        wrap_table(SparkSession, lambda spark: spark, attached_to, with_schemas)
        wrap_table(DataFrameReader, lambda reader: reader._spark, attached_to, with_schemas)


def wrap_class(
    session_class: Any,
    attached_to: Callable[[SparkSession], _Session | None],
    with_schemas: Callable[[SparkSession, str], str],
    shown: Callable[[_Session], AbstractContextManager[None]],
) -> bool:
    """Wraps ``sql`` of one class of sessions. Returns False if the class is already wrapped."""
    original: Callable[..., DataFrame] = session_class.sql
    if hasattr(original, ORIGINAL_SQL):
        return False

    @functools.wraps(original)
    def sql(self: SparkSession, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:
        attached = attached_to(self)
        if attached is None or not isinstance(sqlQuery, str):
            return original(self, sqlQuery, args, **kwargs)
        with interruptible(), shown(attached):
            return answer(attached, self, sqlQuery, args, kwargs)

    def answer(
        attached: TakesStatements, spark: SparkSession, text: str, args: Any, kwargs: dict[str, Any]
    ) -> DataFrame:
        given: tuple[Any, ...] = ()
        if args or kwargs or not (args is None or isinstance(args, dict | list)):
            given = (args,)
        else:
            ours = attached.route(text)
            if ours is not None:
                return attached.run(text, ours)
        try:
            statement = bound_statement(text, args, kwargs)
            _refuse_changes(attached, statement)
            attached.before_spark(statement.complete)
            named = with_schemas(spark, statement.named)
            if named != statement.named:
                text, args = named, statement.args
                given = (args,) if given else ()
            # With Spark Connect, the query is analyzed after this call returns, so a setting cannot be changed only for
            # the analysis.
            with bound_arguments(spark) if args and isinstance(spark, SparkSession) else nullcontext():
                return attached.read(text, partial(original, spark, text, *given, **kwargs), args, kwargs)
        except BaseException:
            # Any failed statement aborts an open BEGIN UNSAFE block, even a statement that was passed to Spark. The
            # failed statement may be a mistyped RESUME, and a COMMIT of the block without this RESUME would leave the
            # source paused.
            attached.abort_block()
            raise

    setattr(sql, ORIGINAL_SQL, original)
    session_class.sql = sql
    return True


def _refuse_changes(attached: TakesStatements, statement: BoundStatement) -> None:
    """Raises SqlError if the statement would change rw_sql's tables. The error's position refers to the text that the
    user wrote."""
    try:
        attached.refuse_changes(statement.complete)
    except SqlError as error:
        error.text, error.span = statement.text, error.span and statement.place(error.span)
        raise


def wrap_table(
    owner: type,
    session_of: Callable[[Any], SparkSession],
    attached_to: Callable[[SparkSession], TakesStatements | None],
    with_schemas: Callable[[SparkSession, str], str],
) -> None:
    """Makes ``table()`` resolve names of rw_sql objects, as the wrapped ``sql()`` does."""
    original = owner.__dict__["table"]
    if hasattr(original, ORIGINAL_SQL):
        return

    @functools.wraps(original)
    def table(self: Any, tableName: str) -> DataFrame:
        spark = session_of(self)
        attached = attached_to(spark)
        if attached is not None:
            attached.before_spark(tableName)
            # The alias here prevents with_schemas from adding another alias.
            begin, end = "SELECT * FROM ", " AS t"
            name = with_schemas(spark, f"{begin}{tableName}{end}").removeprefix(begin).removesuffix(end)
            return attached.read(f"{begin}{name}", partial(original, self, name))
        found: DataFrame = original(self, tableName)
        return found

    setattr(table, ORIGINAL_SQL, original)
    setattr(owner, "table", table)  # noqa: B010 - the class is not known to type checkers


def wrap_shell_sql(spark: SparkSession) -> None:
    """Rebinds the pyspark shell's global ``sql`` function, which refers to the unwrapped method, to the wrapped
    method."""
    shell = sys.modules.get("__main__")
    bound = getattr(shell, "sql", None)
    is_of_spark = getattr(bound, "__self__", None) is spark
    if is_of_spark and getattr(bound, "__func__", None) is getattr(SparkSession.sql, ORIGINAL_SQL):
        setattr(shell, "sql", spark.sql)  # noqa: B010 - a name of the user's, unknown to type checkers
