"""Public names and signatures change on purpose: ``tests/fixtures/public_api.txt`` records them."""

from __future__ import annotations

import ast
from difflib import unified_diff
from typing import TYPE_CHECKING

from tests.conftest import FIXTURES
from tests.support import public_api

if TYPE_CHECKING:
    import pytest

RECORD = FIXTURES / "public_api.txt"


def test_no_public_name_or_signature_changed_unnoticed(request: pytest.FixtureRequest) -> None:
    present = public_api.public_api()
    if request.config.getoption("--record"):
        RECORD.write_text(present, encoding="utf-8")
    recorded = RECORD.read_text(encoding="utf-8").splitlines()
    difference = "\n".join(unified_diff(recorded, present.splitlines(), "recorded", "present", n=0, lineterm=""))
    assert not difference, (
        "the public names differ from those recorded. If that is meant, say so in CHANGELOG.md, and record them: "
        f"pytest --record tests/harness/test_public_api.py\n{difference}"
    )


def test_a_changed_default_a_new_option_and_a_lost_member_are_seen() -> None:
    def lines(text: str) -> list[str]:
        (node,) = ast.parse(text).body
        return list(public_api.described("m", node))

    assert lines("def f(a: int, *, b: str = 'x') -> None: ...") == ["def m.f(a: int, *, b: str='x') -> None"]
    assert lines(
        "class C(B):\n  x: int = 1\n  _y = 2\n  @property\n  def z(self) -> int: ...\n  def _w(self): ..."
    ) == [
        "class m.C(B)",
        "m.C.x: int = 1",
        "@property def m.C.z(self) -> int",
    ]
    assert lines("_hidden = 1") == lines("def _f(): ...") == lines("class _C: ...") == lines("import os") == []
    assert lines("LIMIT = 3") == ["m.LIMIT = 3"]
