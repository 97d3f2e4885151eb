"""The public names of `rlvr`: documented, and loaded on first use."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import rlvr

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE, _, LIMITS = (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8").partition("\n## Limits\n")


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_api_page_documents_each_public_name_and_no_other() -> None:
    first_cells = re.findall(r"^\| (`.*?`) \|", PAGE, re.MULTILINE)
    documented = {name for cell in first_cells for name in re.findall(r"`(\w+)", cell)}
    assert documented == set(rlvr.__all__)


def test_the_api_page_documents_each_limit_with_its_default() -> None:
    documented = dict(re.findall(r"^\| `(\w+)` \| (\S+)", LIMITS, re.MULTILINE))
    assert documented.pop("wall_s") == "twice"
    assert documented == {field.name: str(field.default) for field in fields(rlvr.Limits) if field.name != "wall_s"}


def test_every_public_name_loads() -> None:
    assert all(getattr(rlvr, name) is not None for name in rlvr.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = rlvr.no_such_name


@pytest.mark.parametrize(
    "statement", ["import rlvr", "from rlvr import check_answer, judge, Limits, Task, load_recipe, Reward"]
)
def test_public_names_load_neither_torch_nor_trl(statement: str) -> None:
    assert run(f"{statement}; import sys; print([m for m in ('torch', 'trl', 'sympy') if m in sys.modules])") == "[]"
