"""The data of the recipe own-task: the same on each machine, with held-out rows of other templates and names."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

from scripts import make_own_task
from tests.conftest import REPOSITORY

DIGESTS = ["531ce4f170ed7a3c", "466180b0ea6b933f"]  # of train.jsonl and test.jsonl


def test_the_script_writes_the_same_files_on_each_machine(tmp_path: Path) -> None:
    script = REPOSITORY / "scripts" / "make_own_task.py"
    subprocess.run([sys.executable, script, "--output", tmp_path / "data"], check=True, cwd=tmp_path)
    digests = [
        hashlib.sha256((tmp_path / "data" / f"{split}.jsonl").read_bytes()).hexdigest()[:16]
        for split in ("train", "test")
    ]
    assert digests == DIGESTS, "the records in results/ were measured on these rows"


def test_held_out_rows_share_no_template_and_no_name_with_training_rows() -> None:
    for parts in (make_own_task.FIRST_NAMES, make_own_task.LAST_NAMES, make_own_task.COMPANIES):
        assert not set(parts["train"].split()) & set(parts["test"].split())
    assert not set(make_own_task.TEMPLATES["train"]) & set(make_own_task.TEMPLATES["test"])


def test_each_message_has_one_address() -> None:
    for split, number in make_own_task.ROWS.items():
        rows = make_own_task.make_rows(split)
        assert len({row["message"] for row in rows}) == number
        assert all(
            re.findall(r"\S+@[\w.-]*\w", row["message"].replace("(", " ")) == [row["final_answer"]] for row in rows
        )
