"""What can be known to be wrong before a weight is loaded: batch arithmetic, columns, prompts, combinations.

All faults are found in one pass. What is checked here is what would otherwise fail after the first generation, or not
fail at all: TRL finishes "successfully" with 0 steps when the data is smaller than one batch.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr import continuous_batching, launch
from rlvr.curriculum import columns_fault, easy_first
from rlvr.errors import InputError
from rlvr.plugins import companion
from rlvr.recipe import Recipe
from rlvr.rewarding import Reward
from rlvr.schema import nearest
from rlvr.task import Task

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

# A data column of one of these names never reaches a reward, or breaks GRPOTrainer (trl/trainer/grpo_trainer.py).
RESERVED_COLUMNS = ("prompts", "completions", "completion", "completion_ids", "image", "images", "environment")


SHOWN_ROWS = 5


@dataclass(frozen=True)
class Plan:
    """What a run will do, in numbers.

    Attributes:
        processes: how many processes train together.
        prompts: different prompts per generation.
        generations: completions per prompt (the size of a group).
        steps: optimizer steps in all.
        rows: rows of the training split.
        dropped: rows left over at the end of every epoch because they fill no batch.
        longest_prompt: tokens of the longest prompt (among the 200 longest by characters).
        notes: sentences on what the recipe costs without need.
    """

    processes: int
    prompts: int
    generations: int
    steps: int
    rows: int
    dropped: int
    longest_prompt: int
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The plan in words, a line each."""
        return [
            f"{self.prompts} prompts x {self.generations} completions per generation"
            + (f" over {self.processes} processes" if self.processes > 1 else ""),
            f"{self.steps} optimizer steps over {self.rows} training rows"
            + (f" ({self.dropped} of them fill no batch and are left out of each epoch)" if self.dropped else ""),
            f"longest prompt {self.longest_prompt} tokens; nothing is cut",
            *self.notes,
        ]


def check(
    recipe: Recipe,
    task: Task,
    rewards: Sequence[Reward],
    metric: Reward,
    tokenizer: PreTrainedTokenizerBase,
    config: PretrainedConfig,
    processes: int,
) -> Plan:
    """Checks a recipe against its data, its rewards and its model's configuration.

    Raises:
        InputError: with one line for each fault.
    """
    faults = [
        *_combination_faults(recipe, config),
        *_waiting_faults(recipe, processes),
        *_sampling_faults(recipe, task, processes),
        *launch.launch_faults(recipe),
        *_data_faults(recipe, task, rewards, metric),
    ]
    plan = None
    if not faults:
        faults += _arithmetic_faults(recipe, len(task.train), processes)
    if not faults:
        longest = _longest_prompt(task, tokenizer)
        faults += _length_faults(recipe, config, longest)
        plan = _plan(recipe, len(task.train), processes, longest)
        faults += _schedule_faults(recipe, plan.steps)
    if faults:
        raise InputError("\n".join(faults))
    assert plan is not None  # it is made exactly when there is no fault
    return plan


def _combination_faults(recipe: Recipe, config: PretrainedConfig) -> list[str]:
    settings = recipe.settings
    faults = []
    quantised = settings.get("load_in_4bit") or settings.get("load_in_8bit")
    if quantised and not settings.get("use_peft"):
        faults.append("load_in_4bit without use_peft: quantised weights can't be trained; set use_peft: true (QLoRA).")
    if quantised and settings.get("use_vllm"):
        faults.append(
            "load_in_4bit with use_vllm: TRL can't push a QLoRA adapter's merge into vLLM correctly "
            "(github.com/huggingface/trl issues 4973, 3466, 5975). Set use_vllm: false, or load_in_4bit: false."
        )
    if settings.get("use_vllm") and importlib.util.find_spec("vllm") is None:
        faults.append("use_vllm: vllm is not installed here: pip install -e '.[vllm]' in an environment of its own.")
    if settings.get("attn_implementation") == "flash_attention_2" and importlib.util.find_spec("flash_attn") is None:
        faults.append(
            "attn_implementation: flash-attn is not installed here: pip install -e '.[flash-attn]', or use auto."
        )
    targets = settings.get("lora_target_modules") or []
    if "lm_head" in ([targets] if isinstance(targets, str) else targets):
        faults.append(
            "lora_target_modules: a LoRA on lm_head would never be applied, because TRL's loss reads the head's weight "
            "directly. Remove lm_head."
        )
    if recipe.output_dir.exists() and not recipe.output_dir.is_dir():
        faults.append(f"output_dir: {recipe.output_dir} is a file; name a folder, which is made if it isn't there.")
    faults += _tracker_faults(settings.get("report_to"))
    copied = {"lm_head", "embed_tokens"} & set(settings.get("lora_modules_to_save") or [])
    if copied and getattr(config.get_text_config(), "tie_word_embeddings", False):
        faults.append(
            f"lora_modules_to_save: {settings['model_name_or_path']} shares its embeddings between input and output; "
            f"saving {' and '.join(sorted(copied))} trains a separate copy that no longer is shared. Remove it."
        )
    return faults


def reward_budget(recipe: Recipe) -> float:
    """Seconds that the rewards of a batch may take in all: the recipe's, or a third of what ranks wait for another."""
    return float(recipe.settings.get("reward_budget_s") or _patience(recipe) / 3)


def _sampling_faults(recipe: Recipe, task: Task, processes: int) -> list[str]:
    """What of dynamic sampling, a curriculum and continuous batching can't go with the rest of the recipe."""
    settings = recipe.settings
    batch, group, *_ = _batch(recipe, processes)
    found = continuous_batching.settings_faults(settings, launch.launcher())
    if settings.get("dynamic_sampling"):
        from rlvr.dynamic_sampling import alignment_fault, settings_fault

        faults = (settings_fault(settings), alignment_fault(batch // processes, group))
        found += [fault for fault in faults if fault]
    if settings.get("curriculum", "none") != "none":
        fault = columns_fault(task.train.column_names)
        if fault is None and len(task.train):
            try:
                easy_first(task.train["difficulty"], 1, seed=0)
            except InputError as error:
                fault = str(error).removesuffix(".")
        found += [fault] if fault else []
    return [f"{fault}." for fault in found]


def _waiting_faults(recipe: Recipe, processes: int) -> list[str]:
    """Rewards that could outlast the other processes' patience, which would end the run with a timeout of NCCL."""
    faults = []
    budget, deadline = reward_budget(recipe), recipe.settings.get("reward_deadline_s", 30.0)
    if processes > 1 and budget > _patience(recipe) * 2 / 3:
        # The last third is for what else a process may be late by: longer completions, workers that start again.
        faults.append(
            f"reward_budget_s is {budget:g}, but the other processes wait for at most ddp_timeout = "
            f"{_patience(recipe):g} s, for rewards and completions together: a slow batch would end the run. Set "
            f"ddp_timeout to {budget * 3 / 2:.0f} or more, or lower reward_budget_s."
        )
    if deadline > budget:
        faults.append(
            f"reward_deadline_s is {deadline:g} for a row, but reward_budget_s is {budget:g} for a batch: raise "
            "the one or lower the other."
        )
    return faults


def _patience(recipe: Recipe) -> float:
    return float(recipe.settings.get("ddp_timeout", 1800))


def _tracker_faults(report_to: str | list[str] | None) -> list[str]:
    from transformers.integrations.integration_utils import (
        INTEGRATION_TO_CALLBACK,
        get_available_reporting_integrations,
    )

    faults = []
    for name in [report_to] if isinstance(report_to, str) else report_to or []:
        if name in ("none", "all"):
            continue
        if name not in INTEGRATION_TO_CALLBACK:
            close = nearest(name, INTEGRATION_TO_CALLBACK)
            hint = f"did you mean {close[0]}?" if close else "there are none, mlflow, tensorboard, trackio and wandb."
            faults.append(f"report_to: there is no tracker {name}; {hint}")
        elif name not in get_available_reporting_integrations():
            faults.append(f"report_to: {name} is not installed here: pip install {name}, or use mlflow or none.")
    return faults


def _data_faults(recipe: Recipe, task: Task, rewards: Sequence[Reward], metric: Reward) -> list[str]:
    faults = []
    columns = task.train.column_names
    if len(task.train) == 0:
        return [f"task {recipe.task.name}: the training split has no rows."]
    if "prompt" not in columns:
        return [f"task {recipe.task.name}: there is no column prompt; the columns are {', '.join(columns)}."]
    for name in RESERVED_COLUMNS:
        if name in columns:
            faults.append(f"task {recipe.task.name}: a column may not be called {name} (GRPOTrainer uses the name).")
    for reward in [*rewards, *([] if metric in rewards else [metric])]:
        missing = [column for column in reward.columns if column not in columns]
        if missing:
            faults.append(
                f"reward {reward.name} needs the column {' and '.join(missing)}, which the task {recipe.task.name} "
                f"doesn't give; it gives {', '.join(column for column in columns if column != 'prompt')}."
            )
        if not missing:
            faults += _row_faults(reward, task)
    for split in ("train", "validation", "test"):
        prompts = task.split(split)["prompt"] if len(task.split(split)) else []
        kinds = {type(prompt) for prompt in prompts}
        if len(kinds) > 1:
            faults.append(f"task {recipe.task.name}, {split}: some prompts are strings and some are messages; use one.")
        empty = next((row for row, prompt in enumerate(prompts) if not prompt), None)
        if empty is not None:
            faults.append(f"task {recipe.task.name}, {split}, row {empty}: the prompt is empty.")
    if recipe.settings.get("mask_truncated_completions") and task.stop_strings:
        faults.append(
            "mask_truncated_completions: TRL takes every completion without an end-of-sequence token for cut off, and "
            f"those of the task {recipe.task.name} end at a stop string, so none would be learnt from. Set it to false."
        )
    if recipe.settings.get("eval_strategy", "no") != "no":
        if len(task.validation) == 0:
            faults.append(
                f"eval_strategy: the task {recipe.task.name} has no validation rows; give it some (most tasks have an "
                "option validation_rows), or set eval_strategy: no."
            )
        if not recipe.settings.get("ds3_gather_for_generation", True):
            faults.append(
                "eval_strategy with ds3_gather_for_generation: false: processes finish their rows at different times, "
                "and would wait for one another for ever. Leave ds3_gather_for_generation at true."
            )
    if recipe.evaluation is not None and len(task.split(recipe.evaluation.split)) == 0:
        faults.append(
            f"evaluation: the task {recipe.task.name} has no rows in its split {recipe.evaluation.split}; give it some "
            "or remove the section evaluation."
        )
    return faults


def _row_faults(reward: Reward, task: Task) -> list[str]:
    """What the reward's own file has against rows of the data: its `check_rows`, if it defines one, is asked once."""
    check_rows = companion(reward.function, "check_rows")
    if check_rows is None:
        return []
    faults = []
    for split in ("train", "validation", "test"):
        rows = task.split(split)
        if len(rows) == 0:
            continue
        asked = inspect.signature(check_rows).parameters
        columns = {column: list(rows[column]) for column in rows.column_names if column in asked}
        found = [(row, fault) for row, fault in enumerate(check_rows(**{**columns, **reward.options})) if fault]
        if found:
            ids = rows["id"] if "id" in rows.column_names else None
            named = [
                f"  row {row}{f' ({ids[row]})' if ids is not None else ''}: {fault}"
                for row, fault in found[:SHOWN_ROWS]
            ]
            more = [f"  and {len(found) - SHOWN_ROWS} more"] if len(found) > SHOWN_ROWS else []
            head = (
                f"reward {reward.name}, {split}: {len(found)} of {len(rows)} rows can't be scored; mend or remove them:"
            )
            faults.append("\n".join([head, *named, *more]))
    return faults


def _batch(recipe: Recipe, processes: int) -> tuple[int, int, int, int, int]:
    """Completions per generation, group size, steps per generation, iterations, accumulation; as in GRPOConfig."""
    settings = recipe.settings
    per_device = settings.get("per_device_train_batch_size", 8)
    accumulation = settings.get("gradient_accumulation_steps", 1)
    group = settings.get("num_generations") or 8
    if settings.get("generation_batch_size"):
        batch = settings["generation_batch_size"]
        per_generation = max(batch // (per_device * processes), 1)
    else:
        per_generation = settings.get("steps_per_generation") or accumulation
        batch = per_device * processes * per_generation
    return batch, group, per_generation, settings.get("num_iterations", 1), accumulation


def _arithmetic_faults(recipe: Recipe, rows: int, processes: int) -> list[str]:
    batch, group, *_ = _batch(recipe, processes)
    if group < 2:
        return [f"num_generations is {group}, but GRPO compares at least 2 completions of a prompt."]
    if batch % group:
        return [
            f"A generation makes {batch} completions (per_device_train_batch_size x {processes} processes x "
            f"gradient_accumulation_steps), which does not divide into groups of num_generations = {group}. "
            f"Make it a multiple of {group}: for one, per_device_train_batch_size: {group}."
        ]
    if batch // group > rows:
        return [
            f"A generation takes {batch // group} prompts, but the training split has {rows} rows: not one step would "
            "be made. Lower gradient_accumulation_steps or per_device_train_batch_size, or give the task more rows."
        ]
    return []


def _plan(recipe: Recipe, rows: int, processes: int, longest: int) -> Plan:
    batch, group, per_generation, iterations, accumulation = _batch(recipe, processes)
    prompts = batch // group
    generations = rows // prompts
    max_steps = recipe.settings.get("max_steps", -1)
    steps_an_epoch = max(generations * per_generation * iterations // accumulation, 1)
    epochs = recipe.settings.get("num_train_epochs", 3.0)
    steps = max_steps if max_steps > 0 else math.ceil(epochs * steps_an_epoch)
    notes = _precision_notes(recipe)
    return Plan(processes, prompts, group, steps, rows, rows - generations * prompts, longest, tuple(notes))


def _schedule_faults(recipe: Recipe, steps: int) -> list[str]:
    """A learning rate that is 0 at every step: all would be computed, and nothing learnt."""
    settings = recipe.settings
    if settings.get("learning_rate") == 0:
        return ["learning_rate is 0, so nothing would be learnt."]
    if steps == 1 and settings.get("warmup_steps"):
        return [
            f"The run has one step, and with warmup_steps: {settings['warmup_steps']} the first step's learning rate "
            "is 0: nothing would be learnt. Make more steps, or set warmup_steps: 0."
        ]
    return []


def _precision_notes(recipe: Recipe) -> list[str]:
    settings = recipe.settings
    if settings.get("use_cpu"):
        return []
    if settings.get("load_in_4bit") and settings.get("dtype") == "float32":
        return [
            "dtype float32 with 4-bit weights: they are computed in float32, which leaves the GPU's 16-bit units idle "
            "and doubles what activations take; the adapter is float32 in any case. Set dtype: bfloat16"
        ]
    deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true"
    if not settings.get("use_peft") and settings.get("dtype") in ("bfloat16", "float16") and not deepspeed:
        return [
            f"dtype {settings['dtype']} without DeepSpeed: there are no float32 masters, so an update below 1/256 of a "
            "weight is rounded away. Set dtype: float32 (bf16: true still computes in 16 bits), or launch with zero2"
        ]
    return []


def _longest_prompt(task: Task, tokenizer: PreTrainedTokenizerBase) -> int:
    from rlvr.generation import prompt_tokens

    # Characters rank prompts nearly as tokens do, so only the longest ones need to be tokenised.
    prompts: list[Any] = [prompt for split in (task.train, task.test) for prompt in split["prompt"]]
    longest = sorted(prompts, key=_characters, reverse=True)[:200]
    return max(len(ids) for ids in prompt_tokens(tokenizer, longest))


def _characters(prompt: str | list[dict[str, str]]) -> int:
    return len(prompt) if isinstance(prompt, str) else sum(len(message["content"] or "") for message in prompt)


def _length_faults(recipe: Recipe, config: PretrainedConfig, longest: int) -> list[str]:
    room = getattr(config.get_text_config(), "max_position_embeddings", None)
    completion = recipe.settings.get("max_completion_length", 512)
    if room is None or longest + completion <= room:
        return []
    return [
        f"The longest prompt has {longest} tokens; with max_completion_length = {completion} that is more than the "
        f"{room} positions of {recipe.settings['model_name_or_path']}. Prompts are never cut: use fewer shots, filter "
        "the rows, or lower max_completion_length."
    ]
