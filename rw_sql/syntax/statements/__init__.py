"""Every statement as a frozen dataclass, by family. The SQL words are the class name."""


from rw_sql.syntax.statements.materialized_view import CreateMaterializedView, DropMaterializedView
