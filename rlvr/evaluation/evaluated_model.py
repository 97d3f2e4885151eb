"""A model under evaluation: loaded for its first uncached answer, its answers kept on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr.artifacts.directory import ANSWERS
from rlvr.config.recipe import EvaluationSpec, Recipe
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.evaluation.answer_cache import AnswerCache, cache_settings
from rlvr.evaluation.engines import Completion, Decoding, Engine, TransformersEngine, VllmEngine
from rlvr.evaluation.evaluate import Records, held_out_rows, measure
from rlvr.evaluation.scores import Score, summarise
from rlvr.scoring.reward import Reward
from rlvr.scoring.scorer import Scorer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class EvaluatedModel:
    """The base model of a recipe, or the model trained from it; an `Engine`.

    Answers of an earlier, killed evaluation are not generated again. If all answers are cached, no weight is loaded.

    Args:
        name: "base" or "trained"; the cache file is named after it.
        folder: the run directory or an evaluation's; the cache is its `answers/`.
        adapter: the folder of an adapter or of a whole trained model; None for the base.
        engine: "transformers" or "vllm".
    """

    def __init__(
        self,
        recipe: Recipe,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        folder: Path,
        *,
        adapter: Path | None = None,
        engine: str = "transformers",
    ) -> None:
        self.recipe, self.tokenizer, self.adapter, self.name = recipe, tokenizer, adapter, name
        self._engine_name, self._folder = engine, folder
        self._engine: Engine | None = None

    def complete(self, prompts: Sequence[list[int]], decoding: Decoding, seed: int) -> list[Completion]:
        return self._loaded().complete(prompts, decoding, seed)

    def _loaded(self) -> Engine:
        from rlvr.modeling import loading

        if self._engine is None:
            if self._engine_name == "vllm":
                self._engine = VllmEngine(self.recipe, self.tokenizer, self.adapter)
            else:
                loaded = loading.load_model(self.recipe, self.tokenizer, adapter=self.adapter)
                self._engine = TransformersEngine(loaded, self.tokenizer)
        return self._engine

    def measure(
        self,
        task: Task,
        recipe: Recipe,
        rewards: Sequence[Reward],
        metric: Reward,
        scorer: Scorer,
        decoding: Decoding,
        when: str,
        samples: int = 1,
    ) -> tuple[Score, Records]:
        """Measure the rows of the recipe's section `evaluation`, with the answer cache.

        Args:
            recipe: this model's own, or one that differs in its task.
            when: for the progress bar ("before", "after").

        Raises:
            InputError: the metric could score none of the rows; or as `AnswerCache`.
            RewardError: as `measure`.
        """
        from rlvr.modeling import loading

        revision = getattr(loading.load_config(self.recipe), "_commit_hash", None)
        settings = cache_settings(self.recipe, decoding, self._engine_name, self.adapter, revision)
        cache = AnswerCache(self._folder / ANSWERS, self.name, settings)
        spec = recipe.evaluation or EvaluationSpec()
        data = held_out_rows(task, recipe)
        try:
            records = measure(
                self,
                data,
                rewards,
                metric,
                scorer,
                decoding,
                samples=samples,
                batch_size=spec.batch_size,
                description=f"evaluating {when}",
                cache=cache,
                lenient=True,
            )
        finally:
            cache.close()
        score = summarise(records, [reward.label for reward in rewards])
        if score.rows == 0:
            golds = (
                f"; the first row's final_answer is {data[0]['final_answer']!r}" if "final_answer" in data[0] else ""
            )
            raise InputError(
                f"{metric.label} could score none of the {len(data)} rows of {recipe.task.name}/{spec.split}: it can't "
                f"read their golds{golds}. Correct the data, or name another metric under evaluation.",
                kind="unreadable-gold",
                key="evaluation.metric",
            )
        return score, records

    def close(self) -> None:
        """Free the model's memory."""
        import gc

        import torch

        self._engine = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
