"""Runs the commands of ``rw-sql checkpoint``. The module converts each command to a SQL statement, and plans and
executes the statement without a warehouse."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from rw_sql.checkpoints.checkpoint import read_checkpoint
from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.checkpoints.journal import UNDONE, read_journal
from rw_sql.cli.interface.options import PICTURES, require_output
from rw_sql.cli.terminal.output import console_for, print_rows
from rw_sql.cli.text_input import write_text
from rw_sql.connectors.spec import duration_seconds
from rw_sql.errors import CONFIRMATION_NEEDED, INVALID_OPTION, NOT_SUPPORTED, SqlError
from rw_sql.metastore.commits import user_name
from rw_sql.model.offset_files import FORMS, write_offsets
from rw_sql.plan.result.external_actions import WATCH_SECONDS, RewriteCheckpoint
from rw_sql.plan.result.picture import plan_mermaid, plan_svg
from rw_sql.plan.result.preview_text import render_preview
from rw_sql.plan.statements.checkpoint.checkpoint import (
    lower_inject_checkpoint_offsets,
    lower_show_checkpoint,
    lower_undo_checkpoint,
)
from rw_sql.plan.statements.checkpoint.shown_rewrite import is_rewrite_current
from rw_sql.runtime.control.checkpoint_folders import carry_out
from rw_sql.runtime.control.checkpoint_inspector import CheckpointInspector, secrets_of_environment
from rw_sql.session.results import Rows, cell_text
from rw_sql.syntax import render
from rw_sql.syntax.statements import (
    InjectBack,
    InjectCheckpointOffsets,
    InjectFromCheckpoint,
    InjectFromFile,
    InjectFromGroup,
    InjectShift,
    InjectTo,
    InjectToOffset,
    InjectToTimestamp,
    InjectValues,
    Name,
    NullValue,
    NumberValue,
    Option,
    SecretValue,
    ShowCheckpoint,
    SplitEntry,
    SplitId,
    TextValue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import Console

    from rw_sql.plan.result.plan import Plan, Table
    from rw_sql.syntax.statements import InjectTarget

_ALLOW = ("GAPS", "DUPLICATES", "CLAMP")
_CHANGED = "Nothing was changed: the checkpoint or its upstream has changed since this preview. The new preview:"
_STOPPED = "Is the job that uses this checkpoint stopped? Type yes: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstreams:
    """The settings for reading the state of a job's upstreams: the options of the Kafka client, and the paths of the
    Delta tables."""

    options: tuple[Option, ...] = ()
    tables: tuple[str, ...] = ()

    @staticmethod
    def of(
        bootstrap: str | None, properties: list[str] | None, secrets: list[str] | None, tables: list[str] | None
    ) -> Upstreams:
        """Reads these settings from the command line's options. Raises SqlError INVALID_OPTION."""
        options = [] if bootstrap is None else [_option("properties.bootstrap.server", TextValue(text=bootstrap))]
        for written in properties or []:
            key, value = _pair(written, "--property")
            options.append(_option(_full_key(key), TextValue(text=value)))
        for written in secrets or []:
            key, variable = _pair(written, "--secret")
            options.append(_option(_full_key(key), SecretValue(secret=Name(parts=(variable,)))))
        return Upstreams(options=tuple(options), tables=tuple(tables or ()))

    def inspector(self) -> CheckpointInspector:
        """The inspector for these upstreams."""
        named = (option.value for option in self.options)
        return CheckpointInspector(
            snapshot=secrets_of_environment(value.secret.key for value in named if isinstance(value, SecretValue))
        )


def _option(key: str, value: TextValue | SecretValue) -> Option:
    return Option(key=key, value=value)


def _full_key(key: str) -> str:
    return key if key.startswith("properties.") else f"properties.{key}"


def _pair(written: str, option: str) -> tuple[str, str]:
    key, equal, value = written.partition("=")
    if not equal or not key.strip():
        raise SqlError(
            INVALID_OPTION,
            f"{option} takes KEY=VALUE, found: {written.partition('=')[0]!r}",
            hint=f"{option} properties.client.id=me",
        )
    return key.strip(), value


def target_of(
    *,
    set_: Sequence[str],
    file: str | None,
    from_group: str | None,
    from_checkpoint: str | None,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_timestamp: str | None,
    shift_by: int | None,
    back_by: str | None,
) -> InjectTarget:
    """The target on the command line. Raises SqlError INVALID_OPTION if the command line has no target or several
    targets."""
    given: dict[str, InjectTarget] = {}
    if set_:
        given["--set"] = InjectValues(entries=tuple(_entry(written) for written in set_))
    if file is not None:
        given["--file"] = InjectFromFile(path=file)
    if from_group is not None:
        given["--from-group"] = InjectFromGroup(group=from_group)
    if from_checkpoint is not None:
        given["--from-checkpoint"] = InjectFromCheckpoint(path=from_checkpoint)
    if to_earliest:
        given["--to-earliest"] = InjectTo(where="earliest")
    if to_latest:
        given["--to-latest"] = InjectTo(where="latest")
    if to_offset is not None:
        given["--to-offset"] = InjectToOffset(offset=to_offset)
    if to_timestamp is not None:
        given["--to-timestamp"] = InjectToTimestamp(timestamp=to_timestamp)
    if shift_by is not None:
        given["--shift-by"] = InjectShift(records=shift_by)
    if back_by is not None:
        given["--back-by"] = InjectBack(interval=back_by)
    if len(given) != 1:
        found = f"found: {', '.join(given)}" if given else "found none"
        raise SqlError(
            INVALID_OPTION,
            f"exactly one option must give the new positions, {found}",
            hint="--set orders:0=42, --file offsets.json, --to-earliest, --to-latest, --shift-by -10",
        )
    return next(iter(given.values()))


def _entry(written: str) -> SplitEntry:
    # A split's name contains no equals sign, but a position in JSON may.
    split, equal, text = written.partition("=")
    if not equal or not split.strip():
        raise SqlError(INVALID_OPTION, f"--set takes SPLIT=N, found: {written!r}", hint="--set orders:0=42")
    value = text.strip()
    state: NumberValue | TextValue | NullValue = TextValue(text=value)
    if value.isascii() and value.lstrip("+-").isdecimal():
        state = NumberValue(text=value)
    elif value.lower() == "null":
        state = NullValue()
    return SplitEntry(split=SplitId(id=split.strip()), value=state)


def statement_of(
    path: str,
    target: InjectTarget,
    upstreams: Upstreams,
    *,
    splits: Sequence[str],
    allow: Sequence[str],
    is_last_seen: bool,
    is_exactly: bool,
    is_validated: bool,
    watch: str | None,
    reason: str | None,
    is_assumed_stopped: bool,
) -> InjectCheckpointOffsets:
    """The statement of ``set-offsets``. Raises SqlError INVALID_OPTION."""
    words = tuple(dict.fromkeys(word.upper() for word in allow))
    if strange := [word for word in words if word not in _ALLOW]:
        raise SqlError(
            INVALID_OPTION,
            f"--allow takes gaps, duplicates and clamp, found: {strange[0].lower()!r}",
            hint="name the predicted effects that you accept, separated by commas",
        )
    return InjectCheckpointOffsets(
        path=path,
        target=target,
        splits=tuple(SplitId(id=split) for split in splits),
        allow=words,
        options=upstreams.options,
        tables=upstreams.tables,
        convention="last_seen" if is_last_seen else "next",
        is_exactly=is_exactly,
        is_validated=is_validated,
        watch=watch,
        reason=reason,
        is_assumed_stopped=is_assumed_stopped,
    )


def show_checkpoint(path: str, upstreams: Upstreams, *, is_json: bool, is_sql_only: bool) -> None:
    """Prints the positions of a checkpoint. If ``is_sql_only`` is true, prints only the statement that shows them."""
    statement = ShowCheckpoint(path=path, options=upstreams.options, tables=upstreams.tables)
    console = console_for()
    if is_sql_only:
        console.print(Text(render(statement) + ";"))
        return
    files = CheckpointFiles.at(path)
    checkpoint = read_checkpoint(files)
    inspector = upstreams.inspector()
    table = lower_show_checkpoint(statement, inspector.snapshot, inspector).table
    assert table is not None
    rewrites = [entry for entry in read_journal(files) if entry.state != UNDONE]
    facts: dict[str, Any] = {
        "checkpoint": path,
        "query": checkpoint.query_id,
        "batch": checkpoint.batch,
        "planned": checkpoint.planned,
        "offset_log": f"v{checkpoint.entry.version}",
        "watermark_ms": checkpoint.watermark_ms or None,
        "state": list(checkpoint.operators),
        "rewrites": [
            {"operation": entry.number, "state": entry.state, "at": entry.at, "by": entry.actor, "batch": entry.batch}
            for entry in rewrites
        ],
    }
    shown = _without(table, ("batch", "watermark"))
    if is_json:
        names = [name for name, _ in shown.columns]
        facts["splits"] = [dict(zip(names, row, strict=True)) for row in shown.rows]
        print_json(facts)
        return
    committed = f"batch {checkpoint.batch} committed"
    if checkpoint.planned > checkpoint.batch:
        committed += f", batch {checkpoint.planned} planned and not committed"
    console.print(Text(f"query {checkpoint.query_id}: {committed}, offset log v{checkpoint.entry.version}"))
    if checkpoint.watermark_ms:
        moment = datetime.fromtimestamp(checkpoint.watermark_ms / 1000, UTC)  # The time is in UTC, as in previews.
        console.print(Text(f"watermark: {moment.isoformat(sep=' ', timespec='milliseconds')}"))
    console.print(Text(f"keeps the state of: {', '.join(checkpoint.operators) or 'none'}"))
    for entry in rewrites:
        console.print(Text(f"rewritten by {entry.actor} at {entry.at} (operation {entry.number}, {entry.state})"))
    print_rows(console, _as_rows(shown))


def export_checkpoint(path: str, *, form: str, group: str | None, file: str | None) -> None:
    """Writes the positions of a checkpoint in the requested format to a file. If ``file`` is None, writes to standard
    output."""
    require_output(form, FORMS)
    splits = {split.id: split.position for split in read_checkpoint(CheckpointFiles.at(path)).splits}
    try:
        text = write_offsets(form, splits, group=group)
    except ValueError as error:
        raise SqlError(
            NOT_SUPPORTED,
            f"the form {form} cannot hold these positions: {error}",
            hint="use --output map, which can hold every position",
        ) from error
    if file is None:
        sys.stdout.write(text)
        return
    write_text(file, text)


def move_checkpoint(
    statement: InjectCheckpointOffsets,
    upstreams: Upstreams,
    *,
    is_yes: bool,
    is_dry_run: bool,
    is_sql_only: bool,
    output: str,
) -> None:
    """Plans the statement, asks for confirmation, and carries out the plan. If ``is_sql_only`` is true, only prints the
    statement."""
    if is_sql_only:
        console_for().print(Text(render(statement) + ";"))
        return
    # The user is asked in a separate question whether the job is stopped. The question after the preview therefore does
    # not ask this again.
    asked = replace(statement, is_assumed_stopped=True)

    def make_plan() -> Plan:
        inspector = upstreams.inspector()
        return lower_inject_checkpoint_offsets(asked, inspector.snapshot, inspector)

    def is_current(shown: Plan) -> bool:
        inspector = upstreams.inspector()
        return is_rewrite_current(shown, inspector.snapshot, inspector)

    _carry_out(
        make_plan,
        is_current,
        statement.path,
        is_assumed_stopped=statement.is_assumed_stopped,
        is_yes=is_yes,
        is_dry_run=is_dry_run,
        output=output,
    )


def undo_checkpoint(
    path: str, *, watch: str | None, is_assumed_stopped: bool, is_yes: bool, is_dry_run: bool, output: str
) -> None:
    """Restores the files that the last rewrite replaced, after a confirmation."""
    seconds = WATCH_SECONDS if watch is None else duration_seconds(watch)
    if seconds is None:
        raise SqlError(
            INVALID_OPTION, f"--watch must be a time such as 10s or 2min, found: {watch!r}", hint="--watch 10s"
        )

    def make_plan() -> Plan:
        return lower_undo_checkpoint(
            ShowCheckpoint(path=path), CheckpointInspector(), path, watch_seconds=seconds, is_assumed_stopped=True
        )

    _carry_out(
        make_plan,
        lambda shown: make_plan() == shown,
        path,
        is_assumed_stopped=is_assumed_stopped,
        is_yes=is_yes,
        is_dry_run=is_dry_run,
        output=output,
    )


def _carry_out(
    make_plan: Callable[[], Plan],
    is_current: Callable[[Plan], bool],
    path: str,
    *,
    is_assumed_stopped: bool,
    is_yes: bool,
    is_dry_run: bool,
    output: str,
) -> None:
    """Shows a plan, asks for confirmation, and carries out the plan. If ``is_dry_run`` is true, only shows the plan.

    A person may take long to answer. If the effect of the plan has changed before the answer (``is_current`` returns
    False), the function plans again. If the new plan differs from the plan that was shown, the function shows the new
    plan and asks again.
    """
    is_json, is_picture = output == "json", output in PICTURES
    console = console_for(sys.stderr if is_json or is_picture else None)
    plan = make_plan()
    if is_picture:
        sys.stdout.write(plan_svg(plan) if output == "svg" else plan_mermaid(plan))
        return
    number = None
    while True:
        if plan.preview is not None and not (is_json and is_dry_run):
            console.print(Text(render_preview(plan.preview)))
        if plan.effect is None or is_dry_run:
            break
        was_asked = _ask(console, plan, is_assumed_stopped=is_assumed_stopped, is_yes=is_yes)
        shown, plan = plan, plan if not was_asked or is_current(plan) else make_plan()
        if plan == shown and plan.effect is not None:
            number = carry_out(plan.effect, actor=user_name())
            break
        console.print(Text(_CHANGED))
    changes = [{"object": row.object, "change": row.change, "detail": row.detail} for row in plan.changes]
    if is_json:
        splits = [
            {"split": row.split, "old": row.old, "new": row.new, "verdict": row.verdict}
            for row in (plan.preview.splits if plan.preview else ())
        ]
        notices = list(plan.preview.notices) if plan.preview else []
        print_json(
            {
                "checkpoint": path,
                "operation": number,
                "is_done": number is not None,
                "splits": splits,
                "notices": notices,
                "changes": changes,
            }
        )
        return
    if is_dry_run:
        console.print(Text("Nothing was changed: --dry-run.", style="dim"))
        return
    rows = tuple((row["change"], row["detail"]) for row in changes)
    print_rows(console, Rows(columns=("change", "detail"), rows=rows))
    if number is not None and isinstance(plan.effect, RewriteCheckpoint):
        console.print(Text(f"Operation {number}. To undo it: rw-sql checkpoint undo {path}", style="dim"))


def _ask(console: Console, plan: Plan, *, is_assumed_stopped: bool, is_yes: bool) -> bool:
    """Asks whether the job is stopped, and whether the plan should be carried out. Raises SqlError CONFIRMATION_NEEDED
    unless both points are confirmed. Returns True if the user has answered a question. Returns False if the command's
    options have confirmed both points."""
    can_ask = console.is_terminal and sys.stdin.isatty()
    if not is_assumed_stopped and not (can_ask and _is_yes(console, _STOPPED)):
        raise SqlError(
            CONFIRMATION_NEEDED,
            "nobody confirmed that the job is stopped"
            if can_ask
            else "cannot ask whether the job is stopped, because this session is not interactive",
            hint="nothing was changed; stop the job, then run this with --assume-stopped",
        )
    if is_yes and not plan.unallowed:
        return not is_assumed_stopped
    if can_ask and _is_yes(console, "Go ahead? Type yes: "):
        return True
    lacking = f" --allow {','.join(word.lower() for word in plan.unallowed)}" if plan.unallowed else ""
    raise SqlError(
        CONFIRMATION_NEEDED,
        "the operation was not confirmed"
        if can_ask
        else "this operation needs a confirmation, but this session is not interactive",
        hint=f"nothing was changed; to do what is shown above, add --yes{lacking} --assume-stopped",
    )


def _is_yes(console: Console, question: str) -> bool:
    try:
        reply = console.input(Text(question, style="bold"))
    except EOFError:
        return False
    return reply.strip().lower() in {"y", "yes"}


def _without(table: Table, names: Iterable[str]) -> Table:
    left_out = set(names)
    kept = [at for at, (name, _) in enumerate(table.columns) if name not in left_out]
    return replace(
        table,
        columns=tuple(table.columns[at] for at in kept),
        rows=tuple(tuple(row[at] for at in kept) for row in table.rows),
    )


def _as_rows(table: Table) -> Rows:
    """Returns the rows as text. Times are shown with their zone. The zone is always UTC, because there is no Spark
    session whose time zone could apply."""
    rows = (((str(value) if isinstance(value, datetime) else cell_text(value)) for value in row) for row in table.rows)
    return Rows(columns=tuple(name for name, _ in table.columns), rows=tuple(map(tuple, rows)))


def print_json(value: object) -> None:
    """Prints a JSON document to standard output."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")
