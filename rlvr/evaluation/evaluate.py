"""Complete and score held-out rows: one code path for base and trained models, greedy decoding and samples."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import EvaluationSpec, Recipe, RewardSpec
from rlvr.console import ProgressBar
from rlvr.data.task import Task
from rlvr.evaluation.answer_cache import AnswerCache, AnswerKey, prompt_key
from rlvr.evaluation.engines import Completion, Decoding, Engine, TransformersEngine
from rlvr.evaluation.lenient_match import match_leniently
from rlvr.evaluation.scores import Score, summarise
from rlvr.modeling.generation import prompt_tokens
from rlvr.scoring.registry import load_reward
from rlvr.scoring.reward import Reward, RewardError, apply_gates_and_mask
from rlvr.scoring.scorer import RewardFailure, Scorer, report

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SCORING_BATCH = 256  # the batch timeout of rewards is for a batch, not for a split
Records = list[dict[str, Any]]


def choose_metric(spec: EvaluationSpec | None, rewards: Sequence[Reward]) -> Reward:
    """Choose the reward that decides whether an answer is right."""
    name = (spec.metric if spec else None) or max(rewards, key=lambda reward: reward.weight).name
    for reward in rewards:
        if name in (reward.name, reward.label):
            return reward
    return load_reward(RewardSpec(name))


def rewards_to_run(rewards: Sequence[Reward], metric: Reward) -> list[Reward]:
    """List the rewards that an evaluation needs: the recipe's, and the metric if it is none of them."""
    return [*rewards, *([] if metric in rewards else [metric])]


def held_out_rows(task: Task, recipe: Recipe) -> Dataset:
    """The first rows of the split, as many as the recipe's section `evaluation` asks for."""
    spec = recipe.evaluation or EvaluationSpec()
    data = task.split(spec.split)
    return data if spec.rows is None else data.select(range(min(spec.rows, len(data))))


def greedy_decoding(task: Task, recipe: Recipe) -> Decoding:
    """Greedy decoding as the recipe's section `evaluation` says."""
    spec = recipe.evaluation or EvaluationSpec()
    max_new_tokens = spec.max_new_tokens or recipe.settings.get("max_completion_length", 512)
    return Decoding(max_new_tokens, tuple(task.stop_strings), seed=int(recipe.settings.get("seed", 42)))


def evaluate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    data: Dataset,
    rewards: Sequence[Reward],
    metric: Reward,
    scorer: Scorer,
    *,
    batch_size: int,
    max_new_tokens: int,
    stop_strings: Sequence[str] = (),
    description: str = "evaluating",
) -> tuple[Score, Records]:
    """Complete every row of `data` greedily and score it: `measure` with a loaded model."""
    records = measure(
        TransformersEngine(model, tokenizer),
        data,
        rewards,
        metric,
        scorer,
        Decoding(max_new_tokens, tuple(stop_strings)),
        batch_size=batch_size,
        description=description,
    )
    return summarise(records, [reward.label for reward in rewards]), records


def measure(
    engine: Engine,
    data: Dataset,
    rewards: Sequence[Reward],
    metric: Reward,
    scorer: Scorer,
    decoding: Decoding,
    *,
    batch_size: int,
    samples: int = 1,
    description: str = "evaluating",
    cache: AnswerCache | None = None,
    lenient: bool = False,
) -> Records:
    """Complete every row of `data` and score it.

    Under a distributed launch every process takes a share of the rows, and all get the whole result.

    Args:
        scorer: runs `rewards` and `metric` (`rewards_to_run`).
        samples: completions a row.
        cache: answers of earlier sessions, which are not generated again; new ones are added.
        lenient: whether to add what is right whatever its form (rlvr/evaluation/lenient_match.py).

    Returns:
        One record per row and sample, in the order of `data`: row, id, prompt, completion, tokens, ended, correct
        (None where the metric could not say), `rewards/<label>`, formatted and lenient (see `Score`); and the number of
        the sample where there are several.

    Raises:
        RewardError: a reward failed; on all processes, with the reports of all.
    """
    from accelerate import PartialState
    from accelerate.utils import gather_object

    state = PartialState()
    records = _complete_rows(
        engine,
        data,
        decoding,
        batch_size,
        samples,
        f"{description} ({len(data)} rows)",
        cache,
        (state.process_index, state.num_processes),
    )
    failures = _score(records, data, rewards, metric, scorer)
    reports = gather_object([report(failures)] if failures else [])
    if reports:
        raise RewardError("\n\n".join(reports))
    if lenient:
        _add_lenient(records)
    records = sorted(gather_object(records), key=lambda record: (record["row"], record["sample"]))
    if samples == 1:
        for record in records:
            del record["sample"]
    return records


def _complete_rows(
    engine: Engine,
    data: Dataset,
    decoding: Decoding,
    batch_size: int,
    samples: int,
    description: str,
    cache: AnswerCache | None,
    share: tuple[int, int],
) -> Records:
    """Get this process's share of the answers, from the cache or from the engine."""
    prompts = list(data["prompt"])
    ids = prompt_tokens(engine.tokenizer, prompts) if prompts else []
    row_keys = _row_keys(ids)
    # Long prompts first, so that a batch that doesn't fit into memory fails at once. Prompts of similar length
    # together, since padding is computed too. Batches don't depend on the cache: in a later session a row has the
    # neighbours and the random numbers that it would have had in the first.
    order = sorted(range(len(prompts)), key=lambda row: (-len(ids[row]), row))
    share_of_rows = [(row, sample) for row in order for sample in range(samples)][share[0] :: share[1]]
    answers: dict[tuple[int, int], Completion] = {}
    if cache is not None:
        for row, sample in share_of_rows:
            cached = cache.answers.get((row_keys[row], sample))
            if cached is not None:
                answers[row, sample] = cached
    with ProgressBar(description, len(share_of_rows)) as progress:
        progress.skip(len(answers))
        for start in range(0, len(share_of_rows), batch_size):
            batch = share_of_rows[start : start + batch_size]
            missing = [pair for pair in batch if pair not in answers]
            if not missing:
                continue
            seed = _batch_seed(decoding.seed, [(row_keys[row], sample) for row, sample in batch])
            completions = engine.complete([ids[row] for row, _ in missing], decoding, seed)
            if cache is not None:
                cache.add([(row_keys[row], sample) for row, sample in missing], completions)
            answers.update(zip(missing, completions, strict=True))
            progress.update(len(missing))
    return [
        {
            "row": row,
            "sample": sample,
            "prompt": prompts[row],
            "completion": answer.text,
            "tokens": answer.tokens,
            "ended": answer.ended,
        }
        for (row, sample), answer in sorted(answers.items())
    ]


def _row_keys(ids: Sequence[Sequence[int]]) -> list[str]:
    """A key for each row: that of its prompt, and a number where several rows have that prompt."""
    counts: dict[str, int] = {}
    keys = []
    for prompt in ids:
        key = prompt_key(prompt)
        counts[key] = counts.get(key, 0) + 1
        keys.append(key if counts[key] == 1 else f"{key}.{counts[key]}")
    return keys


def _batch_seed(seed: int, keys: Sequence[AnswerKey]) -> int:
    """A seed that depends on the batch's rows and on nothing that was sampled before."""
    return (zlib.crc32(repr(keys).encode()) + seed) % 2**32


def _score(
    records: Records, data: Dataset, rewards: Sequence[Reward], metric: Reward, scorer: Scorer
) -> list[RewardFailure]:
    """Add `correct`, `formatted`, the rewards and the identifying columns to records; return the failures."""
    if not records:
        return []
    prompts = [record["prompt"] for record in records]
    # As GRPOTrainer passes completions: messages for chat prompts, strings for plain ones.
    completions = [
        record["completion"]
        if isinstance(record["prompt"], str)
        else [{"role": "assistant", "content": record["completion"]}]
        for record in records
    ]
    columns = {}
    for name in data.column_names:
        if name not in ("prompt", "completion"):
            column = list(data[name])
            columns[name] = [column[record["row"]] for record in records]
    values: list[list[float | None]] = []
    failures: list[RewardFailure] = []
    for start in range(0, len(records), SCORING_BATCH):
        batch = slice(start, start + SCORING_BATCH)
        scored = scorer.score(
            prompts[batch], completions[batch], {name: column[batch] for name, column in columns.items()}
        )
        values += scored.values
        failures += scored.failures
    indices = [scorer.rewards.index(reward) for reward in rewards]
    gated = apply_gates_and_mask([[row[index] for index in indices] for row in values], rewards)
    metric_index = scorer.rewards.index(metric)
    format_indices = [scorer.rewards.index(reward) for reward in rewards if reward.label.endswith("_format")]
    for number, record in enumerate(records):
        value = values[number][metric_index]
        record["correct"] = None if value is None else value >= 1.0
        for reward, item in zip(rewards, gated[number], strict=True):
            record[f"rewards/{reward.label}"] = item
        formats = [values[number][index] for index in format_indices]
        record["formatted"] = (
            all(item >= 1.0 for item in formats if item is not None) if formats and None not in formats else None
        )
        for name in ("id", "source", "difficulty", "final_answer"):
            if name in columns:
                record[name] = columns[name][number]
    return failures


def _add_lenient(records: Records) -> None:
    """Add `lenient` to records: right whatever its form."""
    texts = [record["completion"] for record in records]
    golds = [record.get("final_answer") for record in records]
    for record, matched in zip(
        records, match_leniently(texts, golds, [record["correct"] for record in records]), strict=True
    ):
        record["lenient"] = matched
