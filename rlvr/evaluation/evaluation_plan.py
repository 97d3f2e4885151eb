"""Check what scripts/evaluate.py is asked to measure, measure it, and write the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr import console
from rlvr.artifacts.directory import read_status
from rlvr.artifacts.evaluation import Score
from rlvr.artifacts.finished_run import check_base
from rlvr.artifacts.result_record import FILE, read_record
from rlvr.config.batch_plan import reward_batch_timeout
from rlvr.config.recipe import Recipe
from rlvr.config.specs import EvaluationSpec
from rlvr.data.row_selection import write_pass_rates
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.evaluation.engines import Decoding
from rlvr.evaluation.evaluate import Records
from rlvr.evaluation.evaluated_model import EvaluatedModel
from rlvr.evaluation.evaluation_file import describe_evaluation, heading, results_table, write_evaluation
from rlvr.evaluation.measured import greedy_decoding, held_out_rows, training_decoding
from rlvr.evaluation.output_folder import check_run_results, move_earlier
from rlvr.evaluation.scores import count_samples
from rlvr.evaluation.trained_rows import check_not_trained_on
from rlvr.modeling import adapters, loading
from rlvr.scoring.metric_choice import choose_metrics, rewards_to_run
from rlvr.scoring.registry import load_rewards, load_tasks
from rlvr.scoring.reward import Metrics
from rlvr.scoring.scorer import Scorer

if TYPE_CHECKING:
    from accelerate import PartialState


@dataclass(frozen=True)
class EvaluationPlan:
    """What to measure.

    Attributes:
        folder: for the results.
        adapter: an adapter or a whole trained model, as the user names it; None measures the base.
        compare: whether to measure the base next to the adapter.
        samples: to draw per row for pass@k.
        engine: "transformers" or "vllm".
        allow_base_mismatch: whether the adapter may be of another base.
    """

    recipe: Recipe
    folder: Path
    adapter: str | None
    compare: bool
    samples: int
    engine: str
    allow_base_mismatch: bool

    @property
    def spec(self) -> EvaluationSpec:
        return self.recipe.evaluation or EvaluationSpec()

    @property
    def names(self) -> list[str]:
        """The models to measure: "base" and/or "trained"."""
        return [*(["base"] if self.compare or not self.adapter else []), *(["trained"] if self.adapter else [])]

    @property
    def parts(self) -> list[str]:
        """What evaluation.json will have."""
        return [*self.names, *(["pass_at_k"] if self.samples else [])]


def evaluate_models(plan: EvaluationPlan, state: PartialState, interrupts: Sequence[int]) -> Path | None:
    """Measure the models of a plan, print the table and write it.

    Args:
        interrupts: signals that arrived (`console.remembered_interrupts`).

    Returns:
        The folder of the adapter.

    Raises:
        InputError: the plan can't be carried out.
        RewardError: as `measure`.
    """
    recipe = plan.recipe
    adapter = None if plan.adapter is None else adapters.find_adapter(plan.adapter)
    if adapter is not None:
        read_status(adapter.resolve().parent)
    rewards = load_rewards(recipe.rewards)
    metrics = choose_metrics(recipe, rewards)
    task = load_tasks(recipe.tasks)
    _check_rows(plan, task, adapter)
    if adapter is not None:
        _check_base_of(plan, adapter)
    tokenizer = loading.load_tokenizer(recipe, chat=task.is_chat)
    results: dict[str, tuple[Score, Records]] = {}
    sampled: dict[str, Records] = {}
    greedy = greedy_decoding(task, recipe)
    sampling = replace(greedy, sampling=training_decoding(task, recipe).sampling)
    scorer = Scorer(
        rewards_to_run(rewards, metrics),
        timeout_s=recipe.settings["reward_timeout_s"],
        batch_timeout_s=reward_batch_timeout(recipe),
        rank=state.process_index,
    )
    measured = (recipe, tokenizer, task, rewards, metrics, scorer)
    with scorer:
        for name in plan.names:
            weights = adapter if name == "trained" else None
            model = EvaluatedModel(*measured, name, plan.folder, adapter=weights, engine=plan.engine)
            results[name] = model.measure(greedy, name)
            if plan.samples:
                sampled[name] = model.measure(sampling, f"{name}, {plan.samples} samples", samples=plan.samples)[1]
            model.close()
            if interrupts:
                raise KeyboardInterrupt
    if state.is_main_process:
        _write(plan, task, metrics, results, sampled, sampling)
    return adapter


def _check_rows(plan: EvaluationPlan, task: Task, adapter: Path | None) -> None:
    """Check that there are rows, that the adapter was not trained on them, and that no results of a run are lost."""
    split = plan.spec.split
    for name, part in task.parts.items():
        if len(part.split(split)) == 0:
            message = f"The task {name or plan.recipe.task_name} has no rows in its split {split}."
            raise InputError(message, kind="no-rows", key="evaluation.split")
    held_out = held_out_rows(task, plan.recipe)
    if adapter is not None:
        check_not_trained_on(adapter.resolve().parent, held_out, task.train, split)
    check_run_results(plan.folder, plan.parts, len(held_out), plan.recipe)


def _check_base_of(plan: EvaluationPlan, adapter: Path) -> None:
    """Check that the adapter fits the base, and was trained on it."""
    recipe, allowed = plan.recipe, plan.allow_base_mismatch
    model = recipe.settings["model_name_or_path"]
    if named_base := adapters.named_base(adapter, model):
        # A folder that doesn't exist here may be another machine's name for the same model.
        if not allowed and (not Path(named_base).is_absolute() or Path(named_base).is_dir()):
            raise InputError(
                f"The adapter {plan.adapter} was trained on {named_base}, but {model} would be measured with "
                f"it. Name the right base (--config, or --model {named_base}), or add --allow_base_mismatch.",
                kind="base-mismatch",
                key="--model",
            )
        console.info(f"  Note: the adapter was trained on {named_base}; it is measured on {model}.\n")
    run = adapter.resolve().parent
    if not allowed and (run / FILE).is_file():
        check_base(recipe, read_record(run))
    loading.check_adapter(recipe, adapter)
    if not (adapter / "adapter_config.json").is_file() and recipe.settings.get("load_in_4bit"):
        console.info(f"  Note: {adapter} is a whole model, and is loaded in 4 bits as the recipe says.\n")


def _write(
    plan: EvaluationPlan,
    task: Task,
    metrics: Metrics,
    results: Mapping[str, tuple[Score, Records]],
    sampled: Mapping[str, Records],
    sampling: Decoding,
) -> None:
    folder = plan.folder
    rows = held_out_rows(task, plan.recipe)
    about = describe_evaluation(plan.recipe, metrics, rows)
    about |= {"adapter": plan.adapter, "engine": plan.engine}
    move_earlier(folder, about, plan.parts)
    found = write_evaluation(folder, about, results, sampled, plan.samples, sampling)
    console.info(f"{heading(found)}\n\n{results_table(found)}\n")
    console.info(f"  {folder / 'evaluation.json'}")
    if plan.spec.split == "train":
        counts = count_samples(sampled["base"])
        path = folder / "pass_rates.jsonl"
        write_pass_rates(path, rows, [counts[row] for row in range(len(rows))])
        often = sum(0 < right < scored for scored, right in counts.values())
        solved = f"{often:,} of {len(rows):,} rows are solved sometimes"
        console.info(f"  {path}: {solved}. Train on them: --task.pass_rates {path}")
