"""Finds the objects that a deployment must rename. In the folder, the statement of each of these objects has a comment
``-- rw: renamed from <name>``, and the name belongs to an object of the catalog."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.plan.deploy.folder import RELATIONS
from rw_sql.syntax.statements import Name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set

    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.plan.deploy.folder import FolderObject


def renames(
    folder: Sequence[FolderObject],
    find: Callable[[str, str], ObjectRecord | None],
    is_same: Callable[[ObjectRecord, FolderObject], bool],
) -> tuple[FolderObject, ...]:
    """Returns the objects to rename, sorted so that each object's new name is free when the object is renamed.

    ``find`` is a function that returns the catalog's object with a kind and name. ``is_same`` is a function that
    returns True if an object of the catalog has the definition of an object of the folder. An object is renamed only if
    no object of the catalog has the new name, or if an earlier rename frees the new name. If the folder also defines an
    object with the old name, one of two further conditions must hold. Either another rename gives the old name to a
    different object of the catalog. Or the catalog's definition under the old name equals the folder's definition under
    the new name, and differs from the folder's definition under the old name.
    """
    candidates = [wanted for wanted in folder if wanted.was is not None and find(wanted.kind, wanted.was) is not None]
    coming = {(wanted.kind, wanted.name) for wanted in candidates}
    # An object whose comment has no effect does not get its new name. If that name is removed from ``coming``, further
    # objects may turn out to keep their names.
    while True:
        done = _in_order(folder, candidates, coming, find, is_same)
        renamed = {(wanted.kind, wanted.name) for wanted in done}
        if renamed >= coming:
            return done
        coming &= renamed


def _in_order(
    folder: Sequence[FolderObject],
    candidates: Sequence[FolderObject],
    coming: Set[tuple[str, str]],
    find: Callable[[str, str], ObjectRecord | None],
    is_same: Callable[[ObjectRecord, FolderObject], bool],
) -> tuple[FolderObject, ...]:
    """Returns the objects to rename, in the order of the renames. Assumes that each (kind, name) in ``coming`` is the
    result of a rename."""
    by_key = {(wanted.kind, wanted.name): wanted for wanted in folder}
    left = list(candidates)
    freed: set[tuple[str, str]] = set()
    done: list[FolderObject] = []
    while True:
        for wanted in left:
            new, old = (wanted.kind, wanted.name), (wanted.kind, str(wanted.was))
            record, other = find(*old), by_key.get(old)
            if record is None or old in freed or (find(*new) is not None and new not in freed):
                continue
            takes_over = other is None or old in coming or (is_same(record, wanted) and not is_same(record, other))
            if takes_over:
                freed.add(old)
                done.append(wanted)
                left.remove(wanted)
                break
        else:
            return tuple(done)


def half_renamed(
    folder: Sequence[FolderObject],
    find: Callable[[str, str], ObjectRecord | None],
    is_kept: Callable[[ObjectRecord, FolderObject], bool],
) -> tuple[FolderObject, ...]:
    """Returns the objects whose rename was interrupted between the two statements of the rename. In the result, the
    former name of each object is its present, intermediate name.

    A rename to another schema and another name takes two statements. Between these statements, an object has a name
    that the folder does not contain. ``find`` has the same meaning as in :func:`renames`. ``is_kept`` is a function
    that returns True if a safe change in place gives an object of the catalog the definition in the folder. If
    ``is_kept`` returns False, the object does not count as half renamed.
    """
    found: list[FolderObject] = []
    names = names_of(folder)
    for wanted in folder:
        if wanted.was is None or wanted.kind not in RELATIONS or find(wanted.kind, wanted.was) is not None:
            continue
        if any(find(kind, wanted.name) is not None for kind in RELATIONS):
            continue
        for half in half_names(Name.of(wanted.was), Name.of(wanted.name)):
            record = None if half.key in names else find(wanted.kind, half.key)
            if record is not None and is_kept(record, wanted):
                found.append(replace(wanted, was=half.key))
                break
    return tuple(found)


def half_names(old: Name, new: Name) -> tuple[Name, Name]:
    """Returns the two names that an object may have between the two statements of its rename: the old name in the new
    schema, and the new name in the old schema."""
    return Name(parts=(*new.parts[:-1], old.last)), Name(parts=(*old.parts[:-1], new.last))


def names_of(folder: Sequence[FolderObject]) -> frozenset[str]:
    """The names of the folder's relations, and the former names that their comments state."""
    relations = [wanted for wanted in folder if wanted.kind in RELATIONS]
    return frozenset(name for wanted in relations for name in (wanted.name, wanted.was) if name is not None)


def with_own_schema(
    folder: Sequence[FolderObject], find: Callable[[str, str], ObjectRecord | None]
) -> tuple[FolderObject, ...]:
    """Returns the folder's objects. Adds the schema to each former name that has no schema.

    A comment may omit the schema of the former name. The name then refers to an object of ``public``. If ``public`` has
    no object with this name, the name refers to an object in the schema of the renamed object.
    """
    return tuple(_with_own_schema(wanted, find) for wanted in folder)


def _with_own_schema(wanted: FolderObject, find: Callable[[str, str], ObjectRecord | None]) -> FolderObject:
    schema = wanted.statement.name.schema
    if wanted.was is None or schema is None or Name.of(wanted.was).schema is not None:
        return wanted
    if find(wanted.kind, wanted.was) is not None:
        return wanted
    own = Name(parts=(schema, wanted.was)).key
    return replace(wanted, was=own) if own != wanted.name and find(wanted.kind, own) is not None else wanted
