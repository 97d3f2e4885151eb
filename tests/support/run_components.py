"""Components of a run with the tiny model, for tests of the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from datasets import Dataset

from rlvr.config.recipe import Recipe
from rlvr.config.specs import EvaluationSpec, RewardSpec, TaskSpec
from rlvr.data.task import Task
from rlvr.errors import Problem
from rlvr.preflight.check import check_components
from rlvr.preflight.components import RunComponents, TargetMachine
from rlvr.scoring.reward import Reward

MODEL = Path(__file__).resolve().parents[2] / "models" / "tiny-arithmetic"


def rows(number: int, start: int = 100, **columns: Any) -> Dataset:
    """Rows with plain-text prompts of 9 or 10 tokens."""
    prompts = [f"What is {value}-1?" for value in range(start, start + number)]
    golds = [str(value % 10) for value in range(number)]
    return Dataset.from_dict({"prompt": prompts, "final_answer": golds, **columns})


def make_components(
    settings: dict[str, Any] | None = None,
    *,
    train: Dataset | None = None,
    test: Dataset | None = None,
    columns: tuple[str, ...] = ("final_answer",),
    processes: int = 1,
    target: TargetMachine | None = None,
    stop_strings: tuple[str, ...] = ("\n",),
    gold: Callable[[Any], str] | None = None,
    evaluation: EvaluationSpec | None = None,
) -> RunComponents:
    """A run that has no problem by itself.

    Args:
        settings: flat keys of the recipe.
        columns: that its reward needs.
        gold: the task's.
    """
    from transformers import AutoConfig, AutoTokenizer

    known = {"model_name_or_path": str(MODEL), "output_dir": "no-such-run", "use_peft": True, **(settings or {})}
    recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), evaluation or EvaluationSpec(), known)
    train = rows(64) if train is None else train
    test = rows(100, start=500) if test is None else test
    task = Task(train=train, validation=train.select([]), test=test, stop_strings=stop_strings, gold=gold)
    reward = Reward("r", lambda **kwargs: [], columns=columns)
    return RunComponents(
        recipe,
        target or TargetMachine(),
        processes,
        task,
        [reward],
        {"": reward},
        AutoTokenizer.from_pretrained(MODEL),
        AutoConfig.from_pretrained(MODEL),
    )


def found(components: RunComponents) -> list[tuple[str, str | None]]:
    """The kind and the key of every problem that the checks find."""
    return [(problem.kind, problem.key) for problem in check_components(components).problems]


def only(problems: Iterable[Problem]) -> Problem:
    """The only one of some problems."""
    [problem] = problems
    return problem
