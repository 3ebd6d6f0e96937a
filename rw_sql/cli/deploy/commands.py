"""The commands ``rw-sql diff``, ``apply`` and ``rollback``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rw_sql.cli.deploy.execution import StatementRunner, carry_out, catalog_of
from rw_sql.cli.deploy.printing import show_changes
from rw_sql.cli.interface.exit_codes import DIFFERS, exit_status
from rw_sql.cli.interface.options import (
    AllowRows,
    Confirm,
    Env,
    Variables,
    WarehouseOption,
    Yes,
    allow_words,
    old_name,
    output_option,
    require_output,
)
from rw_sql.cli.script.environments import environment_of_folder, given_variables
from rw_sql.cli.script.loading import hiding, hiding_of
from rw_sql.cli.sql_files import folder_files
from rw_sql.cli.text_input import read_text, write_text
from rw_sql.errors import (
    CANNOT_REPLACE,
    CANNOT_UNDO,
    CONFIRMATION_NEEDED,
    INVALID_OPTION,
    UNDEFINED_OBJECT,
    SqlError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from rw_sql.cli.script.loading import SecretHider
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.deploy.change import DeployChange
    from rw_sql.runtime.support.warehouse import Warehouse

OUTPUTS = ("text", "json")

_Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="A folder of SQL files with CREATE statements.")]


def diff_command(
    folder: _Folder,
    warehouse: WarehouseOption = None,
    env: Env = None,
    var: Variables = None,
    allow: AllowRows = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="Write the plan to this file, to apply it later.")
    ] = None,
    output: Annotated[
        str, output_option(*OUTPUTS, help="The output format: the changes as text, or the plan as JSON.")
    ] = "text",
    exit_code: Annotated[
        bool,
        typer.Option(
            "--exit-code",
            help="Exit with status 2 if folder and warehouse differ, 0 if they do not, and 1 after an error.",
        ),
    ] = False,
    catalog: Annotated[
        str | None,
        typer.Option("--catalog", metavar="FILE", help="Compare with a catalog that rw-sql export-catalog wrote."),
    ] = None,
    old_form: Annotated[str | None, old_name("--format", "--output")] = None,
    old_file: Annotated[str | None, old_name("--out", "--file")] = None,
) -> None:
    """Show the differences between a warehouse and a folder of CREATE statements. Does not start Spark, and changes
    nothing."""
    from rw_sql.cli.terminal.output import console_for
    from rw_sql.plan.deploy.plan_file import saved_plan, to_json

    output, out = old_form or output, file or old_file
    require_output(output, OUTPUTS)
    if catalog is not None and out is not None:
        raise SqlError(
            INVALID_OPTION,
            "--file needs a warehouse, because a plan is made for one warehouse; --catalog gives only a catalog",
            hint="rw-sql diff FOLDER --warehouse PATH --file plan.json",
        )
    variables = _variables_of(folder, env, var)
    location, snapshot, changes = _compared(folder, warehouse, variables, allow, catalog)
    hide = hiding_of(variables)
    plan = saved_plan(snapshot, location.uri, changes, _secrets_in(changes, hide))
    if out is not None:
        write_text(out, to_json(plan), is_private=bool(plan.secrets))
        if plan.secrets:
            console_for(sys.stderr).print(
                f"{out} contains the values of variables whose names suggest a secret, so only its owner can read it",
                style="dim",
                markup=False,
            )
    if output == "json":
        sys.stdout.write(to_json(plan, hide))
    else:
        show_changes(console_for(), location, snapshot, changes, hide, is_counted=catalog is None)
    raise typer.Exit(DIFFERS if exit_code and changes else 0)


def apply_command(
    target: Annotated[
        str, typer.Argument(metavar="FOLDER|PLAN", help="A folder of SQL files, or a plan that rw-sql diff wrote.")
    ],
    warehouse: WarehouseOption = None,
    env: Env = None,
    var: Variables = None,
    allow: AllowRows = None,
    allow_drop: Annotated[
        bool,
        typer.Option(
            "--allow-drop",
            help="Drop objects and columns that are missing from the folder, and objects that must be re-created.",
        ),
    ] = False,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep",
            metavar="TIME",
            help="How long to keep the old rows of a rebuilt view for a rollback: 30min, 12h, 7d, or -1 for no limit. "
            "Sets the system parameter rollback_window.",
        ),
    ] = None,
    yes: Yes = False,
    confirm: Confirm = None,
    output: Annotated[str, output_option(*OUTPUTS)] = "text",
) -> None:
    """Make a warehouse match a folder of CREATE statements.

    If a statement fails, run rw-sql apply again to continue. A plan that was applied in part is outdated: write a new
    plan with rw-sql diff, and apply the new plan.
    """
    from rw_sql.cli.interface.error_report import error_as_json, interrupt_as_json
    from rw_sql.cli.terminal.output import console_for, print_error
    from rw_sql.plan.deploy.plan_file import from_json, require_current, saved_plan

    require_output(output, OUTPUTS)
    console = console_for(sys.stderr if output == "json" else None)
    is_plan = Path(target).is_file()
    if is_plan:
        _require_of_folder({"--env": env, "--var": var, "--allow": allow})
        again = f"make the plan again: rw-sql diff FOLDER --file {target}"
        plan = from_json(read_text(target), target)
        hide = hiding(plan.secrets)
        location, snapshot = catalog_of(warehouse if warehouse is not None else plan.warehouse)
    else:
        again = "run the same command again"
        variables = _variables_of(target, env, var)
        hide = hiding_of(variables)
        location, snapshot, changes = _compared(target, warehouse, variables, allow)
        plan = saved_plan(snapshot, location.uri, changes)
    made: list[DeployChange] = []

    def write_report(error: Mapping[str, object] | None) -> None:
        if output == "json":
            reported = [_as_json(change, hide, is_made=change in made) for change in plan.changes]
            _print_json({"warehouse": location.uri, "changes": reported, "error": error})

    try:
        if is_plan:
            require_current(snapshot, plan, location.uri, again)
        keeping = _keeping(keep, snapshot)
        chosen = _require_allowed(snapshot, plan.changes, allow_drop=allow_drop)
        left = [change for change in plan.changes if change not in chosen]
        show_changes(console, location, snapshot, plan.changes, hide, left)
        _require_secrets(snapshot, chosen)
        if chosen and not yes:
            _require_yes(console, len(chosen))
        if chosen or keeping:
            runner = StatementRunner(console, location, hide, is_confirmed=yes, tokens=frozenset(confirm or ()))
            carry_out(runner, plan, chosen, made, keeping, again, target if is_plan else None)
    except SqlError as error:
        hide.error(error)
        if output != "json":
            raise
        print_error(error.render())
        write_report(error_as_json(error))
        raise typer.Exit(exit_status(error)) from None
    except KeyboardInterrupt as interrupt:
        write_report(interrupt_as_json(interrupt, f"to continue, {again}"))
        raise
    write_report(None)


def _require_of_folder(options: Mapping[str, object]) -> None:
    """Raises SqlError if one of the given options is set. The command applies a saved plan, on which these options have
    no effect, because the plan already contains its statements."""
    given = [option for option, value in options.items() if value]
    if given:
        raise SqlError(
            INVALID_OPTION,
            f"a saved plan is applied as it is, so {given[0]} has no effect",
            hint=f"make the plan with it: rw-sql diff FOLDER {given[0]} … --file FILE",
        )


def _keeping(keep: str | None, snapshot: Snapshot) -> tuple[str, ...]:
    """The statements that set the system parameter for ``--keep``. The result is empty if the parameter already has
    this value.

    Raises SqlError if the parameter does not accept the duration.
    """
    if keep is None:
        return ()
    from rw_sql.model.parameters import ROLLBACK_WINDOW, SYSTEM_PARAMETERS

    parameter = SYSTEM_PARAMETERS[ROLLBACK_WINDOW]
    try:
        value = parameter.read(keep)
    except ValueError as error:
        raise SqlError(INVALID_OPTION, f"--keep {error}, not {keep!r}", hint="--keep 7d") from error
    if value == (snapshot.parameter(ROLLBACK_WINDOW) or parameter.default):
        return ()
    return (f"ALTER SYSTEM SET {ROLLBACK_WINDOW} = '{keep.strip()}'",)


def rollback_command(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view that gets its previous rows back.")],
    warehouse: WarehouseOption = None,
    yes: Yes = False,
    output: Annotated[str, output_option(*OUTPUTS)] = "text",
) -> None:
    """Restore the rows that a view had before its last rebuild. rw_sql keeps the old rows until the next rebuild of the
    view, but at most for the time in the system parameter rollback_window."""
    from rich.text import Text

    from rw_sql.cli.terminal.output import console_for
    from rw_sql.metastore.codec import before_from_json
    from rw_sql.metastore.records import UNDO
    from rw_sql.model.object_lookup import object_name, undefined
    from rw_sql.plan.statements.move.undo import History
    from rw_sql.plan.statements.view.rebuild import SWAP
    from rw_sql.session.sparkless import sparkless
    from rw_sql.syntax.statements import Name

    require_output(output, OUTPUTS)
    console = console_for(sys.stderr if output == "json" else None)
    with sparkless(warehouse, only_reads=True) as context:
        location, snapshot = context.warehouse, context.metastore.snapshot()
        records = context.metastore.operations(kinds=(SWAP, UNDO))
    name = Name.of(view)
    record = snapshot.find("materialized_view", object_name(name))
    if record is None:
        raise undefined(snapshot, "materialized_view", name)
    history = History.of(records)
    # Operations are found by the view's id, because an operation contains the name that the view had at the time of the
    # operation.
    swaps = (r for r in records if r.kind == SWAP and record.id in before_from_json(r.before).objects)
    swap = next((r for r in swaps if history.is_in_effect(r.epoch)), None)
    if swap is None:
        raise SqlError(
            CANNOT_UNDO,
            f'there is nothing to roll back: materialized view "{record.name}" was not rebuilt, or is already rolled '
            "back",
            hint="SELECT epoch, statement FROM rw_catalog.rw_operations lists what was done",
        )
    text = f"UNDO OPERATION {swap.epoch}"
    console.print(Text(f"{text};  [{', '.join(swap.objects)}: queries read the previous rows again]", style="bold"))
    if not yes:
        _require_yes(console, 1)
    StatementRunner(console, location, hiding(()), is_confirmed=True).run_one(text)
    if output == "json":
        _print_json({"warehouse": location.uri, "statement": text, "objects": list(swap.objects)})


def _as_json(change: DeployChange, hide: SecretHider, *, is_made: bool) -> dict[str, object]:
    reason = hide.values(change.reason) or None
    shown = {"action": change.action, "kind": change.kind, "name": change.name, "reason": reason}
    return {**shown, "statements": [hide(text) for text in change.texts], "is_made": is_made}


def _secrets_in(changes: Sequence[DeployChange], hide: SecretHider) -> tuple[str, ...]:
    """The values of secret variables that the statements of the changes contain."""
    return hide.known_in(text for change in changes for text in (*change.texts, change.reason))


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _variables_of(folder: str, env: str | None, var: Sequence[str] | None) -> dict[str, str]:
    """The values of a folder's variables. Raises SqlError."""
    return {**environment_of_folder(folder, env), **given_variables(var or ())}


def _compared(
    folder: str,
    warehouse: str | None,
    variables: Mapping[str, str],
    allow: Sequence[str] | None,
    catalog: str | None = None,
) -> tuple[Warehouse, Snapshot, tuple[DeployChange, ...]]:
    from rw_sql.cli.deploy.possible_changes import possible_changes
    from rw_sql.plan.deploy.folder import read_folder

    words = tuple(dict.fromkeys(word.upper() for word in allow_words(allow)))
    for word in words:
        if word not in ("GAPS", "DUPLICATES"):
            raise SqlError(
                INVALID_OPTION,
                f'--allow takes GAPS and DUPLICATES, found: "{word}"',
                hint="name the predicted effects that you accept, separated by commas",
            )
    try:
        objects = read_folder([(file, read_text(file)) for file in folder_files(folder)], variables)
        location, snapshot = catalog_of(warehouse) if catalog is None else _stored_catalog(catalog)
        return location, snapshot, possible_changes(snapshot, objects, words)
    except SqlError as error:
        raise hiding_of(variables).error(error)  # noqa: B904 - the same error, without the values of variables


def _stored_catalog(file: str) -> tuple[Warehouse, Snapshot]:
    """Reads a catalog from a file. The returned warehouse is a placeholder for callers that need a warehouse, and not
    the warehouse from which the catalog was exported."""
    from rw_sql.metastore import catalog_from_json
    from rw_sql.runtime.support.warehouse import Warehouse

    return Warehouse.at("./rw_warehouse"), catalog_from_json(read_text(file), f'"{file}"')


def _require_allowed(snapshot: Snapshot, changes: Sequence[DeployChange], *, allow_drop: bool) -> list[DeployChange]:
    """Returns the changes to carry out.

    Without ``--allow-drop``, the changes drop neither the objects that are missing from the folder, nor the columns
    that rw_sql itself may have added. Raises SqlError if an object can change only by a DROP of this or another object.
    """
    from rw_sql.model.object_lookup import spoken
    from rw_sql.plan.deploy.columns import is_optional
    from rw_sql.syntax.lexing.identifiers import sql_name

    if allow_drop:
        return list(changes)
    required = next((change for change in changes if change.is_required_drop), None)
    if required is not None:
        kind = spoken(required.kind)
        raise SqlError(
            CANNOT_REPLACE,
            f'{kind} "{required.name}" is not in the folder, and other objects cannot change to their new definitions '
            f"unless it is dropped: {required.reason}",
            detail="\n".join(f"{text};" for text in required.texts),
            hint="rw-sql diff shows all changes; --allow-drop drops it, and does not create it again; SHOW CREATE "
            f"{kind.upper()} {sql_name(required.name)} shows the statement to add to the folder",
        )
    chosen = [change for change in changes if change.action != "drop" and not is_optional(snapshot, change)]
    for change in chosen:
        if change.needs_drop:
            kind = change.kind.replace("_", " ")
            why = f": {change.reason}" if change.reason else ""
            raise SqlError(
                CANNOT_REPLACE,
                f'{kind} "{change.name}" cannot change to its new definition without a DROP{why}',
                detail="\n".join(f"{text};" for text in change.texts),
                hint="rw-sql diff shows all changes; --allow-drop allows the DROP, and creates dependent objects again",
            )
    return chosen


def _require_secrets(snapshot: Snapshot, changes: Sequence[DeployChange]) -> None:
    """Raises SqlError, before anything is changed, if a change needs a secret that is not in the catalog and that no
    change creates."""
    from rw_sql.plan.deploy.order import secrets_of
    from rw_sql.syntax.lexing.identifiers import sql_name

    made = {change.name for change in changes if change.kind == "secret"}
    for change in changes:
        for name in (name for statement in change.statements for name in secrets_of(statement)):
            if name.key not in made and snapshot.find("secret", name.key) is None:
                where = f" at {change.place}" if change.place else ""
                raise SqlError(
                    UNDEFINED_OBJECT,
                    f'{change.kind.replace("_", " ")} "{change.name}"{where} needs secret "{name.key}", which does not '
                    "exist",
                    hint="nothing was changed; create it by hand, for example with rw-sql run: CREATE SECRET "
                    f"{sql_name(name.key)} WITH (backend = 'meta') AS 'the value'",
                )


def _require_yes(console: Console, count: int) -> None:
    from rich.text import Text

    if not (console.is_terminal and sys.stdin.isatty()):
        raise SqlError(
            CONFIRMATION_NEEDED,
            "these changes need a confirmation, but this session is not interactive",
            hint="nothing was changed; to apply the changes without a question, add --yes",
        )
    try:
        reply = console.input(Text(f"Make {count} change{'s' if count != 1 else ''}? Type yes: ", style="bold"))
    except EOFError:
        reply = ""
    if reply.strip().lower() not in {"y", "yes"}:
        raise SqlError(CONFIRMATION_NEEDED, "the changes were not confirmed", hint="nothing was changed")
