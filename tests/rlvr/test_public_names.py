"""The public names of `rlvr` are loaded on first use; tests/docs/test_reference.py holds their page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rlvr

REPOSITORY = Path(__file__).resolve().parents[2]


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.strip()


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
