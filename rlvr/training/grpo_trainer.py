"""The trainer of a recipe: TRL's `GRPOTrainer` with this project's rewards, advantages, sampling and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import Trainer, TrainerControl

from rlvr import console
from rlvr.data.mixture import COLUMN as TASK
from rlvr.environments.proxies import Environments
from rlvr.modeling.generation import ended
from rlvr.scoring.call_result import RewardFailure, Scored
from rlvr.scoring.reward import RewardError, apply_gates_and_mask
from rlvr.scoring.scorer import trl_reward_functions
from rlvr.training import advantages as advantage
from rlvr.training.batch_scores import BatchScores, duplicate_fraction
from rlvr.training.checkpoint_writer import CheckpointWriter
from rlvr.training.prepared_run import PreparedRun
from rlvr.training.reward_failures import nothing_scored, raise_or_report
from rlvr.training.rollout_check import RolloutCheck
from rlvr.training.tool_turns import ToolTurns
from rlvr.training.trl_seam import TrlSeam

MAX_MASKED_GENERATIONS = 10  # in a row without one scored row, after which the run ends
MAX_REPORTED_ENVIRONMENTS = 3  # different causes of failed environments that one batch prints


class RecipeTrainer(TrlSeam):
    """`GRPOTrainer` with these departures.

    1. Rewards run in workers, all at once (rlvr/scoring/scorer.py). A row that one of them can't score leaves the
       update: advantage 0 and no token in the loss (TRL counts it as 0 next to another reward's number). Gates are
       applied after rewards were gathered, so that every rank sees the same.
    2. `scale_rewards: adaptive`, dynamic sampling, and advantages of 0 where a group's rewards are equal but for
       rounding (rlvr/training/advantages.py, rlvr/training/dynamic_sampling.py).
    3. transformers makes a generation in rounds that fit the GPU; TRL makes it at once. Plain-text prompts end at the
       task's stop strings. TRL passes no tokenizer to `generate`, without which transformers refuses `stop_strings`.
       Can go when huggingface/trl passes one.
    4. Environments are played in worker processes, the calls of a batch at the same time. A row whose environment fails
       leaves the update. Rewards get the token ids that the model wrote, without those of tool results.
    5. Where vLLM or a merged copy samples, a check that it samples from the policy (rlvr/training/rollout_check.py).
    6. Rewards that apply to some tasks of a mixture alone (rlvr/data/mixture.py). Elsewhere they are NaN, which TRL
       leaves out of sums, normalisations and means.
    7. Metrics that TRL doesn't log (docs/monitoring.md), and validation that decodes greedily.
    8. Checkpoints that are complete or absent, and continue a run bit for bit (rlvr/training/checkpoint_writer.py).
    9. Micro-batches with less padding, and a shuffle of their own (rlvr/training/micro_batches.py).

    For each generation TrlSeam calls `describe_completions`, then TRL the rewards (`trl_reward_functions`, then
    `_after_scoring`), then TrlSeam `gate_and_mask` and `correct_batch`; `add_batch_metrics` once the batch is complete.

    Args:
        card: as for `CheckpointWriter`.
        validation: `rlvr.training.train.validate` of the run; None where the recipe asks for none.
        kwargs: those of `TrlSeam`.
    """

    def __init__(
        self,
        *args: Any,
        prepared: PreparedRun,
        card: str,
        validation: Callable[..., dict[str, float]] | None,
        **kwargs: Any,
    ) -> None:
        recipe = prepared.recipe
        settings = recipe.settings_for("run") | {"adaptive": recipe.settings.get("scale_rewards") == "adaptive"}
        self._rewards = prepared.rewards
        self._tasks = tuple(prepared.task.mixed)
        self._validation = validation
        self._rollout_check = RolloutCheck(settings["rollout_check_steps"])
        self.outage_s, self.outage_of = 0.0, ""  # how long a reward server or Ray cluster has not answered, and which
        self.scored_generations = 0  # with a scored row
        self.first_weights: torch.Tensor | None = None  # `rlvr.training.train.fingerprint` before the first step
        self._failures: list[RewardFailure] = []
        self._masked_generations = 0  # in a row
        self.scoring_nothing: list[str] = []  # rewards that returned None for the whole last generation, or failed
        self._logged_columns: set[str] = set()
        self._table_failed = False
        super().__init__(
            *args,
            settings=settings,
            stop_strings=prepared.task.stop_strings,
            checkpoints=CheckpointWriter(self, prepared.identity, recipe.settings.get("save_total_limit"), card),
            reward_funcs=trl_reward_functions(prepared.rewards, prepared.scorer, self._after_scoring),
            **kwargs,
        )

    # ------------------------------------------------------------------------------------------------------------------
    # Rewards

    def _after_scoring(self, scored: Scored, arguments: Mapping[str, Any]) -> None:
        """Log what only the trainer knows of this rank's rows; `arguments` are those of TRL's call of the rewards."""
        self._failures = scored.failures
        self.outage_s, self.outage_of = scored.outage_s, scored.outage_of
        columns: dict[str, list[Any]] = self.turns.columns() if self.played_environments is not None else {}
        logged = scored.logged | columns.keys()
        if self._tasks:
            columns[TASK] = arguments[TASK]
            # What a reward logs is absent where it applies to no row: TRL would repeat the values of an earlier batch.
            columns |= {name: [None] * len(arguments["completions"]) for name in self._logged_columns - logged - {TASK}}
            self._logged_columns |= logged | {TASK}
        for name, values in columns.items():
            arguments["log_extra"](name, values)

    def gate_and_mask(self, raw: torch.Tensor, inputs: Any) -> torch.Tensor:
        if self.played_environments is not None:
            raw[self._failed_environments(self.played_environments)] = torch.nan
        # NaN: does not apply, returned None, or failed; only failures raise. Equal on all ranks, as the call needs.
        if torch.isnan(raw).any():
            on_error = self.settings["on_reward_error"]
            raise_or_report(self._failures, is_silent=self.outage_s > 0, on_error=on_error)
        tasks = gather_object([row[TASK] for row in inputs]) if self._tasks else [None] * len(raw)
        rows = apply_gates_and_mask(raw.tolist(), self._rewards, tasks)
        numbers = [[torch.nan if value is None else value for value in row] for row in rows]
        scores = torch.tensor(numbers, dtype=raw.dtype, device=raw.device)
        self.scores = BatchScores(scores, self.reward_weights, [reward.label for reward in self._rewards], tasks)
        unscored = torch.isnan(raw).all(dim=0).tolist()
        self.scoring_nothing = [
            reward.name
            for reward, none in zip(self._rewards, unscored, strict=True)
            if none and any(map(reward.applies, set(tasks)))
        ]
        self._watch_masked(self.scores.masked())
        return scores

    def _failed_environments(self, environments: Environments) -> torch.Tensor:
        """(completions of all ranks,) whether the row's environment failed; reports the causes. Collective."""
        causes = environments.failures()
        failed = self.accelerator.gather(
            torch.tensor([bool(cause) for cause in causes], device=self.accelerator.device)
        )
        self.metrics["environment/failed_fraction"].append(failed.float().mean().item())
        for cause in sorted({cause for cause in causes if cause})[:MAX_REPORTED_ENVIRONMENTS]:
            rows = causes.count(cause)
            console.error(
                f"\nAn environment failed in {rows} of {len(causes)} rollouts, which leave the update: {cause}."
            )
        return failed

    def _watch_masked(self, masked: torch.Tensor) -> None:
        fraction = masked.float().mean().item()
        self.metrics["rewards/unscored_fraction"].append(fraction)
        if fraction < 1:
            self._masked_generations = 0
            self.scored_generations += 1
            return
        self._masked_generations += not self.outage_s  # an outage has its own limit (SyncedStopCallback)
        if self._masked_generations >= MAX_MASKED_GENERATIONS:
            raise RewardError(nothing_scored(f"the last {MAX_MASKED_GENERATIONS} generations", self.scoring_nothing))

    # ------------------------------------------------------------------------------------------------------------------
    # Completions and their advantages

    def describe_completions(self, prompt_ids: Any, completion_ids: Any, tool_mask: Any, completions: Any) -> None:
        tokenizer, eos, stops = self.text_tokenizer, self.eos_token_ids, self.stop_strings
        self.finished = [ended(tokenizer, ids, eos, stops) for ids in completion_ids]
        lengths = [[len(ids), not was_ended] for ids, was_ended in zip(prompt_ids, self.finished, strict=True)]
        gathered = self.accelerator.gather(torch.tensor(lengths, device=self.accelerator.device)).float()
        if stops:
            # TRL counts a completion without an end-of-sequence token as cut off; it may end at a stop string.
            self.metrics["completions/clipped_ratio"][-1] = gathered[:, 1].mean().item()
        for name in ("mean", "min", "max"):
            self.metrics[f"prompts/{name}_length"].append(getattr(gathered[:, 0], name)().item())
        if self.played_environments is not None:
            self.turns = ToolTurns(
                completions, tool_mask, self.finished, self.max_tool_calling_iterations, self.result_seconds
            )
            self._add_tool_metrics(self.played_environments)

    def _add_tool_metrics(self, environments: Environments) -> None:
        """Add what TRL doesn't log of tool calls; collective."""
        sums = [environments.failed_calls(), environments.seconds(), *self.turns.sums()]
        failed, seconds, turns, cut, rows = self.accelerator.reduce(
            torch.tensor(sums, dtype=torch.float64, device=self.accelerator.device), reduction="sum"
        ).tolist()
        if self.tools:
            calls = self.metrics["tools/call_frequency"][-1] * rows
            # TRL has counted the calls that failed before they reached a worker.
            self.metrics["tools/failure_frequency"][-1] += failed / calls if calls else 0.0
        for name, total in (("turns", turns), ("cut_by_iterations", cut), ("seconds", seconds)):
            self.metrics[f"tools/{name}"].append(total / rows)

    def correct_batch(self, batch: dict[str, Any], rows: int) -> None:
        samples_apart = "sampling_per_token_logps" in batch  # by vLLM or by a merged copy
        if samples_apart and self.model.training and self._rollout_check.is_due(self.state.global_step):
            self._rollout_check.check(self, batch)
        rank = self.accelerator.process_index
        own_rows = slice(rank * rows, (rank + 1) * rows)
        self._correct_advantages(batch, own_rows)
        for reward in self._rewards if self._tasks else ():
            for part in ("mean", "std"):  # TRL's are NaN if the reward applies to no completion of the batch
                self.drop_nan_metric(f"rewards/{reward.label}/{part}")
        masked = self.scores.masked()
        if masked.any():
            # No advantage is not enough: the tokens would still count in the loss's denominator, and in the KL term.
            batch["completion_mask"] = batch["completion_mask"] * (~masked[own_rows]).unsqueeze(1).int()
            counted = batch["completion_mask"] * batch.get("tool_mask", 1)
            batch["num_items_in_batch"] = self.accelerator.gather(counted.sum()).sum()

    def _correct_advantages(self, output: dict[str, Any], own_rows: slice) -> None:
        """Apply adaptive normalisation, and 0 for groups without spread, to the update and to the table."""
        # In the other aggregation each reward is normalised by itself, so there all of them must be equal.
        summed = self.multi_objective_aggregation == "sum_then_normalize"
        flat = advantage.without_spread(self.scores.totals() if summed else self.scores.values, self._group_size())
        self.metrics["frac_reward_zero_std"][-1] = flat.float().mean().item()
        logged = self.last_logged("advantages", len(flat))  # TRL's table may hold fewer rows than one generation has
        if self.settings["adaptive"]:
            threshold = self.settings["adaptive_threshold"]
            advantages = advantage.adaptive(self.scores.totals(), self._group_size(), threshold)
            output["advantages"] = advantages[own_rows].to(output["advantages"].dtype)
            logged = advantages.tolist()[-len(logged) :]
        output["advantages"] = output["advantages"].masked_fill(flat[own_rows], 0.0)
        last_flat = flat.tolist()[-len(logged) :]
        self.replace_last_logged(
            "advantages", [0.0 if is_flat else value for is_flat, value in zip(last_flat, logged, strict=True)]
        )

    def _group_size(self) -> int:
        return self.num_generations if self.model.training else self.num_generations_eval

    def add_batch_metrics(self) -> None:
        count = len(self.scores.values)
        advantages = torch.tensor(self.last_logged("advantages", count))
        statistics = advantage.statistics(advantages, self.scores.totals().cpu())
        for name, value in (*self.scores.metrics(self._tasks), *statistics.items()):
            self.metrics[name].append(value)
        if texts := [str(text) for text in self.last_logged("completion", count)]:
            self.metrics["completions/duplicate_fraction"].append(duplicate_fraction(texts, self._group_size()))

    # ------------------------------------------------------------------------------------------------------------------
    # Log lines, validation and checkpoints

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        ended_early = self.state.global_step < self.state.max_steps or not self.last_logged("completion", 1)
        if ("train_runtime" in logs and ended_early) or any(key.startswith("eval_") for key in logs):
            # GRPOTrainer's would write the last step's completions once more, or an empty table over them after a
            # resumption from the last step. Metrics since the last log line of a stopped run are in its checkpoint.
            Trainer.log(self, logs, start_time)
            return
        try:
            super().log(logs, start_time)
            self._table_failed = False
        except OSError as error:  # the table of completions, which is written last
            if not self._table_failed:
                console.error(f"\n  The completions of step {self.state.global_step} can't be written: {error}.")
            self._table_failed = True

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Measure greedy accuracy and rewards on the validation rows, whole and per source; TRL's would sample."""
        if self._validation is None:
            return {}
        training = self.model.training
        with self.model_for_generation() as model, torch.no_grad():
            self.model.eval()
            metrics = self._validation(model, self.text_tokenizer, metric_key_prefix)
        self.model.train(training)
        self.log(metrics)
        self.control: TrainerControl = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        self.checkpoints.write_card(Path(self.args.output_dir))

    def any_process(self, flag: bool) -> bool:
        """Whether `flag` is true on any process; collective."""
        own = torch.tensor([float(flag)], device=self.accelerator.device)
        return bool(self.accelerator.gather(own).max().item() > 0)

    # The keys are part of the file format of a checkpoint.

    def state_between_steps(self) -> dict[str, Any]:
        own = {
            "masked_in_a_row": self._masked_generations,
            "scored_generations": self.scored_generations,
            "first_weights": self.first_weights,
            "rollout_difference": self._rollout_check.expected,
            "rollouts_checked": list(self._rollout_check.checked) if self.merged_rollouts is not None else [],
            "rollout_weights": self.merged_rollouts.chosen if self.merged_rollouts is not None else None,
            "logged_columns": sorted(self._logged_columns),
            "refill": self.dynamic_sampler.fresh.state() if self.dynamic_sampler is not None else None,
        }
        return {**super().state_between_steps(), "own": own}

    def load_state_between_steps(self, state: Mapping[str, Any]) -> None:
        super().load_state_between_steps(state)
        own = state["own"]
        self._masked_generations = own["masked_in_a_row"]
        self.scored_generations = own["scored_generations"]
        self.first_weights = own["first_weights"]
        self._rollout_check.expected = own["rollout_difference"]
        self._rollout_check.checked = own["rollouts_checked"]
        if self.merged_rollouts is not None:
            self.merged_rollouts.chosen = own["rollout_weights"] or "adapter"
        self._logged_columns = set(own["logged_columns"])
        if self.dynamic_sampler is not None and own["refill"] is not None:
            self.dynamic_sampler.fresh.load(own["refill"])
