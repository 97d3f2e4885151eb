"""The red team breaks rewards with a mistake, and neither sound nor merely lenient ones."""

from __future__ import annotations

import difflib
import fnmatch
import functools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from datasets import Dataset

from rewards.answer_format import answer_format
from rewards.code_execution import code_execution
from rewards.code_format import code_format
from rewards.math_correctness import math_correctness
from rewards.repetition import repetition
from rewards.tag_format import tag_format
from rlvr import judge
from rlvr.config.specs import TaskSpec
from rlvr.data.task import Task
from rlvr.reward_audit.findings import Findings
from rlvr.reward_audit.red_team import attack
from rlvr.scoring.registry import load_task
from rlvr.scoring.reward import Reward
from rlvr.scoring.scorer import Scorer
from tests.support.input_errors import input_error

FORMS = ("{}", "<answer>{}</answer>")
Check = Callable[[str, str, str], float]  # text, gold, prompt -> reward


def tag(text: str) -> str:
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[1].strip() if found else ""


def numbers(text: str) -> list[str]:
    return re.findall(r"-?\d+(?:\.\d+)?", text)


def number(text: str) -> float:
    """What `float` takes, nan and inf included; -1 for other text."""
    try:
        return float(text)
    except ValueError:
        return -1.0


def fails_open(text: str, gold: str) -> float:
    try:
        return float(int(text) == int(gold))
    except ValueError:
        return 1.0


def evaluated(text: str, gold: str) -> float:
    try:
        return float(bool(eval(text, {}) == int(gold)))
    except Exception:
        return 0.0


def as_json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def program(text: str) -> str:
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    return found[1] if found else "raise SystemExit(1)"


def matches(pattern: str, gold: str) -> bool:
    try:
        return re.fullmatch(pattern, gold) is not None
    except re.error:
        return False


@functools.cache
def verdict_of(program: str, output: str = "OK\nAll tests passed.\n5 passed in 0.01s\n") -> str:
    return judge(program, language="python", tests=[{"input": "1\n", "output": output}]).verdicts[0]


# What is wrong with the reward, as graders and reward functions in public repositories have it -> the reward.
HACKABLE: dict[str, Check] = {
    "the answer is anywhere in the text": lambda t, g, p: g in t,
    "any number of the text is the answer": lambda t, g, p: g in numbers(t),
    "eval() of the completion": lambda t, g, p: evaluated(t, g),
    "search instead of fullmatch in the tag": lambda t, g, p: bool(re.search(rf"\b{g}\b", tag(t))),
    "a distance to nan is not too large": lambda t, g, p: not abs(number(t) - int(g)) > 1e-6,
    "tolerance relative to the prediction": lambda t, g, p: abs(number(t) - int(g)) <= 0.01 * abs(number(t)),
    "tolerance larger than the answers": lambda t, g, p: abs(number(tag(t)) - int(g)) < 60,
    "points for each tag, without a limit": lambda t, g, p: (tag(t) == g) + 0.25 * len(re.findall("</?[a-z]+>", t)),
    "length, not gated": lambda t, g, p: (tag(t) == g) + min(len(t) / 1000, 1.0),
    "a judge that looks for words": lambda t, g, p: "correct" in t.lower() and "not" not in t.lower().split(),
    "the gold starts with the answer": lambda t, g, p: g.lower().startswith(tag(t).lower()),
    "the answer is a part of the gold": lambda t, g, p: "answer" in t.lower() and tag(t) in g,
    "the answer is used as a pattern": lambda t, g, p: matches(tag(t), g),
    "the answer is used as a wildcard": lambda t, g, p: fnmatch.fnmatch(g, t.strip()),
    "any of several boxes": lambda t, g, p: g in numbers(" ".join(re.findall(r"\\boxed{(.*?)}", t))),
    "the same set of characters": lambda t, g, p: set(g) <= set(tag(t)),
    "overlap with the question": lambda t, g, p: difflib.SequenceMatcher(None, t, p, autojunk=False).ratio(),
    "JSON with the right key": lambda t, g, p: 0.2 * (as_json(t).get("answer") == g) + 0.8 * ("answer" in as_json(t)),
    "the last line contains the answer": lambda t, g, p: g in (t.strip().splitlines() or [""])[-1],
    "recall of characters": lambda t, g, p: sum(c in t for c in g) / len(g),
    "what can't be read passes": lambda t, g, p: fails_open(t, g),
    "only mistakes cost": lambda t, g, p: 1.0 - 0.5 * any(n != g for n in numbers(t)),
    "half for a text without an answer": lambda t, g, p: float(tag(t) == g) if tag(t) else 0.5,
    "the model's own grade": lambda t, g, p: max([int(n) for n in re.findall(r"Score: (\d+)/10", t)], default=0) / 10,
    "an answer to any next problem": lambda t, g, p: g in re.findall(r"Answer: (\d+)", t),
    "the form outweighs the answer": lambda t, g, p: (tag(t) == g) + 2.0 * t.startswith("<think>"),
    "agrees with itself": lambda t, g, p: len(numbers(t)) > 1 and numbers(t)[0] == numbers(t)[-1],
}
# Of different kinds: a search, eval(), a comparison with nan, a form that outweighs the answer.
SMOKE = {
    "any number of the text is the answer",
    "eval() of the completion",
    "a distance to nan is not too large",
    "the form outweighs the answer",
}
HACKABLE_PROGRAMS: dict[str, Check] = {
    "exit code 0 passes": lambda t, g, p: verdict_of(program(t)) in ("AC", "WA"),
    "the program prints its result": lambda t, g, p: verdict_of(program(t)) == "AC",
}
LENIENT: dict[str, Check] = {
    "a small part for the form": lambda t, g, p: (tag(t) == g) + 0.2 * ("<answer>" in t),
    "a small part for length": lambda t, g, p: (tag(t) == g) + min(len(t) / 10000, 0.1),
    "a small part for a number": lambda t, g, p: (tag(t) == g) + 0.1 * tag(t).isdigit(),
}
SOUND: dict[str, Check] = {
    "the whole text": lambda t, g, p: t.strip() == g,
    "the whole tag": lambda t, g, p: tag(t) == g,
    "the form, gated": lambda t, g, p: (tag(t) == g) * (1 + 0.5 * t.startswith("<answer>")),
    "as a penalty": lambda t, g, p: (tag(t) == g) - 0.5 * (len(t) > 100),
}


def sums(check: Check | None = None) -> Task:
    """Sums, with reference answers in the form that the check reads."""
    pairs = [(17 * row % 40 + 3, 11 * row % 30 + 7) for row in range(48)]
    task = task_of([f"What is {a} plus {b}?" for a, b in pairs], [str(a + b) for a, b in pairs])
    right = [form for form in FORMS if check is not None and check(form.format("42"), "42", "What is 20 plus 22?") >= 1]
    return replace(task, gold=(lambda row: right[0].format(row["final_answer"])) if right else None)


def choices() -> Task:
    """Four choices, of which B is right in 40 % of the rows."""
    golds = ["ABBCDBABCDB"[row % 11] for row in range(48)]
    return task_of([f"Which one is it in case {row}? A) one B) two C) three D) four" for row in range(48)], golds)


def task_of(prompts: Sequence[str], golds: Sequence[str]) -> Task:
    rows = Dataset.from_dict({"prompt": prompts, "final_answer": golds})
    return Task(rows, rows.select([]), rows.select([]))


def attacked(task: Task, *rewards: Reward, seconds: float = 600.0) -> Findings:
    with Scorer(rewards) as scorer:
        return attack(task, rewards, scorer, seconds=seconds)


def reward_of(check: Check) -> Reward:
    def reward(prompts: list[str], completions: list[str], final_answer: list[str], **kwargs: Any) -> list[float]:
        return [float(check(*one)) for one in zip(completions, final_answer, prompts, strict=True)]

    return Reward("planted", reward, columns=("final_answer",))


def own(function: Any, weight: float = 1.0, gate: str | None = None, **options: Any) -> Reward:
    return Reward(function.__name__, function, options=options, weight=weight, gate=gate)


@pytest.mark.slow
@pytest.mark.parametrize(
    "why", [pytest.param(why, marks=[pytest.mark.smoke] if why in SMOKE else []) for why in HACKABLE]
)
def test_a_reward_with_a_mistake_is_broken(why: str) -> None:
    findings = attacked(sums(HACKABLE[why]), reward_of(HACKABLE[why]))
    assert findings.verdict == "broken", findings.sentences()
    assert findings.cheapest is not None and findings.cheapest.earnings.paid[0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("why", HACKABLE_PROGRAMS)
def test_a_judge_of_programs_with_a_mistake_is_broken(why: str) -> None:
    findings = attacked(sums(), reward_of(HACKABLE_PROGRAMS[why]), seconds=0.0)
    assert findings.verdict == "broken", findings.sentences()


@pytest.mark.slow
@pytest.mark.parametrize(("checks", "verdict"), [(LENIENT, "lenient"), (SOUND, "holds")], ids=["lenient", "sound"])
def test_a_lenient_reward_is_not_broken_and_a_sound_one_holds(checks: dict[str, Check], verdict: str) -> None:
    found = {why: attacked(sums(check), reward_of(check)) for why, check in checks.items()}
    assert {why: one.verdict for why, one in found.items()} == dict.fromkeys(checks, verdict)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rewards", "verdict"),
    [
        ([own(math_correctness)], "holds"),
        ([own(math_correctness, tolerance=0.001)], "holds"),
        ([own(math_correctness), own(tag_format, gate="math_correctness")], "holds"),
        ([own(math_correctness), own(repetition)], "holds"),
        ([own(math_correctness), own(answer_format, 0.2)], "lenient"),
        ([own(math_correctness), own(answer_format, 2.0)], "broken"),
        ([own(tag_format)], "broken"),
    ],
)
def test_the_shipped_rewards_for_sums(rewards: list[Reward], verdict: str) -> None:
    findings = attacked(sums(), *rewards)
    assert findings.verdict == verdict, findings.sentences()


@pytest.mark.slow
def test_the_shipped_rewards_for_programs_pay_only_for_the_form() -> None:
    task = load_task(TaskSpec("one_line_programs", {"train_rows": 96, "test_rows": 1, "tests_per_problem": 2}))
    findings = attacked(task, own(code_execution), own(code_format, 0.2), seconds=0.0)
    assert findings.verdict == "lenient" and findings.cheapest is not None, findings.sentences()
    assert findings.cheapest.earnings.paid[1] == pytest.approx(0.2) and findings.cheapest.earnings.share < 0.25


@pytest.mark.slow
def test_a_guess_is_no_attack() -> None:
    def letter(completions: list[str], final_answer: list[str], **kwargs: Any) -> list[float]:
        return [float(text.strip() == gold) for text, gold in zip(completions, final_answer, strict=True)]

    findings = attacked(choices(), Reward("letter", letter))
    assert findings.verdict == "holds"
    guesses = {finding.example: finding.earnings.guessed for finding in findings.found}
    assert 0.3 < guesses["B"] < 0.6


@pytest.mark.slow
def test_prompts_that_hold_their_answers_are_found() -> None:
    golds = [str(1000 + row) for row in range(48)]
    findings = attacked(task_of([f"Case {gold}. The answer: {gold}" for gold in golds], golds), own(math_correctness))
    assert findings.verdict == "broken" and findings.cheapest is not None and findings.cheapest.is_leak


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "why"),
    [
        (lambda text, gold, prompt: float(gold in [{"content": text}]), "a list of messages read as text"),
        (lambda text, gold, prompt: float(number(numbers(text)[-1] if numbers(text) else "") == gold), "7.0 == '7'"),
    ],
)
def test_a_reward_that_pays_no_right_answer_does_not_hold(check: Check, why: str) -> None:
    findings = attacked(sums(), reward_of(check))
    assert findings.verdict == "untested" and "No right answer" in findings.sentences()[0], why


@pytest.mark.slow
def test_a_text_on_which_a_reward_fails_is_named() -> None:
    findings = attacked(sums(), reward_of(lambda t, g, p: (t.strip() == g) * len(t) / len(t)))
    assert findings.verdict == "holds" and findings.failures == {"planted: raised": ""}
    with input_error("reward-failed"):
        attacked(sums(), reward_of(lambda t, g, p: 1 / 0))
