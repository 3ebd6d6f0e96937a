"""How a commit or snapshot of a log is divided into shares: each row is in one share, and the shares are in order."""

from __future__ import annotations

import json
from random import Random

from rw_sql.runtime.positions.ordered_log import LOG_ORDER, File, Position, Shares, cuts_of, number_of_shares

COLUMNS = LOG_ORDER[:4]


def test_no_commit_has_more_shares_than_delta_makes_batches_of_it() -> None:
    random = Random(5)
    for _ in range(2_000):
        sizes = [random.randint(1, 50) for _ in range(random.randint(1, 30))]
        most = random.randint(1, 100)
        batches, left = 1, most
        for size in sizes:
            # Delta takes a file if the batch has any room, however large the file is.
            if left <= 0:
                batches, left = batches + 1, most
            left -= size
        shares = number_of_shares(sizes, most)
        assert 1 <= shares <= batches
        assert sum(sizes) / shares < most + max(sizes)


def test_shares_have_about_the_same_number_of_rows() -> None:
    positions: list[Position] = [(1, 1, "s", offset) for offset in range(1_000)]
    Random(1).shuffle(positions)
    assert cuts_of(positions, 4) == ((1, 1, "s", 250), (1, 1, "s", 500), (1, 1, "s", 750))


def test_a_cut_never_divides_rows_with_one_position() -> None:
    one: Position = (1, 1, "a.gz", 0)
    assert cuts_of([one] * 50, 4) == ()
    assert cuts_of([one] * 50 + [(1, 1, "b.gz", 0)] * 50, 4) == ((1, 1, "b.gz", 0),)
    assert cuts_of([], 3) == ()


def test_rows_without_a_batch_number_come_before_rows_with_one() -> None:
    assert cuts_of([(1, 0, "s", 1), (1, None, "s", 5)], 2) == ((1, 0, "s", 1),)


def _draw(random: Random) -> tuple[dict[str, list[Position]], Shares]:
    """Files whose rows overlap, in any order, with the shares of their rows."""
    rows = {(1, random.choice((None, 1, 2)), random.choice("ab"), random.randint(0, 60)) for _ in range(80)}
    files: dict[str, list[Position]] = {f"f{number}": [] for number in range(6)}
    for row in rows:
        files[random.choice([*files])].append(row)

    def key(position: Position) -> list[tuple[bool, object]]:
        return [(value is not None, value) for value in position]

    known = [
        File(path=name, first=min(found, key=key), last=max(found, key=key)) for name, found in files.items() if found
    ]
    return files, Shares(columns=COLUMNS, files=tuple(known), cuts=cuts_of(rows, random.randint(1, 7)))


def filled(position: Position) -> tuple[int, ...]:
    """A position with the smallest value in the place of NULL."""
    return tuple(-1 if value is None else value for value in position)


def test_each_row_is_read_once_and_in_order() -> None:
    random = Random(7)
    for _ in range(300):
        files, shares = _draw(random)
        found: list[tuple[int, ...]] = []
        steps: list[tuple[int, int | None]] = [(number, number + 1) for number in range(len(shares.cuts))]
        for done, upto in [*steps, (len(shares.cuts), None)]:
            low, high = shares.bounds(done, upto)
            rows = [filled(row) for path in shares.files_between(low, high) for row in files[path]]
            found += sorted(
                row for row in rows if (low is None or row >= filled(low)) and (high is None or row < filled(high))
            )
        assert found == sorted(found)
        assert len(found) == len(set(found)) == sum(map(len, files.values()))


def test_shares_are_stored_as_json() -> None:
    for seed in range(20):
        _, shares = _draw(Random(seed))
        assert Shares.from_json(json.loads(shares.to_json())) == shares
