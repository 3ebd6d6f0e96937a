"""INJECT CHECKPOINT OFFSETS for partitions that the checkpoint of a job with several Kafka sources lacks, or whose ends
are unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from tests.checkpoints.made import kafka, make_checkpoint
from tests.plan.canned import HERE, refused
from tests.plan.statements.checkpoint.test_lower_checkpoint import BROKERS, inject, positions_after, world_of

if TYPE_CHECKING:
    from pathlib import Path


def test_every_name_in_a_preview_names_its_split_in_a_statement(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    new = {"0/b:0": 1, "b:1": 2, "1/b:0": 3, "0/new:0": 4, "1/new:0": 5, "a:2": 6}

    def values(positions: dict[str, int]) -> str:
        return inject(path, f"VALUES ({', '.join(f'{split!r} = {at}' for split, at in positions.items())})")

    first = positions_after(world, values(new))
    assert first == {"a:0": 40, "a:1": 50, "b:0": 3, "0/b:0": 1, "b:1": 2, "0/new:0": 4, "1/new:0": 5, "a:2": 6}
    again = {split: at for split, at in first.items() if at is not None}
    assert positions_after(world, values(again)) == first


def test_a_new_partition_gets_its_position_from_a_checkpoint_of_any_number_of_sources(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    one = make_checkpoint(tmp_path / "one", [kafka(new=[11])])
    two = make_checkpoint(tmp_path / "two", [kafka(new=[0]), kafka(new=[13])])
    of_one = positions_after(world, inject(path, f"FROM CHECKPOINT '{one}' FOR SPLITS ('1/new:0')"))
    assert of_one == {"a:0": 40, "a:1": 50, "b:0": 7, "1/new:0": 11}
    of_two = positions_after(world, inject(path, f"FROM CHECKPOINT '{two}' FOR SPLITS ('0/new:0', '1/new:0')"))
    assert of_two == {"a:0": 40, "a:1": 50, "b:0": 7, "0/new:0": 0, "1/new:0": 13}


def test_a_new_partition_does_not_get_the_position_of_another_source_of_its_topic(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    other = make_checkpoint(tmp_path / "other", [kafka(b=[10, 900]), kafka(b=[20])])
    moved = inject(path, f"FROM CHECKPOINT '{other}' FOR SPLITS ('1/b:0', '1/b:1')")
    assert positions_after(world, moved)["b:0"] == 20
    assert refused(world, inject(path, f"FROM CHECKPOINT '{other}' FOR SPLITS ('1/b:1')")).code == "RW310"


@pytest.mark.parametrize(
    ("doubt", "hint"),
    [
        ("no answer", "run the statement again once the brokers answer"),
        ("not there", "name the other splits in FOR SPLITS, without this split"),
    ],
)
def test_the_hint_of_unknown_ends_depends_on_the_reason(tmp_path: Path, doubt: str, hint: str) -> None:
    world, path = world_of(tmp_path)
    if doubt == "no answer":
        world.silent.add(HERE)
    else:
        del world.topics[HERE, "b"]
    brokers = BROKERS.replace(")", ", VALIDATE = false)")
    with pytest.raises(SqlError) as caught:
        world.plan(inject(path, f"TO LATEST {brokers}"))
    assert caught.value.message.endswith(f"in its upstream are unknown ({doubt})")
    assert caught.value.hint == hint
