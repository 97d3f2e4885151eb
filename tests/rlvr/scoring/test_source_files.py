"""Modules that a reward's file imports are found and hashed, and no installed package is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlvr.scoring import source_files

REWARD = """
import json, numpy as np
import helper
from folder import inner, missing
from rlvr import check_answer
def reward(completions, **kwargs):
    from late import value
    import not_there
"""


def test_own_modules_are_found_wherever_and_however_they_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source_files._source_of.cache_clear()
    (tmp_path / "folder").mkdir()
    for name, text in {
        "reward.py": REWARD,
        "helper.py": "import helper, reward\n",  # circles end
        "folder/__init__.py": "",
        "folder/inner.py": "from . import sibling\nfrom .deep import x\n",
        "folder/sibling.py": "",
        "folder/deep.py": "import broken\n",
        "broken.py": "this is no Python",
        "late.py": "value = 1\n",
        "unused.py": "",
    }.items():
        (tmp_path / name).write_text(text)
    before = source_files.imported_digests([str(tmp_path / "reward.py")])
    found = {"rlvr", "helper", "folder", "folder.inner", "folder.sibling", "folder.deep", "broken", "late"}
    assert {name for name in before if not name.startswith(source_files.VERIFIERS)} == found
    assert not {"helper", "late", "broken"} & set(sys.modules), "nothing but packages is imported"
    (tmp_path / "folder" / "sibling.py").write_text("y = 2\n")
    after = source_files.imported_digests([str(tmp_path / "reward.py")])
    assert {name for name in found if after[name] != before[name]} == {"folder.sibling"}


@pytest.mark.parametrize("line", ["from rlvr import check_answer", "import rlvr.verifiers.math.grader as grader"])
def test_the_verifiers_that_a_reward_imports_are_listed_with_what_they_import(tmp_path: Path, line: str) -> None:
    source_files._source_of.cache_clear()
    (tmp_path / "mine.py").write_text(f"{line}\n")
    found = source_files.imported_digests([str(tmp_path / "mine.py")])
    assert {"rlvr.verifiers.math.grader", "rlvr.verifiers.math.numbers"} <= found.keys()
    assert not {name for name in found if name.startswith("rlvr.sandbox")}
