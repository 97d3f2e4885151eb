"""Measure the first two generations of a run with all their updates, and project the whole run.

Nothing is kept: the output directory is temporary. The trainer is the run's own, with the run's schedule, and stops
after two generations. So the times are those of the real shape, and the rewards score what the model really writes.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState

from rlvr import console
from rlvr.config.batch_plan import batch_sizes
from rlvr.config.recipe import Recipe, value_of
from rlvr.estimates.machines import PRICES_READ, Machine
from rlvr.evaluation.conversations import open_player
from rlvr.evaluation.engines import TransformersEngine
from rlvr.evaluation.evaluate import measure
from rlvr.evaluation.evaluated_model import SAMPLED_PROMPTS
from rlvr.evaluation.measured import greedy_decoding, held_out_rows
from rlvr.formatting import byte_count, count, percent
from rlvr.preflight.projection import (
    ONCE,
    Generation,
    Part,
    project_evaluation,
    project_training,
    stretch_to,
)
from rlvr.preflight.sampled_scores import ScoredCompletions, check_spread
from rlvr.training import train
from rlvr.training.batch_merge import CompletionTable
from rlvr.training.grpo_trainer import RecipeTrainer
from rlvr.training.prepared_run import PreparedRun

GENERATIONS = 2
EVALUATED_ROWS = 64
# Nothing is saved, validated or tracked while the time is taken, and each step has its own line.
SETTINGS = {
    "save_strategy": "no",
    "eval_strategy": "no",
    "load_best_model_at_end": False,
    "report_to": "none",
    "logging_strategy": "steps",
    "logging_steps": 1,
    "log_completions": False,
}


def profile_run(prepared: PreparedRun, started: float, minutes: float, machine: Machine | None = None) -> None:
    """Measure two generations of a prepared run, and print what they show and what the whole run will take.

    Args:
        prepared: its output directory is temporary.
        started: when the process started, by `time.monotonic`.
        minutes: from `started`, after which no further step or batch begins.
        machine: for dollars.

    Raises:
        InputError: of kind "constant-reward": all completions have the same total reward.
        RewardError: a reward failed.
    """
    recipe, deadline = prepared.recipe, started + 60 * minutes
    of_each = steps_of_each(recipe, prepared.plan.processes)
    completions = count(prepared.plan.prompts * prepared.plan.generations, "completion")
    console.error(f"Measuring {GENERATIONS} generations of {completions}, with all their updates …")
    before_building = time.monotonic()
    measured = replace(recipe, settings={**recipe.settings, **SETTINGS})
    trainer = train.build_trainer(replace(prepared, recipe=measured))
    loading_s = time.monotonic() - before_building
    recorder = Recorder(trainer, of_each, deadline)
    trainer.add_callback(recorder)
    trainer.train()
    generations = recorder.generations()
    table = ScoredCompletions.of(recorder.tables, prepared)
    console.info("\n".join(["", *_phase_lines(generations, recipe), *_memory_lines(trainer, prepared), *table.lines()]))
    for problem in check_spread(table):
        console.info(f"\n  {problem}")
    if recorder.stopped_early:
        console.info(
            f"\n  --profile {minutes:g} ended the profile after {count(len(recorder.lines), 'update')} of "
            f"{GENERATIONS * of_each}. The projection continues what was measured."
        )
    loads = 3 if recipe.evaluation else 1  # for training, and for each evaluation
    start_s = before_building - started + loads * loading_s
    parts = [Part(f"start, and {count(loads, 'load')} of the model", start_s, start_s)]
    stretch = stretch_to(
        trainer.args.max_completion_length,
        generations[-1],
        vllm=trainer.use_vllm,
        sorted_rows=trainer.micro_batches.by_length,
    )
    parts.append(project_training(generations, prepared.plan.steps, of_each, stretch))
    before_saving = time.monotonic()
    trainer.save_model(str(train.saved_folder(recipe)))
    save_s = time.monotonic() - before_saving
    parts.append(Part("saving the trained weights", save_s, save_s))
    trainer.end_rollouts()
    parts += _evaluation_parts(trainer, prepared, deadline)
    header = ["projection", "as measured", f"all {trainer.args.max_completion_length} tokens"]
    console.info(f"\n{console.table(header, _projection_rows(parts, machine, prepared.plan.processes))}")
    prepared.state.wait_for_everyone()


def steps_of_each(recipe: Recipe, processes: int) -> int:
    """Optimizer steps of each generation; of several if they share a step."""
    sizes = batch_sizes(recipe, processes)
    return math.lcm(sizes.steps * sizes.iterations, sizes.accumulation) // sizes.accumulation


class Recorder(TrainerCallback):
    """Record the first generations, and end training after them, or after the step that passes the deadline.

    Args:
        of_each: optimizer steps of each generation.
        deadline: by `time.monotonic`.
    """

    def __init__(self, trainer: RecipeTrainer, of_each: int, deadline: float) -> None:
        self.trainer, self.of_each, self.deadline = trainer, of_each, deadline
        self.lines: list[dict[str, float]] = []  # the metrics of each step
        self.tables: list[CompletionTable] = []  # of each generation
        self.stopped_early = False
        self._times: list[float] = []  # when each step began, and when the last one ended

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self._times.append(time.monotonic())

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        ended = state.global_step >= min(GENERATIONS * self.of_each, state.max_steps)
        late = self.trainer.any_process(time.monotonic() > self.deadline)
        self.stopped_early = late and not ended
        control.should_training_stop = ended or late

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "train_runtime" in logs:
            return
        self.lines.append(dict(logs))
        if "reward" in logs:
            self.tables.append(self.trainer.read_table())

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        self._times.append(time.monotonic())

    def generations(self) -> list[Generation]:
        """What was measured; the last one may lack updates."""
        return [self._generation(start) for start in range(0, len(self.lines), self.of_each)]

    def _generation(self, start: int) -> Generation:
        lines = self.lines[start : start + self.of_each]
        sampled = [line for line in lines if "reward" in line]
        completions = len(sampled) * int(self.trainer.args.generation_batch_size)
        return Generation(
            len(lines),
            self._times[start + len(lines)] - self._times[start],
            {name: sum(line.get(f"time/{name}", 0.0) for line in lines) for name in ONCE},
            fmean(line["completions/mean_length"] for line in sampled) * completions,
            completions,
            max(line["completions/max_length"] for line in sampled),
            max(line["prompts/max_length"] for line in sampled),
            fmean(line["completions/clipped_ratio"] for line in sampled),
        )


def _phase_lines(generations: Sequence[Generation], recipe: Recipe) -> list[str]:
    # With dynamic sampling, the lengths are those of the first round, and the seconds those of all rounds.
    has_speed = not recipe.settings.get("dynamic_sampling")
    rows = [
        [words, *(f"{one.phases[name]:.1f} s" if one.phases[name] else "-" for one in generations)]
        for name, words in ONCE.items()
        if name != "tools" or any(one.phases[name] for one in generations)
    ]
    rows += [
        ["updates", *(f"{one.update:.1f} s ({one.steps})" for one in generations)],
        ["total", *(f"{one.seconds:.1f} s" for one in generations)],
        [
            "tokens per second",
            *(f"{one.tokens / max(one.phases['generation'], 1e-9):,.0f}" if has_speed else "-" for one in generations),
        ],
        ["mean completion", *(f"{one.tokens / one.completions:.0f} tokens" for one in generations)],
        ["longest completion", *(f"{one.longest:.0f} tokens" for one in generations)],
        ["cut off", *(percent(one.cut_off) for one in generations)],
    ]
    return [console.table(["", "generation 1", "generation 2"][: 1 + len(generations)], rows)]


def _memory_lines(trainer: RecipeTrainer, prepared: PreparedRun) -> list[str]:
    """The peak of the fullest process, beside the estimate. Collective."""
    if trainer.accelerator.device.type != "cuda":
        peak = max(gather_object([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
        return ["", f"  peak memory {byte_count(peak)} of the training process (resident)"]
    device = trainer.accelerator.device
    own = (torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device))
    allocated, reserved = (max(values) / 2**30 for values in zip(*gather_object([own]), strict=True))
    estimate = prepared.estimate
    estimated = f"; estimated {estimate.memory.peak / 2**30:.1f} GiB" if estimate is not None else ""
    without = ", without vLLM" if trainer.use_vllm and trainer.vllm_mode == "colocate" else ""
    return ["", f"  peak memory {allocated:.1f} GiB allocated, {reserved:.1f} GiB reserved{without}{estimated}"]


def _evaluation_parts(trainer: RecipeTrainer, prepared: PreparedRun, deadline: float) -> list[Part]:
    """Measure greedy answers to held-out rows, and project all evaluations. Collective."""
    recipe, task, plan = prepared.recipe, prepared.task, prepared.plan
    held_out = held_out_rows(task, recipe) if recipe.evaluation is not None else None
    of_epoch = plan.rows // plan.prompts * steps_of_each(recipe, plan.processes)
    validations = _validations(recipe, plan.steps, of_epoch)
    rows = held_out if held_out is not None else task.validation if validations else None
    if rows is None:
        return []
    if trainer.any_process(time.monotonic() > deadline):
        console.info("\n  --profile left no time to measure an evaluation: none is in the projection.")
        return []
    decoding, spec = greedy_decoding(task, recipe), recipe.evaluation
    batch_size = spec.batch_size if spec is not None else EVALUATED_ROWS
    chunk = batch_size * plan.processes
    # A GPU takes as long for some rows of a batch as for all.
    wanted = max(EVALUATED_ROWS, chunk) if trainer.accelerator.device.type == "cuda" else EVALUATED_ROWS
    wanted = min(wanted, len(rows))
    answers, right, measured_s, at_maximum_s = 0, 0, 0.0, 0.0
    trainer.model.eval()
    with open_player(recipe, prepared.tokenizer, rows.column_names) as player:
        for start in range(0, wanted, chunk):
            began = time.monotonic()
            with trainer.model_for_generation() as model:
                records = measure(
                    TransformersEngine(model, trainer.text_tokenizer),
                    rows.select(range(start, min(start + chunk, wanted))),
                    prepared.rewards,
                    prepared.metrics,
                    prepared.scorer,
                    decoding,
                    batch_size=batch_size,
                    description="",
                    template_options=recipe.settings.get("chat_template_kwargs"),
                    player=player,
                )
            seconds = time.monotonic() - began
            longest = max(max(record["tokens"] for record in records), 1)
            measured_s += seconds
            at_maximum_s += seconds * max(decoding.max_new_tokens / longest, 1.0)
            answers += len(records)
            right += sum(record["correct"] is True for record in records)
            if trainer.any_process(time.monotonic() > deadline):
                break
    accuracy = percent(right / answers)
    console.info(f"\n  after these updates, {accuracy} of {answers} held-out rows are right, decoded greedily")
    of_run = 2 if held_out is not None else 0
    total_rows = of_run * len(rows) + validations * len(task.validation)
    samples = min(SAMPLED_PROMPTS, len(task.train)) * plan.generations if of_run else 0
    measured = Part("measured", measured_s, at_maximum_s)
    return [project_evaluation(measured, answers, total_rows, of_run + validations, samples)]


def _validations(recipe: Recipe, steps: int, of_epoch: int) -> int:
    """How often training validates in so many steps, of which an epoch has `of_epoch`."""
    settings = recipe.settings
    strategy = value_of(settings, "eval_strategy")
    if strategy == "no":
        return 0
    every = of_epoch if strategy == "epoch" else settings.get("eval_steps") or value_of(settings, "logging_steps")
    return int(steps // (every if every >= 1 else math.ceil(steps * every))) + bool(settings.get("eval_on_start"))


def _projection_rows(parts: Sequence[Part], machine: Machine | None, processes: int) -> list[list[str]]:
    whole = Part("whole run", sum(part.seconds for part in parts), sum(part.at_maximum for part in parts))
    rows = [[part.name, *map(console.duration, (part.seconds, part.at_maximum))] for part in [*parts, whole]]
    if machine is not None and machine.price is not None:
        rate = machine.price * machine.needed(processes) / 3600
        dollars = [f"{seconds * rate:,.2f}" for seconds in (whole.seconds, whole.at_maximum)]
        rows.append([f"dollars ({machine.name}, prices of {PRICES_READ})", *dollars])
    return rows
