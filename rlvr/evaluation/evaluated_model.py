"""The base model of a recipe, or the model trained from it, measured on held-out rows."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr.artifacts.directory import ANSWERS
from rlvr.artifacts.evaluation import Score
from rlvr.config.recipe import Recipe
from rlvr.config.specs import EvaluationSpec
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.evaluation.answer_cache import AnswerCache, cache_settings
from rlvr.evaluation.conversations import open_player
from rlvr.evaluation.engines import Completion, Decoding, Engine, TransformersEngine, VllmEngine
from rlvr.evaluation.evaluate import Records, measure
from rlvr.evaluation.measured import held_out_rows, training_decoding
from rlvr.evaluation.scores import SampledGroups, by_task, summarise, summarise_groups
from rlvr.evaluation.shared_answers import conditions
from rlvr.modeling import loading
from rlvr.modeling.digests import hub_revision
from rlvr.scoring.reward import Metrics, Reward
from rlvr.scoring.scorer import Scorer

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

SAMPLED_PROMPTS = 16  # of the training split, spread evenly over it


class EvaluatedModel:
    """The base model of a recipe, or the model trained from it; an `Engine`.

    An evaluation that was killed keeps its answers, and the next one reuses them. Runs that measure the same base model
    with the same settings share its answers. If all answers are cached, no weight is loaded.

    Args:
        scorer: runs `rewards` and `metrics` (`rewards_to_run`).
        name: "base" or "trained"; the cache file is named after it.
        folder: the run directory or an evaluation's; the cache is its `answers/`.
        adapter: the folder of an adapter or of a whole trained model; None for the base.
        engine: "transformers" or "vllm".
    """

    def __init__(
        self,
        recipe: Recipe,
        tokenizer: PreTrainedTokenizerBase,
        task: Task,
        rewards: Sequence[Reward],
        metrics: Metrics,
        scorer: Scorer,
        name: str,
        folder: Path,
        *,
        adapter: Path | None = None,
        engine: str = "transformers",
    ) -> None:
        self.recipe, self.tokenizer, self.adapter, self.name = recipe, tokenizer, adapter, name
        self._task, self._rewards, self._metrics, self._scorer = task, rewards, metrics, scorer
        self._engine_name, self._folder = engine, folder
        self._engine: Engine | None = None

    def complete(self, prompts: Sequence[list[int]], decoding: Decoding, seed: int) -> list[Completion]:
        if self._engine is None and self._engine_name == "vllm":
            self._engine = VllmEngine(self.recipe, self.tokenizer, self.adapter)
        elif self._engine is None:
            model = loading.load_model(self.recipe, self.tokenizer, adapter=self.adapter)
            self._engine = TransformersEngine(model, self.tokenizer)
        return self._engine.complete(prompts, decoding, seed)

    def measure(self, decoding: Decoding, when: str, samples: int = 1) -> tuple[Score, Records]:
        """Measure the rows of the recipe's section `evaluation`, with the answer cache.

        Args:
            when: for the progress bar ("before", "after").

        Raises:
            InputError: the metric could score none of the rows, or none of a task's; or as `AnswerCache`.
            RewardError: as `measure`.
        """
        recipe = self.recipe
        spec = recipe.evaluation or EvaluationSpec()
        records = self._answer(held_out_rows(self._task, recipe), decoding, f"evaluating {when}", samples)
        for label, own in by_task(records).items():
            if any(record["correct"] is not None for record in own):
                continue
            # The data of one task may have a column `task`.
            decisive = self._metrics[label if label in self._metrics else ""]
            gold = own[0].get("final_answer") if own else None
            shown = f"; the first row's final_answer is {gold!r}" if gold is not None else ""
            raise InputError(
                f"{decisive.label} could score none of the {len(own)} rows of {label or recipe.task_name}/{spec.split}:"
                f" it can't read their golds{shown}. Correct the data, or name another metric under evaluation.",
                kind="unreadable-gold",
                key="evaluation.metric",
            )
        return summarise(records, [reward.label for reward in self._rewards]), records

    def sample(self, samples: int) -> SampledGroups:
        """Sample groups of completions for a few training prompts, as training will, with the answer cache.

        Args:
            samples: completions per prompt.
        """
        train, rows = self._task.train, len(self._task.train)
        data = train.select(range(0, rows, max(1, rows // SAMPLED_PROMPTS))[:SAMPLED_PROMPTS])
        decoding = training_decoding(self._task, self.recipe)
        records = self._answer(data, decoding, "sampling", samples)
        return summarise_groups(records, self._rewards, decoding.words())

    def _answer(self, data: Dataset, decoding: Decoding, description: str, samples: int) -> Records:
        """`measure` with this model, the answer cache, and the environments of the recipe."""
        revision = hub_revision(self.recipe)
        settings = cache_settings(self.recipe, decoding, self._engine_name, self.adapter, revision)
        name = self.name if samples == 1 else f"{self.name}-sampled"
        spec = self.recipe.evaluation or EvaluationSpec()
        is_shared = spec.cache and self.adapter is None and self._engine_name == "transformers"
        shared = conditions(self.recipe, decoding) if is_shared else None
        cache = AnswerCache(self._folder / ANSWERS, name, settings, is_shared=is_shared, conditions=shared)
        with ExitStack() as stack:
            stack.callback(cache.close)
            player = stack.enter_context(open_player(self.recipe, self.tokenizer, data.column_names))
            return measure(
                self,
                data,
                self._rewards,
                self._metrics,
                self._scorer,
                decoding,
                samples=samples,
                batch_size=spec.batch_size,
                description=description,
                cache=cache,
                lenient=True,
                template_options=self.recipe.settings.get("chat_template_kwargs"),
                player=player,
            )

    def close(self) -> None:
        """Free the model's memory."""
        import torch

        if self._engine is None:
            return
        self._engine.close()
        self._engine = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
