"""docs/code-rewards.md as written: its commands, tables and recipe excerpt."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from rewards.code_execution import code_execution
from rlvr.config.specs import RewardSpec
from rlvr.scoring.registry import load_rewards
from rlvr.verifiers.code.compare_output import output_fault
from rlvr.verifiers.code.tolerance import OUTPUT_COMPARISONS

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "code-rewards.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
COMPARED = re.findall(
    r"^\| `(\w+)` \| `(.+?)` \| `(.+?)` \| (right|wrong) \|", SECTIONS["How outputs are compared"], re.MULTILINE
)
PARAMETERS = set(inspect.signature(code_execution).parameters)


def test_the_commands_work() -> None:
    printed = [
        subprocess.run(
            [sys.executable, "-c", command], cwd=REPOSITORY, capture_output=True, text=True, check=True
        ).stdout
        for command in re.findall(r"^python -c '(.*)'$", PAGE, re.MULTILINE)
    ]
    assert printed[0].splitlines()[-1] == "[0.5]"
    assert printed[1].startswith("sandbox ")


@pytest.mark.parametrize(("comparison", "expected", "printed", "verdict"), COMPARED)
def test_outputs_compare_as_the_table_says(comparison: str, expected: str, printed: str, verdict: str) -> None:
    def as_text(written: str) -> str:
        return written.replace("\\n", "\n").replace("\\r", "\r")

    reason = output_fault(as_text(expected), as_text(printed).encode(), comparison)
    assert (reason is None) == (verdict == "right"), reason


def test_the_table_has_every_comparison() -> None:
    assert {comparison for comparison, *_ in COMPARED} == set(OUTPUT_COMPARISONS)


def test_the_recipe_excerpt_scores() -> None:
    (excerpt,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    rewards = load_rewards([RewardSpec(**entry) for entry in YAML(typ="safe").load(excerpt)["rewards"]])
    program = "```python\nprint(sum(map(int, input().split())))\n```"
    columns: dict[str, Any] = {"tests": [[{"input": "1 2", "output": "3"}]]}
    values = {reward.name: reward([""], [program], **columns)[0] for reward in rewards}
    assert values == {"code_execution": 1.0, "code_format": 1.0, "code_quality": pytest.approx(0.3)}
