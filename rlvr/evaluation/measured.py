"""What an evaluation measures by the recipe: the rows, and how they are decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr.config.recipe import Recipe, value_of
from rlvr.config.specs import EvaluationSpec
from rlvr.data.task import Task
from rlvr.evaluation.engines import Decoding, sampling_settings

if TYPE_CHECKING:
    from datasets import Dataset


def held_out_rows(task: Task, recipe: Recipe) -> Dataset:
    """The first rows of the split, or of each task's, as many as the recipe's section `evaluation` asks for."""
    spec = recipe.evaluation or EvaluationSpec()
    data = task.split(spec.split)
    if spec.rows is None:
        return data
    rows: list[int] = []
    start = 0
    for length in [len(part.split(spec.split)) for part in task.parts.values()]:
        rows += range(start, start + min(spec.rows, length))
        start += length
    return data.select(rows)


def greedy_decoding(task: Task, recipe: Recipe) -> Decoding:
    """Greedy decoding as the recipe's section `evaluation` says."""
    spec = recipe.evaluation or EvaluationSpec()
    max_new_tokens = spec.max_new_tokens or recipe.value("max_completion_length")
    return Decoding(max_new_tokens, tuple(task.stop_strings), seed=int(recipe.value("seed")))


def training_decoding(task: Task, recipe: Recipe) -> Decoding:
    """Sampling as in training."""
    settings = recipe.settings
    sampling = {**sampling_settings(recipe), **(settings.get("generation_kwargs") or {})}
    max_new_tokens = value_of(settings, "max_completion_length")
    return Decoding(max_new_tokens, tuple(task.stop_strings), sampling, seed=int(value_of(settings, "seed")))
