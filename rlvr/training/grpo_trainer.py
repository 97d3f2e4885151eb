"""The trainer of a recipe: TRL's `GRPOTrainer` with this project's rewards, advantages, sampling and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import Trainer, TrainerControl
from trl.models import unwrap_model_for_generation

from rlvr import console
from rlvr.data.mixture import COLUMN as TASK
from rlvr.modeling.generation import ended, generate, ignore_generation_config
from rlvr.scoring.call_result import RewardFailure, Scored
from rlvr.scoring.reward import Reward, apply_gates_and_mask
from rlvr.scoring.scorer import Scorer, reward_columns
from rlvr.training import advantages as advantage
from rlvr.training.batch_merge import CompletionTable, RolloutBatch
from rlvr.training.batch_scores import BatchScores, duplicate_fraction
from rlvr.training.dynamic_sampling import DynamicSampler
from rlvr.training.environment_trainer import EnvironmentTrainer
from rlvr.training.reward_failures import nothing_scored, raise_or_report
from rlvr.training.rollout_check import RolloutCheck

MAX_MASKED_GENERATIONS = 10  # in a row without one scored row, after which the run ends


class RecipeTrainer(EnvironmentTrainer):
    """`GRPOTrainer` with these departures.

    1. Rewards run in workers, all at once (rlvr/scoring/scorer.py). A row that one of them can't score leaves the
       update: advantage 0 and no token in the loss (TRL counts it as 0 next to another reward's number). Gates are
       applied after rewards were gathered, so that every rank sees the same.
    2. `scale_rewards: adaptive`, dynamic sampling, and advantages of 0 where a group's rewards are equal but for
       rounding (rlvr/training/advantages.py, rlvr/training/dynamic_sampling.py).
    3. transformers makes a generation in rounds that fit the GPU; TRL makes it at once. Plain-text prompts end at the
       task's stop strings. TRL passes no tokenizer to `generate`, without which transformers refuses `stop_strings`.
       Can go when huggingface/trl passes one.
    4. Environments are played in worker processes (rlvr/training/environment_trainer.py).
    5. Where vLLM samples, a check that it samples from the policy (rlvr/training/rollout_check.py).
    6. Rewards that apply to some tasks of a mixture alone (rlvr/data/mixture.py). Elsewhere they are NaN, which TRL
       leaves out of sums, normalisations and means.
    7. Metrics that TRL doesn't log (docs/metrics.md), and validation that decodes greedily.

    Args:
        rewards: those of the recipe, in its order.
        scorer: runs them.
        settings: the recipe's keys of this project (`Recipe.settings_for("run")`), and `adaptive`.
        stop_strings: the task's.
        tasks: labels of the tasks of a mixture.
        validation: `rlvr.training.train.validate` with its rows and rewards; None where the recipe asks for none.
        dynamic_sampler: None where the recipe asks for none.
        kwargs: those of `EnvironmentTrainer`.
    """

    def __init__(
        self,
        *args: Any,
        rewards: list[Reward],
        scorer: Scorer,
        settings: Mapping[str, Any],
        stop_strings: tuple[str, ...] = (),
        tasks: Sequence[str] = (),
        validation: Callable[..., dict[str, float]] | None = None,
        dynamic_sampler: DynamicSampler | None = None,
        **kwargs: Any,
    ) -> None:
        self._rewards = rewards
        self._scorer = scorer
        self._run_settings = settings
        self._stop_strings = stop_strings
        self._tasks = tasks
        self._validation = validation
        self._dynamic_sampler = dynamic_sampler
        self._rollout_check = RolloutCheck(settings["rollout_check_steps"])
        self.silent_s, self.silent = 0.0, ""  # how long a reward server or Ray cluster has not answered, and which
        self.scored_generations = 0  # with a scored row
        self.first_weights: torch.Tensor | None = None  # `rlvr.training.train.fingerprint` before the first step
        self._failures: list[RewardFailure] = []
        self._masked_generations = 0  # in a row
        self.scoring_nothing: list[str] = []  # rewards that returned None for the whole last generation, or failed
        self._scores: BatchScores  # of the last generation
        self._logged_columns: set[str] = set()
        self._seconds = dict.fromkeys(("generation", "tools", "old_log_probabilities", "rewards"), 0.0)
        self._update_s = 0.0
        self._log_probabilities: torch.Tensor | None = None
        self._table_failed = False
        super().__init__(*args, reward_funcs=reward_columns(scorer, self._after_scoring), **kwargs)

    # ------------------------------------------------------------------------------------------------------------------
    # Rewards

    def _after_scoring(self, scored: Scored, arguments: Mapping[str, Any]) -> None:
        """Log what only the trainer knows of this rank's rows; `arguments` are those of TRL's call of the rewards."""
        self._failures = scored.failures
        self.silent_s, self.silent = scored.outage_s, scored.outage_of
        columns: dict[str, list[Any]] = dict(self.conversation_columns())
        logged = scored.logged | columns.keys()
        if self._tasks:
            columns[TASK] = arguments[TASK]
            # What a reward logs is absent where it applies to no row: TRL would repeat the values of an earlier batch.
            columns |= {name: [None] * len(arguments["completions"]) for name in self._logged_columns - logged - {TASK}}
            self._logged_columns |= logged | {TASK}
        for name, values in columns.items():
            arguments["log_extra"](name, values)

    def compute_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        started = time.perf_counter()
        self._failures = []
        raw = super().compute_rewards(inputs, prompts, completions, completion_ids_list)
        if torch.isnan(raw).any():  # the same on all ranks, which the collective call needs
            on_error = self._run_settings["on_reward_error"]
            raise_or_report(self._failures, is_silent=self.silent_s > 0, on_error=on_error)
        tasks = gather_object([row[TASK] for row in inputs]) if self._tasks else [None] * len(raw)
        rows = apply_gates_and_mask(raw.tolist(), self._rewards, tasks)
        numbers = [[torch.nan if value is None else value for value in row] for row in rows]
        scores = torch.tensor(numbers, dtype=raw.dtype, device=raw.device)
        self._scores = BatchScores(scores, self.reward_weights, [reward.label for reward in self._rewards], tasks)
        unscored = torch.isnan(raw).all(dim=0).tolist()
        applying = [any(map(reward.applies, set(tasks))) for reward in self._rewards]
        self.scoring_nothing = [
            reward.name
            for reward, none, applies in zip(self._rewards, unscored, applying, strict=True)
            if none and applies
        ]
        self._watch_masked(self._scores.masked())
        self._seconds["rewards"] += time.perf_counter() - started
        return scores

    def _watch_masked(self, masked: torch.Tensor) -> None:
        fraction = masked.float().mean().item()
        self.add_metric("rewards/unscored_fraction", fraction)
        if fraction < 1:
            self._masked_generations = 0
            self.scored_generations += 1
            return
        self._masked_generations += not self.silent_s
        if self._masked_generations >= MAX_MASKED_GENERATIONS:
            raise nothing_scored(MAX_MASKED_GENERATIONS, self.scoring_nothing)

    # ------------------------------------------------------------------------------------------------------------------
    # Completions and their advantages

    def sample_batch(self, inputs: Any) -> dict[str, Any]:
        if self._dynamic_sampler is not None and self.model.training:
            output = self._sample_dynamically(inputs, self._dynamic_sampler)
        else:
            output = self._sample_once(inputs)
        self._add_batch_metrics()
        return output

    def _sample_dynamically(self, inputs: Any, sampler: DynamicSampler) -> dict[str, Any]:
        """Sample as many rounds as the batch needs.

        What TRL logs of rewards and lengths stays that of round 0. Fresh groups are kept because they are neither all
        right nor all wrong. A mean reward over them would draw towards one half, and could not be compared with that
        of a run without dynamic sampling. The table of completions shows the batch that is trained on.
        """

        def sample(rows: list[Any]) -> RolloutBatch:
            self.write_table(CompletionTable())
            tensors = self._sample_once(rows)
            return RolloutBatch(tensors, self._scores.values, self.read_table())

        first = sample(inputs)
        with self.without_further_metrics():
            batch, metrics = sampler.fill(
                first,
                sample,
                rank=self.accelerator.process_index,
                world=self.accelerator.num_processes,
                pad_token=self.text_tokenizer.pad_token_id,
                sum_over_ranks=lambda count: self.accelerator.gather(count).sum(),
            )
        for name, value in metrics.items():
            self.add_metric(name, value)
        self.write_table(batch.table)
        self._scores = replace(self._scores, values=batch.rewards)
        return batch.tensors

    def _sample_once(self, inputs: Any) -> dict[str, Any]:
        output = super().sample_batch(inputs)
        if self.use_vllm and self.model.training and self._rollout_check.is_due(self.state.global_step):
            self._rollout_check.check(self, output)
        count, rank = len(inputs), self.accelerator.process_index
        own_rows = slice(rank * count, (rank + 1) * count)
        self._correct_advantages(output, own_rows)
        for reward in self._rewards if self._tasks else ():
            for part in ("mean", "std"):  # TRL's are NaN if the reward applies to no completion of the batch
                self.drop_nan_metric(f"rewards/{reward.label}/{part}")
        masked = self._scores.masked()
        if masked.any():
            # No advantage is not enough: the tokens would still count in the loss's denominator, and in the KL term.
            output["completion_mask"] = output["completion_mask"] * (~masked[own_rows]).unsqueeze(1).int()
            counted = output["completion_mask"] * output.get("tool_mask", 1)
            output["num_items_in_batch"] = self.accelerator.gather(counted.sum()).sum()
        return output

    def _correct_advantages(self, output: dict[str, Any], own_rows: slice) -> None:
        """Apply adaptive normalisation, and 0 for groups without spread, to the update and to the table."""
        # In the other aggregation each reward is normalised by itself, so there all of them must be equal.
        summed = self.multi_objective_aggregation == "sum_then_normalize"
        flat = advantage.without_spread(self._scores.totals() if summed else self._scores.values, self._group_size())
        self.replace_metric("frac_reward_zero_std", flat.float().mean().item())
        logged = self.last_advantages(len(flat))  # TRL's table may hold fewer rows than one generation has
        if self._run_settings["adaptive"]:
            threshold = self._run_settings["adaptive_threshold"]
            advantages = advantage.adaptive(self._scores.totals(), self._group_size(), threshold)
            output["advantages"] = advantages[own_rows].to(output["advantages"].dtype)
            logged = advantages.tolist()[-len(logged) :]
        output["advantages"] = output["advantages"].masked_fill(flat[own_rows], 0.0)
        last_flat = flat.tolist()[-len(logged) :]
        self.replace_last_advantages(
            [0.0 if is_flat else value for is_flat, value in zip(last_flat, logged, strict=True)]
        )

    def _group_size(self) -> int:
        return self.num_generations if self.model.training else self.num_generations_eval

    def generate_completions(self, prompts: Any) -> Any:
        started = time.perf_counter()
        with ignore_generation_config(self.accelerator.unwrap_model(self.model)):
            output = super().generate_completions(prompts)
        prompt_ids, completion_ids = output[0], output[1]
        cut = [False] * len(completion_ids)
        if self._stop_strings:
            # TRL counts a completion without an end-of-sequence token as cut off; it may end at a stop string.
            tokenizer, eos = self.text_tokenizer, self.eos_token_ids
            cut = [not ended(tokenizer, ids, eos, self._stop_strings) for ids in completion_ids]
        lengths = torch.tensor(
            [[len(ids), was_cut] for ids, was_cut in zip(prompt_ids, cut, strict=True)], device=self.accelerator.device
        )
        gathered = self.accelerator.gather(lengths).float()
        if self._stop_strings:
            self.replace_metric("completions/clipped_ratio", gathered[:, 1].mean().item())
        for name in ("mean", "min", "max"):
            self.add_metric(f"prompts/{name}_length", getattr(gathered[:, 0], name)().item())
        tool_s = self.take_tool_wait()
        self._seconds["tools"] += tool_s
        self._seconds["generation"] += time.perf_counter() - started - tool_s
        return output

    def generate_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, **kwargs: Any
    ) -> Any:
        at_once = self._run_settings["per_device_generation_batch_size"] or len(prompt_ids)
        if self.use_vllm:
            return super().generate_turn(prompt_ids, images, multimodal_fields, num_generations, **kwargs)
        ids: list[list[int]] = []
        for start in range(0, len(prompt_ids), at_once):
            part = slice(start, start + at_once)
            prompts = prompt_ids[part]
            if self._stop_strings:
                with self.model_for_generation() as model:
                    ids += generate(
                        model, self.text_tokenizer, prompts, self.generation_config, stop_strings=self._stop_strings
                    )
            else:
                fields = {name: values[part] for name, values in multimodal_fields.items()}  # such as token types
                ids += super().generate_turn(prompts, images, fields, num_generations, **kwargs)[0]
        return ids, None

    def model_for_generation(self) -> Any:
        """The model with whole weights and without activation checkpointing, as a context; collective."""
        return unwrap_model_for_generation(
            self.model_wrapped,
            self.accelerator,
            gather_deepspeed3_params=self.args.ds3_gather_for_generation,
            generation_kwargs=self.generation_kwargs,
            gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
        )

    # ------------------------------------------------------------------------------------------------------------------
    # Metrics

    def _add_batch_metrics(self) -> None:
        count = len(self._scores.values)
        advantages = torch.tensor(self.last_advantages(count))
        statistics = advantage.statistics(advantages, self._scores.totals().cpu())
        for name, value in (*self._scores.metrics(self._tasks), *statistics.items()):
            self.add_metric(name, value)
        if texts := [str(text) for text in self.last_completions(count)]:
            self.add_metric("completions/duplicate_fraction", duplicate_fraction(texts, self._group_size()))

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any) -> torch.Tensor:
        started, seconds_before = time.perf_counter(), sum(self._seconds.values())
        loss = super().training_step(model, inputs, num_items_in_batch)
        self._update_s += time.perf_counter() - started - (sum(self._seconds.values()) - seconds_before)
        if self.micro_step % self.current_gradient_accumulation_steps == 0:
            for name, seconds in self._seconds.items():
                if name != "tools" or self.plays_environments:
                    self.add_metric(f"time/{name}", seconds)
            self.add_metric("time/update", self._update_s)
            self._seconds, self._update_s = dict.fromkeys(self._seconds, 0.0), 0.0
        return loss

    def compute_log_probabilities(self, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():  # of the update
            output = super().compute_log_probabilities(*args, **kwargs)
            self._log_probabilities = output[0].detach()
            return output
        started = time.perf_counter()
        output = super().compute_log_probabilities(*args, **kwargs)
        if self.accelerator.device.type == "cuda":
            torch.cuda.synchronize()  # or the rewards' time would contain the kernels that still run
        self._seconds["old_log_probabilities"] += time.perf_counter() - started
        return output

    def compute_grpo_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        loss = super().compute_grpo_loss(model, inputs)
        old = inputs.get("old_per_token_logps")
        if old is not None and self._log_probabilities is not None:
            # E[log old - log new], the estimator k1 of the KL divergence to the policy that sampled
            # (http://joschu.net/blog/kl-approx.html). Identically 0 where completions are used for one update only.
            mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
            sums = torch.stack([((old - self._log_probabilities) * mask).sum(), mask.sum().float()])
            difference, tokens = self.accelerator.reduce(sums, reduction="sum")
            self.add_metric("policy_kl", (difference / tokens.clamp(min=1.0)).item())
        self._log_probabilities = None
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        ended_early = self.state.global_step < self.state.max_steps or not self.last_completions(1)
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

    # ------------------------------------------------------------------------------------------------------------------
    # Checkpoints: what is saved beside the weights. The keys are part of the file format.

    def state_between_steps(self) -> dict[str, Any]:
        own = {
            "masked_in_a_row": self._masked_generations,
            "scored_generations": self.scored_generations,
            "first_weights": self.first_weights,
            "rollout_difference": self._rollout_check.expected,
            "logged_columns": sorted(self._logged_columns),
            "refill": self._dynamic_sampler.fresh.state() if self._dynamic_sampler is not None else None,
        }
        return {**super().state_between_steps(), "own": own}

    def load_state_between_steps(self, state: Mapping[str, Any]) -> None:
        super().load_state_between_steps(state)
        own = state["own"]
        self._masked_generations = own["masked_in_a_row"]
        self.scored_generations = own["scored_generations"]
        self.first_weights = own["first_weights"]
        self._rollout_check.expected = own["rollout_difference"]
        self._logged_columns = set(own["logged_columns"])
        if self._dynamic_sampler is not None and own["refill"] is not None:
            self._dynamic_sampler.fresh.load(own["refill"])
