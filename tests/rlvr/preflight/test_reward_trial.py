"""The reward trial: golds must earn what empty answers and noise must not."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.data.task import Task
from rlvr.errors import Problem
from rlvr.preflight.reward_attack import attack_rewards
from rlvr.preflight.reward_trial import try_rewards
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.reward import Reward
from rlvr.scoring.scorer import Scorer


def right(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [float(text.endswith(f" {gold}")) for text, gold in zip(completions, final_answer, strict=True)]


def right_but_for_row_40(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    scores = right(completions, final_answer)
    return [0.0 if gold == "40" else score for gold, score in zip(final_answer, scores, strict=True)]


def never(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [0.0] * len(completions)


def always(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [1.0] * len(completions)


def short(completions: list[Any], **kwargs: Any) -> list[float]:
    return [1.0 if len(text) < 5 else 0.0 for text in completions]


def long(completions: list[Any], **kwargs: Any) -> list[float]:
    return [len(text) / 100 for text in completions]


def brief(completions: list[Any], **kwargs: Any) -> list[float]:
    return [0.1 - len(text) / 100 for text in completions]


def question_words(prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
    return [0.5 * (prompt in text) for prompt, text in zip(prompts, completions, strict=True)]


def unsure(completions: list[Any], **kwargs: Any) -> list[None]:
    return [None] * len(completions)


def cannot(completions: list[Any], **kwargs: Any) -> list[float]:
    return [1 / len(text) for text in completions]  # of an empty one: never seen in training until one comes


def reward(function: Any, weight: float = 1.0, gate: str | None = None) -> Reward:
    compares = function in (right, right_but_for_row_40, never, always)
    columns = ("final_answer",) if compares else ()
    return Reward(function.__name__, function, columns=columns, weight=weight, gate=gate)


RECIPE = Recipe(Path("r.yaml"), TaskSpec("sums"), (RewardSpec("r"),), None, {"on_reward_error": "raise"})


def sums(gold: bool = True) -> Task:
    rows = Dataset.from_dict({"prompt": ["Which number?"] * 64, "final_answer": [str(row) for row in range(64)]})
    return Task(
        rows, rows.select([]), rows.select([]), gold=(lambda row: f"It is {row['final_answer']}") if gold else None
    )


def tried(*rewards: Reward, gold: bool = True, **settings: Any) -> list[Problem]:
    recipe = replace(RECIPE, settings={**RECIPE.settings, **settings})
    scorer = Scorer(rewards)
    try:
        return try_rewards(recipe, sums(gold), rewards, rewards[0], scorer)
    finally:
        scorer.close()


def kinds(problems: list[Problem]) -> list[tuple[str, str]]:
    return [(problem.kind, problem.level) for problem in problems]


FIT = [("reward-trial", "note")]


def test_rewards_that_fit_are_noted() -> None:
    [note] = tried(reward(right), reward(long, gate="right"))
    assert kinds([note]) == FIT and all(name in note.message for name in ("right", "long", "16"))


@pytest.mark.parametrize(
    ("paying", "row", "amounts", "why"),
    [
        (reward(short, 0.1), 0, ["1 for an empty answer"], "an empty answer"),
        (reward(long), 0, ["0.32 for the noise", "0.13 for the repeated prompt"], "noise and the prompt"),
        (reward(question_words), 0, ["0.5 for the repeated prompt"], "the prompt alone"),
        (reward(long, -0.1), None, [], "a penalty is no payment"),
        (reward(brief, -0.1), 0, ["-0.22 for the noise"], "a negative weight pays for negative values"),
        (reward(short, 0.1, gate="right"), None, [], "the gate is shut"),
    ],
)
def test_each_reward_that_pays_for_answers_without_content_is_named(
    paying: Reward, row: int | None, amounts: list[str], why: str
) -> None:
    problems = [problem for problem in tried(reward(right), paying) if problem.kind == "paid-noise"]
    assert [(problem.level, problem.row) for problem in problems] == ([("warning", row)] if amounts else []), why
    for problem in problems:
        assert all(part in problem.message for part in (paying.name, "gate: right", *amounts)), why


@pytest.mark.parametrize(
    ("others", "why"),
    [([], "no reward gates itself"), ([replace(reward(right), applies_to=("one",))], "the metric of one task only")],
)
def test_a_gate_is_offered_only_where_a_recipe_may_have_it(others: list[Reward], why: str) -> None:
    problems = [one for one in tried(*others, reward(question_words)) if one.kind == "paid-noise"]
    assert problems and not any("gate:" in one.message for one in problems), why


def cannot_read(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float | None]:
    """None for an answer without the form that golds have, instead of 0."""
    golds = right(completions, final_answer)
    return [value or None for value in golds]


def test_a_reward_that_scores_no_answer_without_content_is_named() -> None:
    [problem] = [one for one in tried(reward(right), reward(cannot_read)) if one.kind != "reward-trial"]
    assert kinds([problem]) == [("unscored-rows", "warning")] and problem.key == "rewards.cannot_read"
    assert "an empty answer" in problem.message and "cost nothing" in problem.message


def test_a_reward_that_scores_nothing_is_named() -> None:
    [problem] = tried(reward(right), reward(unsure))
    assert kinds([problem]) == [("unscored-rows", "warning")] and "unsure" in problem.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "late", "why"),
    [
        ("time.sleep(1000)", ["gold", "an empty answer"], "a reward that always hangs"),
        ("time.sleep(1000 * ('' in completions))", ["an empty answer", "an empty answer"], "one that hangs at a text"),
    ],
)
def test_a_reward_that_hangs_is_left_out_after_two_late_answers(
    body: str, late: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hangs.py"
    file.write_text(
        f"import time\n\ndef hangs(completions, **kwargs):\n    {body}\n    return [0.0] * len(completions)\n"
        "def words(completions, **kwargs):\n    return ['one'] * len(completions)\n"
    )
    rewards = load_rewards([RewardSpec(str(file)), RewardSpec(f"{file}:words")])
    with Scorer(rewards, timeout_s=3.0, batch_timeout_s=600) as scorer:
        scorer.score(["p"], ["x"], {}) if "1000 *" in body else scorer.start()
        started = time.monotonic()
        problem, other = try_rewards(RECIPE, sums(), rewards, rewards[0], scorer)
    assert time.monotonic() - started < 90, why  # and not after 64 of them
    assert (problem.kind, problem.level, problem.row) == ("reward-timeout", "error", 0), why
    assert (other.kind, other.key) == ("reward-failed", f"rewards.{file}:words"), why
    assert all(words in problem.message for words in ("hangs", "reward_timeout_s", *late)), why
    assert "Trying the rewards" in capsys.readouterr().err, "after two seconds"


def test_a_row_that_fails_is_named_by_its_training_row_and_answer() -> None:
    def fails_on_noise(completions: list[Any], **kwargs: Any) -> list[float]:
        return [float("nan") if text.startswith("qwv") else 0.0 for text in completions]

    problem = tried(Reward("fails_on_noise", fails_on_noise))[0]
    assert (problem.kind, problem.row) == ("reward-failed", 0) and "the noise" in problem.message


def test_each_reward_that_fails_or_pays_for_nothing_is_a_problem_of_its_own() -> None:
    def wrong_length(completions: list[Any], **kwargs: Any) -> list[float]:
        return [0.0]

    def words(completions: list[Any], **kwargs: Any) -> list[str]:
        return ["one"] * len(completions)

    def exits(completions: list[Any], **kwargs: Any) -> None:
        raise SystemExit(3)

    failing = [Reward(function.__name__, function) for function in (wrong_length, words, exits, cannot)]
    problems = tried(reward(right), *failing, reward(short), reward(unsure))
    errors = {problem.key: problem.message for problem in problems if problem.level == "error"}
    assert list(errors) == [f"rewards.{one.name}" for one in failing]
    assert "'one'" in errors["rewards.words"] and "SystemExit: 3" in errors["rewards.exits"]
    warnings = [(problem.kind, problem.key) for problem in problems if problem.level == "warning"]
    assert warnings == [
        (kind, f"rewards.{name}")
        for kind, name in (("paid-noise", "cannot"), ("paid-noise", "short"), ("unscored-rows", "unsure"))
    ]


@pytest.mark.parametrize(
    ("function", "kind", "row", "why"),
    [
        (never, "refused-gold", 0, "misfit"),
        (always, "accepted-noise", 0, "everything is right"),
        (cannot, "reward-failed", 0, "the first empty completion would have stopped the run"),
    ],
)
def test_rewards_that_cannot_be_right_are_refused(function: Any, kind: str, row: int | None, why: str) -> None:
    problem = tried(reward(function))[0]
    assert (problem.kind, problem.level, problem.row) == (kind, "error", row), why


def last_choice(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    found = [re.findall(r"\b(spam|ham)\b", text) for text in completions]
    return [float(words[-1:] == [gold]) for words, gold in zip(found, final_answer, strict=True)]


@pytest.mark.parametrize(("share", "level"), [(0.3, "warning"), (0.8, "warning"), (1.0, "error")])
def test_a_choice_that_the_prompt_names_last_is_right_by_chance(share: float, level: str) -> None:
    golds = ["ham" if row // 10 % 10 < 10 * share else "spam" for row in range(160)]
    rows = Dataset.from_dict({"prompt": [f"Mail {row}: spam or ham?" for row in range(160)], "final_answer": golds})
    rewards = [Reward("last_choice", last_choice, columns=("final_answer",))]
    with Scorer(rewards) as scorer:
        problems = try_rewards(RECIPE, Task(rows, rows, rows), rewards, rewards[0], scorer)
    assert [(one.kind, one.level) for one in problems if one.kind == "accepted-noise"] == [("accepted-noise", level)]


@pytest.mark.parametrize(
    ("leaking", "level", "why"),
    [(64, "error", "the prompts hold their answers"), (8, "warning", "some hold it by chance")],
)
def test_prompts_that_hold_their_own_answer_are_found(leaking: int, level: str, why: str) -> None:
    prompts = [f"Which number? Perhaps {row if row < leaking else 1000}" for row in range(64)]
    rows = Dataset.from_dict({"prompt": prompts, "final_answer": [str(row) for row in range(64)]})
    task = Task(rows, rows.select([]), rows.select([]))
    with Scorer([reward(right)]) as scorer:
        [problem] = try_rewards(RECIPE, task, scorer.rewards, scorer.rewards[0], scorer)
    assert kinds([problem]) == [("accepted-noise", level)] and problem.row == 0, why


def lone_address(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    found = [re.findall(r"\w+@\w+", text) for text in completions]
    return [float(one == [gold]) for one, gold in zip(found, final_answer, strict=True)]


def the_address(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [float(text.strip() == gold) for text, gold in zip(completions, final_answer, strict=True)]


@pytest.mark.parametrize(("function", "expected"), [(lone_address, [("accepted-copy", "warning")]), (the_address, FIT)])
def test_a_copied_line_that_holds_the_answer_is_warned_of(function: Any, expected: list[tuple[str, str]]) -> None:
    prompts = [f"Which address is new?\nWrite to ann{row}@home.\nDo not write to bob{row}@work." for row in range(64)]
    rows = Dataset.from_dict({"prompt": prompts, "final_answer": [f"ann{row}@home" for row in range(64)]})
    rewards = [Reward("address", function, columns=("final_answer",))]
    with Scorer(rewards) as scorer:
        problems = try_rewards(RECIPE, Task(rows, rows, rows), rewards, rewards[0], scorer)
    assert [kind for kind in kinds(problems) if kind[0] in ("accepted-copy", "reward-trial")] == expected


def test_a_single_gold_that_fails_is_named_and_does_not_stop_the_run() -> None:
    [problem] = tried(reward(right_but_for_row_40))
    assert kinds([problem]) == [("refused-gold", "warning")] and problem.row == 40


def test_a_recipe_that_masks_failing_rewards_starts_with_a_warning() -> None:
    problem, *others = tried(reward(cannot), on_reward_error="mask")
    assert {one.kind for one in others} == {"refused-gold", "paid-noise"}, "what the other answers show counts too"
    assert kinds([problem]) == [("reward-failed", "warning")] and "ZeroDivisionError" in problem.message


def test_weights_that_pay_no_more_for_golds_are_warned_of() -> None:
    _, problem = tried(reward(right), reward(short, 2.0))
    assert kinds([problem]) == [("golds-earn-no-more", "warning")]
    assert "2 for an empty answer, and 1 for the task's golds" in problem.message


@pytest.mark.parametrize(("function", "level"), [(right, "note"), (long, "warning")])
def test_a_thorough_check_attacks_the_rewards(function: Any, level: str) -> None:
    recipe = replace(RECIPE, settings={**RECIPE.settings, "reward_timeout_s": 30.0})
    [problem] = attack_rewards(recipe, sums(), [reward(function)])
    assert (problem.kind, problem.key, problem.level) == ("red-team", "rewards", level)


def contains(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [float(gold in text) for text, gold in zip(completions, final_answer, strict=True)]  # a list, in a chat


def contains_in_chat(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return contains([completion[-1]["content"] for completion in completions], final_answer)


def in_json(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [
        float(str(text).endswith(f'"answer": {gold}}}')) for text, gold in zip(completions, final_answer, strict=True)
    ]


@pytest.mark.parametrize("gold", [False, True])
@pytest.mark.parametrize(
    ("function", "level", "why"),
    [
        (contains, "error", "a list of messages holds no text"),
        (in_json, "warning", "no usual form"),
        (contains_in_chat, "", "right"),
    ],
)
def test_a_reward_that_pays_for_no_right_answer_is_named(function: Any, level: str, why: str, gold: bool) -> None:
    task = sums(gold)
    chat = [[{"role": "user", "content": "Which number?"}]] * len(task.train)
    rows = Dataset.from_dict({"prompt": chat, "final_answer": task.train["final_answer"]})
    metric, tested = reward(contains_in_chat), Reward("tested", function, columns=("final_answer",))
    rewards = [metric, tested]
    with Scorer(rewards) as scorer:
        problems = try_rewards(RECIPE, replace(task, train=rows), rewards, metric, scorer)
    found = [(one.key, one.level) for one in problems if one.kind == "pays-for-no-answer"]
    assert found == ([("rewards.tested", level)] if level else []), why
    words = {"error": "completion_text", "warning": "final_answer='0'"}
    assert not level or words[level] in next(one for one in problems if one.kind == "pays-for-no-answer").message


def compares_numbers(completions: list[Any], final_answer: list[str | None], **kwargs: Any) -> list[float]:
    found = [re.findall(r"\d+", text) for text in completions]
    return [
        float(bool(numbers) and int(numbers[-1]) == int(gold))  # type: ignore[arg-type]
        for numbers, gold in zip(found, final_answer, strict=True)
    ]


@pytest.mark.parametrize("bad", [None, "15 apples"])
def test_a_single_bad_value_of_the_data_is_found(bad: str | None) -> None:
    golds: list[Any] = ["42"] * 1500
    golds[1001] = bad
    rows = Dataset.from_dict({"prompt": ["Which number?"] * 1500, "final_answer": golds})
    task = Task(rows, rows.select([]), rows.select([]))
    with Scorer([Reward("compares_numbers", compares_numbers, columns=("final_answer",))]) as scorer:
        problems = try_rewards(RECIPE, task, scorer.rewards, scorer.rewards[0], scorer)
    [problem] = [one for one in problems if one.kind == "reward-failed"]
    assert (problem.level, problem.row) == ("error", 1001) and f"final_answer={bad!r}" in problem.message


def test_without_golds_the_rewards_are_tried_on_empty_answers_and_noise() -> None:
    problems = tried(reward(right), gold=False)
    assert kinds(problems) == FIT and "right answers of 4 rows as right" in problems[0].message
    assert "no golds" in tried(reward(form_alone), gold=False)[0].message
    assert kinds(tried(reward(always), gold=False))[0] == ("accepted-noise", "error")


@pytest.mark.parametrize(
    ("task", "options", "names"),
    [
        ("arithmetic", {"train_rows": 100, "test_rows": 1}, ("math_correctness", "answer_format")),
        ("one_line_programs", {"train_rows": 100, "test_rows": 1}, ("code_execution", "code_format")),
    ],
)
def test_the_golds_of_our_tasks_earn_all_rewards(task: str, options: dict[str, Any], names: tuple[str, ...]) -> None:
    from rlvr.scoring.registry import load_task

    loaded = load_task(TaskSpec(task, options))
    rewards = load_rewards([RewardSpec(name) for name in names])
    recipe = Recipe(Path("r.yaml"), TaskSpec(task), (RewardSpec("r"),), None, {"on_reward_error": "raise"})
    with Scorer(rewards) as scorer:
        [note] = try_rewards(recipe, loaded, rewards, rewards[0], scorer)
        assert kinds([note]) == FIT and "16 tried golds" in note.message
        rows = [loaded.train[number] for number in range(40)]
        completions = [[{"role": "assistant", "content": loaded.gold(row)}] for row in rows]  # type: ignore[misc]
        columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
        assert scorer.score([row["prompt"] for row in rows], completions, columns).values == [[1.0, 1.0]] * 40


@pytest.mark.slow
def test_the_golds_of_gsm8k_earn_all_rewards_in_both_styles(gsm8k_folder: Path) -> None:
    from rlvr.scoring.registry import load_task

    rewards = load_rewards([RewardSpec("math_correctness"), RewardSpec("answer_format")])
    for style in ("text", "chat"):
        spec = TaskSpec("gsm8k", {"path": str(gsm8k_folder), "style": style, "shots": 0})
        recipe = Recipe(Path("r.yaml"), spec, (RewardSpec("r"),), None, {"on_reward_error": "raise"})
        with Scorer(rewards) as scorer:
            [note] = try_rewards(recipe, load_task(spec), rewards, rewards[0], scorer)
        assert kinds([note]) == FIT and "16 tried golds" in note.message


def of_the_first_row(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    """The mistake: one row's gold for the whole batch."""
    return contains(completions, [final_answer[0]] * len(completions))


@pytest.mark.parametrize(("function", "kind"), [(of_the_first_row, "pays-for-some-rows"), (contains, "")])
def test_a_reward_that_reads_one_row_for_all_is_named(function: Any, kind: str) -> None:
    rewards = [Reward("tested", function, columns=("final_answer",))]
    rows = Dataset.from_dict({"prompt": ["Which number?"] * 64, "final_answer": [str(row + 100) for row in range(64)]})
    with Scorer(rewards) as scorer:
        problems = try_rewards(RECIPE, replace(sums(gold=False), train=rows), rewards, rewards[0], scorer)
    found = [(one.kind, one.row) for one in problems if one.kind == "pays-for-some-rows"]
    assert found == ([(kind, 4)] if kind else [])


def adds_form_and_value(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    """The mistake: 1 for the form and 1 for the value, as tutorials add them."""
    found = [re.search(r"#### (\d+)$", text) for text in completions]
    return [
        float(match is not None) + float(match is not None and match[1] == gold)
        for match, gold in zip(found, final_answer, strict=True)
    ]


def pays_half(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [value / 2 for value in right(completions, final_answer)]


def form_alone(completions: list[Any], **kwargs: Any) -> list[float]:
    return [float(text.startswith("#### ")) for text in completions]


@pytest.mark.parametrize(
    ("function", "has_gold", "kind", "level"),
    [
        (adds_form_and_value, False, "accepted-wrong", "error"),
        (adds_form_and_value, True, "accepted-wrong", "error"),
        (pays_half, False, "metric-below-one", "warning"),
        (pays_half, True, "refused-gold", "error"),
        (form_alone, False, "", ""),  # a metric that looks at the text alone does as it says
        (right, False, "", ""),
    ],
)
def test_a_metric_must_give_one_to_right_answers_alone(function: Any, has_gold: bool, kind: str, level: str) -> None:
    rows = Dataset.from_dict({"prompt": ["Which number?"] * 64, "final_answer": [str(row) for row in range(64)]})
    task = Task(rows, rows, rows, gold=(lambda row: f"So #### {row['final_answer']}") if has_gold else None)
    rewards = [Reward("tested", function, columns=() if function is form_alone else ("final_answer",))]
    with Scorer(rewards) as scorer:
        problems = try_rewards(RECIPE, task, rewards, rewards[0], scorer)
    assert [(one.kind, one.level) for one in problems if one.kind != "reward-trial"] == (
        [(kind, level)] if kind else []
    )
    if kind == "accepted-wrong":
        shown = "'So #### 987654'" if has_gold else "'#### 987654'"
        assert problems[0].row == 0 and f"it returns 1 for {shown}, where final_answer is '0'" in problems[0].message


def _number(text: str) -> str:
    return "".join(re.findall(r"\d+", text)[-1:])


def in_any_row(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [float(_number(text) in final_answer) for text in completions]


def part_of_gold(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    pairs = zip(map(_number, completions), final_answer, strict=True)
    return [float(number != "" and number in gold) for number, gold in pairs]


def first_number(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    firsts = [re.search(r"\d+", text) for text in completions]
    return [float(first is not None and first[0] == gold) for first, gold in zip(firsts, final_answer, strict=True)]


def whole_text(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [float(text.strip() == gold) for text, gold in zip(completions, final_answer, strict=True)]


def text_or_int(completions: list[Any], **kwargs: Any) -> list[float]:
    [golds] = [values for name, values in kwargs.items() if name in ("label", "chapter", "final_answer")]
    return [float(_number(text) == gold) for text, gold in zip(completions, golds, strict=True)]


@pytest.mark.parametrize(
    ("function", "column", "value", "found", "why"),
    [
        (in_any_row, "final_answer", str, "accepted-another", "a gold of any row"),
        (part_of_gold, "final_answer", str, "accepted-wrong", "its first digit"),
        (text_or_int, "label", int, "pays-for-no-answer", "a number read alone is the answer"),
        (text_or_int, "chapter", int, "pays-for-no-answer", "nothing known to be right was tried"),
        (text_or_int, "final_answer", str, "reward-trial", "a right one"),
        (text_or_int, "label", str, "reward-trial", "a right one"),
        (
            first_number,
            "final_answer",
            str,
            "unpaid-after-reasoning",
            "the first number, which is one of the reasoning",
        ),
        (whole_text, "final_answer", str, "reward-trial", "one that wants the answer alone"),
    ],
)
def test_comparisons_that_go_wrong_are_found(function: Any, column: str, value: Any, found: str, why: str) -> None:
    golds = [value(row) for row in range(100, 164)]
    rows = Dataset.from_dict({"prompt": ["Which number?"] * 64, column: golds})
    rewards = [Reward("tested", function, columns=(column,))]
    with Scorer(rewards) as scorer:
        problems = try_rewards(RECIPE, Task(rows, rows, rows), rewards, rewards[0], scorer)
    assert [problem.kind for problem in problems] == [found], why
    assert problems[0].level == {"p": "warning", "u": "warning", "r": "note", "a": "error"}[found[0]]
    if column == "chapter":
        assert "it reads chapter" in problems[0].message and "{final_answer: chapter}" in problems[0].message


def in_box(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    found = [re.findall(r"boxed\{(.*?)\}", text) for text in completions]
    return [float(boxes[-1:] == [gold]) for boxes, gold in zip(found, final_answer, strict=True)]


@pytest.mark.parametrize(
    ("function", "prompt", "found", "why"),
    [
        (in_box, "Which number? Put it into \\boxed{}.", "reward-trial", "as asked for"),
        (in_box, "Which number? End with #### N.", "another-form", "another form is asked for"),
        (in_box, "Which number?", "another-form", "none is asked for"),
        (whole_text, "Which number? Put it into \\boxed{}.", "another-form", "the answer alone"),
        (whole_text, "Which number? Only the number.", "reward-trial", "as asked for"),
        (whole_text, "Which number? Think step by step.", "unpaid-after-reasoning", "steps are asked for"),
        (right, "Which number?", "reward-trial", "a sentence need not be asked for"),
    ],
)
def test_the_prompt_asks_for_the_form_that_the_metric_reads(function: Any, prompt: str, found: str, why: str) -> None:
    golds = [str(row) for row in range(100, 164)]
    rows = Dataset.from_dict({"prompt": [prompt] * 64, "final_answer": golds})
    rewards = [Reward("tested", function, columns=("final_answer",))]
    with Scorer(rewards) as scorer:
        problems = try_rewards(RECIPE, Task(rows, rows, rows), rewards, rewards[0], scorer)
    assert [problem.kind for problem in problems] == [found], why


def in_list(completions: list[Any], answer: list[list[str]], **kwargs: Any) -> list[float]:
    return [float(text.rpartition(": ")[2].lower() in golds) for text, golds in zip(completions, answer, strict=True)]


def test_no_other_name_is_advised_for_a_column_of_lists() -> None:
    rows = Dataset.from_dict({"prompt": ["Which city?"] * 64, "answer": [["paris", f"p{row}"] for row in range(64)]})
    rewards = [Reward("tested", in_list, columns=("answer",))]
    with Scorer(rewards) as scorer:
        [problem] = try_rewards(RECIPE, Task(rows, rows, rows), rewards, rewards[0], scorer)
    assert kinds([problem]) == [("pays-for-no-answer", "warning")] and "final_answer" not in problem.message


def takes_misspelt(completions: list[Any], **kwargs: Any) -> list[float]:
    return right(completions, kwargs.get("final_anser", [None] * len(completions)))


def takes_another(completions: list[Any], **kwargs: Any) -> list[float]:
    return right(completions, kwargs.get("gold", [None] * len(completions)))


def takes_more(completions: list[Any], **kwargs: Any) -> list[float]:
    kwargs.get("difficulty")
    return right(completions, kwargs["final_answer"])


def defaults_to_another(completions: list[Any], gold: Any = None, **kwargs: Any) -> list[float]:
    return right(completions, gold or [None] * len(completions))


def defaults_to_misspelt(completions: list[Any], final_anser=None, **kwargs: Any) -> list[float]:
    return right(completions, final_anser or [None] * len(completions))


def defaults_to_more(completions: list[Any], final_answer: Any = (), gold=None, pattern=None, **kw: Any) -> list[float]:
    return right(completions, final_answer or gold)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (takes_misspelt, ["reads 'final_anser'", "`*, final_answer, **kwargs`"]),
        (takes_another, ["reads 'gold'", "it has final_answer", "paid for none"]),
        (takes_more, []),  # a column that it can do without
        (defaults_to_another, ["the parameter gold with a default", "paid for none"]),
        (defaults_to_misspelt, ["the parameter final_anser", "`*, final_answer, **kwargs`"]),
        (defaults_to_more, []),  # options, and another name of the answer
    ],
)
@pytest.mark.parametrize("has_gold", [False, True])
def test_columns_that_kwargs_lack_are_named(function: Any, said: list[str], has_gold: bool) -> None:
    problems = [one for one in tried(reward(right), reward(function), gold=has_gold) if one.kind != "reward-trial"]
    assert [(one.kind, one.level, one.key) for one in problems] == (
        [("missing-column", "warning", f"rewards.{function.__name__}")] if said else []
    )
    assert all(words in problems[0].message for words in said)


def looks_for_it(completions: list[Any], final_answer=None, **kwargs: Any) -> list[float]:
    return [float(gold in text) for text, gold in zip(completions, final_answer, strict=True)]


def compares_types(completions: list[Any], final_answer="", **kwargs: Any) -> list[float]:
    numbers = [int(text[-1]) if text[-1:].isdigit() else None for text in completions]
    return [float(number == gold) for number, gold in zip(numbers, final_answer, strict=True)]


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (looks_for_it, {("accepted-wrong", "warning"), ("accepted-guesses", "warning")}),
        (compares_types, {("pays-for-no-answer", "warning")}),
    ],
)
def test_right_answers_are_tried_where_their_column_has_a_default(function: Any, found: set[tuple[str, str]]) -> None:
    assert set(kinds(tried(reward(function), gold=False))) == found


def test_a_reference_program_that_fails_its_tests_is_explained(tmp_path: Path) -> None:
    from rlvr.scoring.registry import load_task

    solution = "print(int(input()) + int(input()))"
    good, escaped = ([{"input": text, "output": "3"}] for text in ("1\n2\n", "1\\n2"))
    rows = [{"prompt": f"Add {n}.", "tests": good if n else escaped, "solution": solution} for n in range(20)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = load_task(TaskSpec("jsonl", {"path": str(tmp_path / "sums.jsonl"), "test_fraction": 0}))
    rewards = load_rewards([RewardSpec("code_execution")])
    with Scorer(rewards) as scorer:
        [problem] = try_rewards(RECIPE, task, rewards, rewards[0], scorer)
    assert kinds([problem]) == [("refused-gold", "warning")] and problem.row == 0
    assert "Test 1: runtime error: ValueError" in problem.message


def compares_ints(completions: list[Any], answer: list[Any], **kwargs: Any) -> list[float]:
    """Catches the error of an answer without a number, but not that of a gold of None."""
    scores = []
    for text, gold in zip(completions, answer, strict=True):
        found = re.search(r"<answer>(\d+)</answer>", text)
        try:
            scores.append(float(found is not None and int(found[1]) == int(gold)))
        except ValueError:
            scores.append(0.0)
    return scores


@pytest.mark.parametrize(
    ("bad", "kind", "level", "said"),
    [
        (None, "reward-failed", "error", "answer=None"),
        ("156 apples", "pays-for-some-rows", "warning", "answer='156 apples'"),
        ("7", "", "", ""),
    ],
)
def test_the_right_answer_of_every_row_is_tried_in_the_form_that_earns(
    bad: str | None, kind: str, level: str, said: str
) -> None:
    golds: list[Any] = [str(row + 10) for row in range(1500)]
    golds[1001] = bad
    rows = Dataset.from_dict({"prompt": ["Which number? Write <answer>N</answer>."] * 1500, "answer": golds})
    rewards = [Reward("tested", compares_ints, columns=("answer",))]
    with Scorer(rewards) as scorer:
        problems = try_rewards(RECIPE, Task(rows, rows, rows), rewards, rewards[0], scorer)
    found = [one for one in problems if one.level != "note"]
    assert [(one.kind, one.level, one.row) for one in found] == ([(kind, level, 1001)] if kind else [])
    assert said in "".join(one.message for one in found)


def test_answers_may_be_numbers() -> None:
    rows = Dataset.from_dict(
        {"prompt": ["Which number? Write <answer>N</answer>."] * 64, "answer": list(range(10, 74))}
    )
    of_text = Reward("of_text", right, columns=("answer",))
    of_text.function = lambda completions, answer, **kwargs: right(completions, answer)
    numbers = Reward("numbers", compares_ints, columns=("answer",))
    with Scorer([numbers]) as scorer:
        assert kinds(try_rewards(RECIPE, Task(rows, rows, rows), [numbers], numbers, scorer)) == FIT


def penalty(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [-value for value in right(completions, final_answer)]


def distance(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    found = [re.findall(r"\d+", text) for text in completions]
    return [
        -abs(int(numbers[-1]) - int(gold)) / 100 if numbers else -10.0
        for numbers, gold in zip(found, final_answer, strict=True)
    ]


@pytest.mark.parametrize(
    ("functions", "expected", "why"),
    [
        ([penalty], ["golds-earn-no-more", "metric-below-one"], "the sign"),
        ([right, (penalty, 2.0)], ["golds-earn-no-more"], "a heavier reward with the wrong sign"),
        ([distance], ["metric-below-one"], "right answers are best, but 0"),
        ([right, distance], [], "beside a metric"),
    ],
)
def test_right_answers_must_earn_most_without_a_gold_too(functions: list[Any], expected: list[str], why: str) -> None:
    pairs = [one if isinstance(one, tuple) else (one, 1.0) for one in functions]
    rewards = [Reward(one.__name__, one, columns=("final_answer",), weight=weight) for one, weight in pairs]
    with Scorer(rewards) as scorer:
        problems = try_rewards(RECIPE, sums(gold=False), rewards, rewards[0], scorer)
    assert sorted({one.kind for one in problems if one.level != "note"} - {"paid-noise"}) == expected, why


def ends_with(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [float(text.endswith(gold)) for text, gold in zip(completions, final_answer, strict=True)]


def begins_with(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [float(f"#### {gold}" in text) for text, gold in zip(completions, final_answer, strict=True)]


@pytest.mark.parametrize(
    ("function", "expected", "shown"),
    [
        (contains, ["accepted-guesses", "accepted-wrong"], "'It may be 987654, 100 or 123456.'"),
        (ends_with, ["accepted-wrong"], "'#### 1100'"),
        (begins_with, ["accepted-wrong"], "'#### 1000'"),
        (compares_numbers, [], ""),
    ],
)
def test_a_metric_that_looks_for_the_gold_in_the_text_is_named(function: Any, expected: list[str], shown: str) -> None:
    rows = Dataset.from_dict({"prompt": ["Which number?"] * 64, "final_answer": [str(row + 100) for row in range(64)]})
    rewards = [Reward("tested", function, columns=("final_answer",))]
    with Scorer(rewards) as scorer:
        problems = try_rewards(RECIPE, Task(rows, rows, rows), rewards, rewards[0], scorer)
    assert sorted(one.kind for one in problems if one.level != "note") == expected
    assert shown in "".join(one.message for one in problems)


def pays_three(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [3 * value for value in right(completions, final_answer)]


@pytest.mark.parametrize("has_gold", [False, True])
def test_a_metric_that_gives_more_than_one_is_named(has_gold: bool) -> None:
    metric = reward(pays_three)
    metric.columns = ("final_answer",)
    [problem] = [one for one in tried(metric, gold=has_gold) if one.level != "note"]
    assert kinds([problem]) == [("metric-above-one", "warning")] and "returns 3 for a right answer" in problem.message
    other = [one.kind for one in tried(reward(right), metric, gold=has_gold)]
    assert other == ["reward-trial"], "only the metric must count to 1"
