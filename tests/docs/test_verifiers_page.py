"""docs/verifiers.md as written: its commands, tables and recipe excerpt."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from rlvr.config.specs import RewardSpec
from rlvr.sandbox.languages import LANGUAGES
from rlvr.scoring.registry import load_rewards
from rlvr.verifiers.code.compare_output import output_fault
from rlvr.verifiers.code.options import COLUMNS
from rlvr.verifiers.code.tolerance import OUTPUT_COMPARISONS
from rlvr.verifiers.code.types import VERDICTS
from rlvr.verifiers.math import check_answer

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "verifiers.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^###? (.*?)\n(.*?)(?=^###? |\Z)", PAGE, re.MULTILINE | re.DOTALL))

EQUAL = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (right|wrong) \|", SECTIONS["Which answers are equal"], re.MULTILINE)
# Of rows that the page left out when it became shorter.
ALSO_EQUAL = [
    (r"−5", r"-5", "right"),
    (r"50%", r"50", "right"),
    (r"2 1/2", r"2.5", "right"),
    (r"-½", r"-0.5", "right"),
    (r"4.2e1", r"42", "right"),
    (r"0.3333333333", r"1/3", "right"),
    (r"0.6666666666", r"2/3", "wrong"),
    (r"0.6666666666666666", r"2/3", "right"),
    (r"0.1\overline{6}", r"1/6", "right"),
    (r"0.\overline{6}", r"0.66", "wrong"),
    (r"1,000.99 m²", r"1000.99", "right"),
    (r"1 000,99 €", r"1000.99", "right"),
    (r"2x = 10", r"5", "wrong"),
    (r"x = \sqrt{4} = 3", r"3", "wrong"),
    (r"2x - y + 3 = 0", r"y = 2x + 3", "right"),
    (r"x = 3 \text{ or } x = 7", r"3, 7", "right"),
    (r"\mathbb{R}", r"(-\infty,\infty)", "right"),
    (r"(12,102) \cup (2,12)", r"(2,12) \cup (12,102)", "right"),
    (r"3 \pm \sqrt2", r"3+\sqrt2, 3-\sqrt2", "right"),
    (r"no", r"No", "right"),
    (r"2024-02-01", r"2024-01-02", "wrong"),
    (r"2-0", r"2-0", "right"),
]
AROUND_A_BOX = re.findall(r"^\| [^`|]+ \| `(.*boxed\{7\}.*)` \| `(.*boxed\{7\}.*)` \|$", PAGE, re.MULTILINE)
ALSO_AROUND_A_BOX = [
    (r"\boxed{7} dozens of eggs in 4 weeks", r"\boxed{7} dozen in all"),
    (r"She has \boxed{7} quarters.", r"\boxed{7} quarters of the cake"),
    (r"$\boxed{7}$km", r"\boxed{7}x"),
    (r"The alarm rang \boxed{7} times in all.", r"\boxed{7} times four"),
    (r"\boxed{7} more than she has", r"\boxed{7} more than 5"),
    (r"\boxed{7} days or 1 week", r"\boxed{7} eggs or 8 eggs"),
    (r"\boxed{7} of the 20 eggs", r"\boxed{7}% of 50"),
    (r"\boxed{7} = 7 eggs", r"\boxed{7} (8 eggs)"),
    (r"\boxed{7} if we count the dog", r"\boxed{7} if x, 8 if y"),
    (r"\boxed{7}. 3 of them are red.", r"\boxed{7}. No, 8."),
    (r"\boxed{7} answers were wrong.", r"\boxed{7}, which is wrong"),
    (r"\boxed{7} eggs to actually bake it", r"\boxed{7} eggs, actually 8"),
    (r"If she sells 3, she has \boxed{7}.", r"If it were \boxed{7}, she would have 8."),
]
COMPARED = re.findall(
    r"^\| `(\w+)` \| `(.+?)` \| `(.+?)` \| (right|wrong) \|", SECTIONS["How outputs are compared"], re.MULTILINE
)


def test_the_page_has_its_tables() -> None:
    assert len(EQUAL) > 10
    assert len(AROUND_A_BOX) > 4
    assert {comparison for comparison, *_ in COMPARED} == set(OUTPUT_COMPARISONS)


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "reference", "verdict"), EQUAL + ALSO_EQUAL)
def test_answers_are_equal_as_the_table_says(answer: str, reference: str, verdict: str) -> None:
    assert check_answer(f"\\boxed{{{answer}}}", reference).correct is (verdict == "right")
    assert check_answer(f"#### The final answer is {answer}", reference).correct is (verdict == "right")


@pytest.mark.parametrize(("right", "wrong"), AROUND_A_BOX + ALSO_AROUND_A_BOX)
def test_text_around_a_box_matters_as_the_table_says(right: str, wrong: str) -> None:
    assert check_answer(right, "7").correct is True
    assert check_answer(wrong, "7").correct is False


@pytest.mark.parametrize(
    "example", re.findall(r"`([^`]*18[^`]*)`", SECTIONS["Which answer is read"].split("With `")[0])
)
def test_the_notations_of_the_page_are_read(example: str) -> None:
    assert check_answer(example, "18").correct is True


@pytest.mark.parametrize(
    ("form", "is_read"),
    [
        ("\\boxed{%s}", True),
        ("<answer>%s</answer>", True),
        ("#### The final answer is %s", True),
        ("Answer: %s", True),
        ("#### %s", False),
        ("A: %s", False),
        ("%s", False),
    ],
)
def test_words_are_read_in_the_notations_that_the_page_names(form: str, is_read: bool) -> None:
    for word, reference in (("three", "3"), ("even", "\\text{Even}")):
        assert check_answer(form % word, reference).correct is is_read
    for word, reference in (("Three", "3"), ("Even", "\\text{Even}")):
        assert check_answer(form % word, reference).correct is (is_read or form != "%s")
    assert check_answer("The answer is three.", "3").correct
    assert check_answer("The answer is even.", "\\text{Even}").correct is True


@pytest.mark.slow
def test_the_commands_work() -> None:
    printed = [
        subprocess.run(
            [sys.executable, "-c", command], cwd=REPOSITORY, capture_output=True, text=True, check=True
        ).stdout
        for command in re.findall(r"^python -c '(.*)'$", PAGE, re.MULTILINE)
    ]
    assert printed[0].startswith("AnswerVerdict(correct=True")
    assert printed[1].splitlines()[-1] == "[0.5]"
    assert printed[2].startswith("sandbox ")


@pytest.mark.parametrize(("comparison", "expected", "printed", "verdict"), COMPARED)
def test_outputs_compare_as_the_table_says(comparison: str, expected: str, printed: str, verdict: str) -> None:
    def as_text(written: str) -> str:
        return written.replace("\\n", "\n").replace("\\r", "\r")

    reason = output_fault(as_text(expected), as_text(printed).encode(), comparison)
    assert (reason is None) == (verdict == "right"), reason


def test_the_page_names_every_column_language_and_verdict() -> None:
    columns = re.findall(r"^\| (`.+?`) \|", SECTIONS["Columns of the data"], re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(columns))) == set(COLUMNS)
    assert all(f"`{name}`" in SECTIONS["Columns of the data"] for name in LANGUAGES)
    assert re.findall(r"^\| ([A-Z]+) \|", SECTIONS["Verdicts"], re.MULTILINE) == list(VERDICTS)


def test_the_recipe_excerpt_scores() -> None:
    (excerpt,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    rewards = load_rewards([RewardSpec(**entry) for entry in YAML(typ="safe").load(excerpt)["rewards"]])
    program = "```python\nprint(sum(map(int, input().split())))\n```"
    columns: dict[str, Any] = {"tests": [[{"input": "1 2", "output": "3"}]]}
    values = {reward.name: reward([""], [program], **columns)[0] for reward in rewards}
    assert values == {"code_execution": 1.0, "code_format": 1.0, "code_quality": pytest.approx(0.3)}
