"""Ask an exported model the held-out rows that its run measured, and compare the answers row by row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from rlvr.artifacts.evaluation import Evaluation, from_json, read_evaluation
from rlvr.artifacts.export_record import Remeasurement
from rlvr.artifacts.finished_run import FinishedRun
from rlvr.config.batch_plan import reward_batch_timeout
from rlvr.config.recipe import Recipe
from rlvr.config.specs import EvaluationSpec
from rlvr.data.task import Task
from rlvr.dataset_columns import column_values
from rlvr.environments.transcript import turns
from rlvr.errors import InputError
from rlvr.evaluation.conversations import open_player
from rlvr.evaluation.engines import Engine, TransformersEngine
from rlvr.evaluation.evaluate import Records, measure
from rlvr.evaluation.evaluation_file import describe_evaluation
from rlvr.evaluation.measured import greedy_decoding, held_out_rows
from rlvr.evaluation.scores import compare
from rlvr.evaluation.statistics import mcnemar, wilson
from rlvr.modeling import loading, threads
from rlvr.modeling.generation import prompt_tokens
from rlvr.scoring.metric_choice import choose_metrics, rewards_to_run
from rlvr.scoring.registry import load_rewards, load_tasks
from rlvr.scoring.reward import Metrics, Reward
from rlvr.scoring.scorer import Scorer

SIGNIFICANT = 0.05
LIKELIHOOD_ROWS = 32


class Limits(NamedTuple):
    """An export is refused beyond these; docs/export-publish.md has the reasons.

    Attributes:
        least_same: the share of rows with the same greedy answer.
        most_shift: `likelihood_shift`.
    """

    least_same: float
    most_shift: float


LIMITS = {
    "float32": Limits(0.99, 0.05),
    "float16": Limits(0.8, 0.05),
    "bfloat16": Limits(0.8, 0.2),
    "q8_0": Limits(0.8, 0.3),
}
QUANTIZED = Limits(0.5, 1.0)


@dataclass(frozen=True)
class HeldOut:
    """What the run measured, and all that is needed to measure it again.

    Attributes:
        data: the first rows of the split.
        records: the run's own, of the same rows.
        tokenizer: as the run had it.
        ids: token ids of the prompts, as the run had them.
        answers: token ids of the first prompts and of their answers; empty for conversations.
        likelihoods: log-probabilities of the tokens of these answers, by the run's model.
    """

    recipe: Recipe
    task: Task
    data: Dataset
    records: Records
    rewards: Sequence[Reward]
    metrics: Metrics
    scorer: Scorer
    tokenizer: PreTrainedTokenizerBase
    ids: Sequence[list[int]]
    answers: Sequence[tuple[list[int], list[int]]]
    likelihoods: Sequence[list[float]]


@contextmanager
def open_held_out(run: FinishedRun, rows: int | None) -> Iterator[HeldOut]:
    """Read the run's answers and prepare its verifier.

    Args:
        rows: only so many of the first rows; None for all.

    Raises:
        InputError: of kind "rows-changed" or "verifier-changed".
    """
    recipe = run.recipe
    records = pq.read_table(run.folder / "completions" / "evaluation_trained.parquet").to_pylist()[:rows]
    spec = replace(recipe.evaluation or EvaluationSpec(), rows=len(records))
    recipe = replace(recipe, evaluation=spec)
    task = load_tasks(recipe.tasks)
    # Of several tasks, as many of each as the run measured.
    data = held_out_rows(task, run.recipe if task.mixed else recipe)
    data = data.select(range(min(len(records), len(data))))
    prompts = list(column_values(data, "prompt"))
    # An environment adds its observation to the prompt.
    if not recipe.environments and prompts != [record["prompt"] for record in records]:
        raise InputError(
            f"The task {recipe.task_name} returns other held-out rows than the run {run.folder} measured. Restore its "
            "data, or measure the run again (scripts/evaluate.py).",
            kind="rows-changed",
            key="task",
        )
    tokenizer = loading.load_tokenizer(recipe, chat=task.is_chat)
    rewards = load_rewards(recipe.rewards)
    metrics = choose_metrics(recipe, rewards)
    if rows is None:
        _check_verdicts(run, describe_evaluation(recipe, metrics, data))
    scorer = Scorer(
        rewards_to_run(rewards, metrics),
        timeout_s=recipe.settings["reward_timeout_s"],
        batch_timeout_s=reward_batch_timeout(recipe),
        rank=0,
    )
    ids = prompt_tokens(tokenizer, prompts, recipe.settings.get("chat_template_kwargs"))
    answers, likelihoods = [], []
    if not recipe.environments:
        first = list(zip(ids, records, strict=True))[:LIKELIHOOD_ROWS]
        answers = [
            (list(prompt), tokenizer.encode(record["completion"], add_special_tokens=False)) for prompt, record in first
        ]
        model = loading.load_model(recipe, tokenizer, adapter=run.weights)
        likelihoods = [log_probabilities(model, *pair) for pair in answers]
        del model
    with scorer:
        yield HeldOut(recipe, task, data, records, rewards, metrics, scorer, tokenizer, ids, answers, likelihoods)


def _check_verdicts(run: FinishedRun, now: Mapping[str, Any]) -> None:
    """The export is judged by the golds and the code of today: they must be those that the run was judged by."""
    measured, same = read_evaluation(run.folder), from_json(Evaluation, json.loads(json.dumps(now, default=str)))
    for before, after, what, kind, key in (
        (measured.rows_digest, same.rows_digest, "The held-out rows, such as their golds,", "rows-changed", "task"),
        (measured.verifier, same.verifier, "The metric's options or its code", "verifier-changed", "rewards"),
    ):
        if before != after:
            raise InputError(
                f"{what} changed since {run.folder} was measured: the export would be judged in another way. Restore "
                "them, or measure the run again (scripts/evaluate.py).",
                kind=kind,
                key=key,
                path=run.folder,
            )


def log_probabilities(model: PreTrainedModel, prompt: list[int], answer: list[int]) -> list[float]:
    """The log-probability of each token of an answer."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer], device=model.device)).logits[0, len(prompt) - 1 : -1]
    chosen = torch.tensor(answer, device=model.device)[:, None]
    return [float(value) for value in logits.float().log_softmax(-1).gather(-1, chosen)[:, 0]]


def likelihood_shift(before: Sequence[list[float]], after: Sequence[list[float]]) -> float | None:
    """How far log-probabilities moved, as a share of their own size; None without any.

    A share, since a model that is sure of its answers has log-probabilities near 0, which move little.
    """
    pairs = [pair for one, other in zip(before, after, strict=True) for pair in zip(one, other, strict=False)]
    size = sum(abs(one) for one, _ in pairs)
    return sum(abs(one - other) for one, other in pairs) / size if size else None


def remeasure_folder(held: HeldOut, folder: Path, *, quantised: bool = True) -> Remeasurement:
    """Measure a folder with transformers and PEFT: a whole model as it is, an adapter on the base of the run.

    Args:
        quantised: of an adapter, whether its base is quantised as in training; without it, as vLLM loads it.
    """
    recipe = held.recipe
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    loaded: dict[str, Any] = {"program": "transformers"}
    if (folder / "adapter_config.json").is_file():
        in_4_bits = quantised and bool(recipe.settings.get("load_in_4bit"))
        settings = {**recipe.settings, "load_in_4bit": in_4_bits}
        model = loading.load_model(replace(recipe, settings=settings), tokenizer, adapter=folder)
        loaded = {"program": "PEFT", **({"load_in_4bit": True} if in_4_bits else {})}
    else:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype="auto",
            device_map={"": loading.device(recipe)},
            trust_remote_code=bool(recipe.value("trust_remote_code")),
        ).eval()
        if model.device.type == "cpu":
            threads.set_threads(model.config)
    loaded["dtype"] = str(model.dtype).removeprefix("torch.")
    engine = TransformersEngine(model, tokenizer)
    prompts = list(column_values(held.data, "prompt"))
    own = prompt_tokens(tokenizer, prompts, held.recipe.settings.get("chat_template_kwargs"))
    same_prompts = sum(list(mine) == list(theirs) for mine, theirs in zip(own, held.ids, strict=True))
    limits = LIMITS[loaded["dtype"]] if quantised else QUANTIZED
    return remeasure(held, engine, partial(log_probabilities, model), "", loaded, limits, same_prompts)


def remeasure(
    held: HeldOut,
    engine: Engine,
    likelihood: Callable[[list[int], list[int]], list[float]],
    file: str,
    loaded: Mapping[str, Any],
    limits: Limits,
    same_prompts: int | None,
) -> Remeasurement:
    """Compare the likelihood of the run's first answers, then let the model answer all rows.

    Args:
        likelihood: returns the log-probabilities of an answer to a prompt, both as token ids.
    """
    after = [likelihood(*pair) for pair in held.answers]
    shift = likelihood_shift(held.likelihoods, after)
    recipe, spec = held.recipe, held.recipe.evaluation or EvaluationSpec()
    with open_player(recipe, held.tokenizer, held.data.column_names) as player:
        records = measure(
            engine,
            held.data,
            held.rewards,
            held.metrics,
            held.scorer,
            greedy_decoding(held.task, recipe),
            batch_size=spec.batch_size,
            description=f"measuring {file or loaded['program']}",
            template_options=recipe.settings.get("chat_template_kwargs"),
            player=player,
        )
    return compare_answers(held.records, records, file, loaded, limits, same_prompts, shift)


def compare_answers(
    before: Records,
    after: Records,
    file: str,
    loaded: Mapping[str, Any],
    limits: Limits,
    same_prompts: int | None,
    shift: float | None,
) -> Remeasurement:
    """Compare the answers of an export with those of its run, and say what is worse than chance allows."""
    difference = compare(before, after)
    same = sum(turns(one["completion"]) == turns(other["completion"]) for one, other in zip(before, after, strict=True))
    rows = len(before)
    faults = []
    if same_prompts is not None and same_prompts < rows:
        faults.append(
            f"in {rows - same_prompts} of {rows} rows its tokenizer or chat template makes other tokens than the run's"
        )
    if difference.lost > difference.gained and difference.p_value < SIGNIFICANT:
        faults.append(
            f"it lost {difference.lost} right answers of {rows} and gained {difference.gained} (McNemar's exact test: "
            f"p = {difference.p_value:.2g})"
        )
    if same < limits.least_same * rows:
        least = f"{100 * limits.least_same:.0f} %"
        faults.append(f"{same} of {rows} greedy answers are those of the run, and {least} have to be")
    if shift is not None and shift > limits.most_shift:
        faults.append(
            f"the log-probabilities of the run's answers moved by {100 * shift:.1f} %, and may move by "
            f"{100 * limits.most_shift:.0f} %"
        )
    return Remeasurement(
        file=file,
        loaded=loaded,
        rows=rows,
        before=_score(before),
        after=_score(after),
        difference=asdict(difference),
        same_answers=same,
        least_same=limits.least_same,
        same_prompts=same_prompts,
        likelihood_shift=shift,
        most_shift=limits.most_shift,
        detectable_points=detectable_rows() / rows,
        faults=faults,
    )


def detectable_rows() -> int:
    """The fewest right answers that have to be lost, and none gained, for McNemar's test to tell it from chance."""
    lost = 1
    while mcnemar(0, lost) >= SIGNIFICANT:
        lost += 1
    return lost


def _score(records: Records) -> dict[str, Any]:
    judged = [bool(record["correct"]) for record in records if record["correct"] is not None]
    accuracy = sum(judged) / len(judged) if judged else 0.0
    interval = asdict(wilson(sum(judged), len(judged)))
    return {"rows": len(judged), "correct": sum(judged), "accuracy": accuracy, "interval": interval}
