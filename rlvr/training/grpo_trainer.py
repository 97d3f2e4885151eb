"""The trainer of a recipe: TRL's `GRPOTrainer` with our policies on rewards, advantages, sampling and figures.

Everything here that touches an underscore method of TRL is in `RecipeTrainer`, and for checkpoints in
rlvr/training/checkpoint_trainer.py; trl is bounded to one minor version in pyproject.toml and
tests/rlvr/training/test_trl_contract.py holds the signatures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object
from transformers import Trainer, TrainerControl
from trl.models import unwrap_model_for_generation

from rlvr import console
from rlvr.modeling.generation import ended, generate, own_settings_aside
from rlvr.scoring.reward import Reward, RewardError, apply_gates_and_mask
from rlvr.scoring.scorer import RewardFailure, Scored, Scorer, report
from rlvr.training import advantages as advantage
from rlvr.training.checkpoint_trainer import SavingTrainer
from rlvr.training.validation import Validation

if TYPE_CHECKING:
    from rlvr.training.dynamic_sampling import DynamicSampler

# Generations in a row of which no row could be scored, after which going on is a waste of the GPUs.
MOST_MASKED = 10


class RecipeTrainer(SavingTrainer):
    """`GRPOTrainer` with these departures.

    1. Rewards run in workers, all at once (rlvr/scoring/scorer.py). A row that one of them can't score is left out of
    the
       update altogether: advantage 0 and no token in the loss (TRL counts it as 0 next to another reward's number).
       Gates are applied after rewards were gathered, so that every rank sees the same.
    2. `scale_rewards: adaptive`, dynamic sampling, and advantages of 0 where a group's rewards are equal but for
       rounding (rlvr/training/advantages.py, rlvr/training/dynamic_sampling.py).
    3. With `transformers` generation, plain-text prompts end at the task's stop strings. TRL passes no tokenizer to
       `generate`, without which transformers refuses `stop_strings`. Can go when huggingface/trl passes one.
    4. Figures that TRL doesn't log (docs/metrics.md), and validation that decodes greedily.

    Args:
        rewards: those of the recipe, in its order.
        scorer: runs them.
        settings: the recipe's keys of ours (`Recipe.settings_for("run")`), and whether advantages are `adaptive`.
        stop_strings: the task's.
        validation: what `eval_strategy` measures; None where the recipe asks for none.
        refill: dynamic sampling; None where the recipe asks for none.
    """

    def __init__(
        self,
        *args: Any,
        rewards: list[Reward],
        scorer: Scorer,
        settings: Mapping[str, Any],
        stop_strings: tuple[str, ...] = (),
        validation: Validation | None = None,
        refill: DynamicSampler | None = None,
        **kwargs: Any,
    ) -> None:
        self._rewards = rewards
        self._scorer = scorer
        self.silent_s = 0.0  # for how long no reward server or Ray cluster has answered
        self.silent = ""  # which of the two
        self._own = settings
        self._stop_strings = stop_strings
        self._validation = validation
        self._refill = refill
        self._faults: list[RewardFailure] = []
        self._masked_in_a_row = 0
        self.scored_generations = 0
        self.first_weights: torch.Tensor | None = None  # `training.fingerprint` of the run's very beginning
        self._settled = torch.empty(0)  # (completions of all ranks, rewards), NaN where masked, of the last generation
        self._seconds = {"generation": 0.0, "rewards": 0.0}
        self._update_s = 0.0
        self._own_logps: torch.Tensor | None = None
        self._unwritten = False
        super().__init__(*args, reward_funcs=_stand_ins(rewards, self._score), **kwargs)

    # ------------------------------------------------------------------------------------------------------------------
    # Rewards

    def _score(self, arguments: Mapping[str, Any]) -> Scored:
        """All rewards of this rank's rows, from the keyword arguments that TRL calls a reward function with."""
        names = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
        columns = {name: value for name, value in arguments.items() if name not in names}
        scored = self._scorer.score(
            arguments["prompts"],
            arguments["completions"],
            columns,
            completion_ids=arguments["completion_ids"],
            trainer_state={
                "global_step": self.state.global_step,
                "max_steps": self.state.max_steps,
                "epoch": self.state.epoch,
            },
            step=self.state.global_step,
            log_extra=arguments["log_extra"],
            log_metric=arguments["log_metric"],
        )
        self._faults = scored.faults
        self.silent_s, self.silent = scored.silent_s, scored.silent
        return scored

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        started = time.perf_counter()
        self._faults = []
        raw = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if torch.isnan(raw).any():  # the same on all ranks, so that all take part in what follows
            self._answer_faults()
        settled = apply_gates_and_mask(raw.tolist(), self._rewards)
        numbers = [[torch.nan if value is None else value for value in row] for row in settled]
        self._settled = torch.tensor(numbers, dtype=raw.dtype, device=raw.device)
        self._watch_masked(self._settled[:, 0].isnan())
        self._seconds["rewards"] += time.perf_counter() - started
        return self._settled

    def _answer_faults(self) -> None:
        """Stops the run, on all ranks with the same words, or goes on without the rows; as the recipe says."""
        outage = self.silent_s > 0 and all(fault.kind == "unavailable" for fault in self._faults)
        found = gather_object([(report(self._faults), outage)] if self._faults else [])
        if not found:
            return  # a reward said None of its own accord
        reports = [text for text, _ in found]
        # Servers may come back, and no reward is at fault: that ends with a checkpoint (rlvr/training/interruption.py).
        if self._own["on_reward_error"] == "raise" and not all(one for _, one in found):
            raise RewardError(
                "\n\n".join(reports) + "\n\non_reward_error: mask would leave such rows out of the update and go on."
            )
        console.error("\n" + "\n\n".join(reports))

    def _watch_masked(self, masked: torch.Tensor) -> None:
        fraction = masked.float().mean().item()
        self._figure("rewards/unscored_fraction", fraction)
        if fraction < 1:
            self._masked_in_a_row = 0
            self.scored_generations += 1
            return
        self._masked_in_a_row += not self.silent_s
        if self._masked_in_a_row >= MOST_MASKED:
            raise RewardError(
                f"Not one completion of the last {MOST_MASKED} generations could be scored (every row was masked), so "
                "nothing is learnt. The rewards' own faults stand above; if there are none, a reward returned None for "
                "every row: is what it reads (columns, golds, a server) there?"
            )

    def totals(self) -> torch.Tensor:
        """(completions of all ranks,) weighted rewards of the last generation; NaN where masked."""
        return (self._settled * self.reward_weights.to(self._settled.device)).sum(dim=1)

    # ------------------------------------------------------------------------------------------------------------------
    # Completions and their advantages

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        if self._refill is not None and self.model.training:
            output = self._refill.run(self, inputs, self._one_round)
        else:
            output = self._one_round(inputs)
        self._log_figures()
        return output

    def _one_round(self, inputs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        count, rank = len(inputs), self.accelerator.process_index
        mine = slice(rank * count, (rank + 1) * count)
        self._correct_advantages(output, mine)
        masked = self._settled[:, 0].isnan()
        if masked.any():
            # No advantage is not enough: the tokens would still count in the loss's denominator, and in the KL term.
            output["completion_mask"] = output["completion_mask"] * (~masked[mine]).unsqueeze(1).int()
            counted = output["completion_mask"] * output.get("tool_mask", 1)
            output["num_items_in_batch"] = self.accelerator.gather(counted.sum()).sum()
        return output

    def _correct_advantages(self, output: dict[str, Any], mine: slice) -> None:
        """Adaptive normalisation, and 0 for groups without spread, in the update and in what is logged."""
        group = self.num_generations if self.model.training else self.num_generations_eval
        # Each reward by itself is normalised in the other aggregation, so there all of them must be equal.
        summed = self.multi_objective_aggregation == "sum_then_normalize"
        flat = advantage.without_spread(self.totals() if summed else self._settled, group)
        self._metrics[self._mode()]["frac_reward_zero_std"][-1] = flat.float().mean().item()
        table = self._logs["advantages"]
        kept = min(len(flat), len(table))
        if self._own["adaptive"]:
            everyones = advantage.adaptive(self.totals(), group, self._own["adaptive_threshold"])
            output["advantages"] = everyones[mine].to(output["advantages"].dtype)
            shown = everyones.tolist()
        else:
            shown = list(table)
        output["advantages"] = output["advantages"].masked_fill(flat[mine], 0.0)
        for _ in range(kept):
            table.pop()
        table.extend(
            0.0 if no_spread else value for no_spread, value in zip(flat[-kept:].tolist(), shown[-kept:], strict=True)
        )

    def _generate(self, prompts: Any) -> Any:
        started = time.perf_counter()
        with own_settings_aside(self.accelerator.unwrap_model(self.model)):
            output = super()._generate(prompts)
        mode = self._mode()
        prompt_ids, completion_ids = output[0], output[1]
        device = self.accelerator.device
        cut = [False] * len(completion_ids)
        if self._stop_strings:
            # TRL counts whatever doesn't end in an end-of-sequence token as cut off; ours may end at a stop string.
            cut = [not ended(self._tokenizer, ids, self.eos_token_ids, self._stop_strings) for ids in completion_ids]
        lengths = torch.tensor(
            [[len(ids), was_cut] for ids, was_cut in zip(prompt_ids, cut, strict=True)], device=device
        )
        everywhere = self.accelerator.gather(lengths).float()
        if self._stop_strings:
            self._metrics[mode]["completions/clipped_ratio"][-1] = everywhere[:, 1].mean().item()
        for name in ("mean", "min", "max"):
            self._figure(f"prompts/{name}_length", getattr(everywhere[:, 0], name)().item())
        self._seconds["generation"] += time.perf_counter() - started
        return output

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, **kwargs: Any
    ) -> Any:
        if not self._stop_strings or self.use_vllm:
            return super()._generate_single_turn(prompt_ids, images, multimodal_fields, num_generations, **kwargs)
        with self._model_for_generation() as model:
            ids = generate(model, self._tokenizer, prompt_ids, self.generation_config, stop_strings=self._stop_strings)
        return ids, None

    def _model_for_generation(self) -> Any:
        return unwrap_model_for_generation(
            self.model_wrapped,
            self.accelerator,
            gather_deepspeed3_params=self.args.ds3_gather_for_generation,
            generation_kwargs=self.generation_kwargs,
            gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
        )

    # ------------------------------------------------------------------------------------------------------------------
    # Figures

    def _mode(self) -> str:
        return "train" if self.model.training else "eval"

    def _figure(self, name: str, value: float) -> None:
        self._metrics[self._mode()][name].append(value)

    def _log_figures(self) -> None:
        """What TRL doesn't say of a generation: the extremes of rewards, the advantages, repeated completions."""
        scored = self._settled[~self._settled[:, 0].isnan()]
        if len(scored):
            totals = self.totals()
            self._figure("reward/min", totals[~totals.isnan()].min().item())
            self._figure("reward/max", totals[~totals.isnan()].max().item())
            for index, reward in enumerate(self._rewards):
                self._figure(f"rewards/{reward.label}/min", scored[:, index].min().item())
                self._figure(f"rewards/{reward.label}/max", scored[:, index].max().item())
        count = len(self._settled)
        advantages = torch.tensor(list(self._logs["advantages"])[-count:])
        for name, value in advantage.statistics(advantages, self.totals().cpu()).items():
            self._figure(name, value)
        texts = [str(text) for text in list(self._logs["completion"])[-count:]]
        group = self.num_generations if self.model.training else self.num_generations_eval
        groups = [texts[start : start + group] for start in range(0, len(texts), group)]
        if texts:
            self._figure("completions/duplicate_fraction", 1 - sum(len(set(one)) for one in groups) / len(texts))

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any) -> torch.Tensor:
        began, elsewhere = time.perf_counter(), sum(self._seconds.values())
        loss = super().training_step(model, inputs, num_items_in_batch)
        self._update_s += time.perf_counter() - began - (sum(self._seconds.values()) - elsewhere)
        if self._step % self.current_gradient_accumulation_steps == 0:
            for name, seconds in self._seconds.items():
                self._metrics["train"][f"time/{name}"].append(seconds)
            self._metrics["train"]["time/update"].append(self._update_s)
            self._seconds, self._update_s = {"generation": 0.0, "rewards": 0.0}, 0.0
        return loss

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._own_logps = found[0].detach()
        return found

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        old = inputs.get("old_per_token_logps")
        if old is not None and self._own_logps is not None:
            # E[log old - log new], the estimator k1 of the KL divergence to the policy that sampled
            # (http://joschu.net/blog/kl-approx.html). Identically 0 where completions are used for one update only.
            mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
            sums = torch.stack([((old - self._own_logps) * mask).sum(), mask.sum().float()])
            difference, tokens = self.accelerator.reduce(sums, reduction="sum")
            self._figure("policy_kl", (difference / tokens.clamp(min=1.0)).item())
        self._own_logps = None
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        ended_early = self.state.global_step < self.state.max_steps or not self._logs["prompt"]
        if ("train_runtime" in logs and ended_early) or any(key.startswith("eval_") for key in logs):
            # GRPOTrainer's would write the last step's completions once more, or, after a resumption from the last
            # step, none in their place; and what was gathered since the last log line of a run that is stopped is in
            # its checkpoint.
            Trainer.log(self, logs, start_time)
            return
        try:
            super().log(logs, start_time)
            self._unwritten = False
        except OSError as error:  # the table of completions, which is written last
            if not self._unwritten:
                console.error(f"\n  The completions of step {self.state.global_step} can't be written: {error}.")
            self._unwritten = True

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Greedy accuracy and rewards on the validation rows, whole and per source; TRL's would sample."""
        if self._validation is None:
            return {}
        training = self.model.training
        with self._model_for_generation() as model, torch.no_grad():
            self.model.eval()
            metrics = self._validation.measure(model, self._tokenizer, metric_key_prefix)
        self.model.train(training)
        self.log(metrics)
        self.control: TrainerControl = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    # ------------------------------------------------------------------------------------------------------------------

    def own_state(self) -> dict[str, Any]:
        return {
            "masked_in_a_row": self._masked_in_a_row,
            "scored_generations": self.scored_generations,
            "first_weights": self.first_weights,
            "refill": self._refill.state() if self._refill is not None else None,
        }

    def load_own_state(self, state: dict[str, Any]) -> None:
        self._masked_in_a_row = state["masked_in_a_row"]
        self.scored_generations = state["scored_generations"]
        self.first_weights = state["first_weights"]
        if self._refill is not None and state["refill"] is not None:
            self._refill.load(state["refill"])


class _RewardProxy:
    """A reward function as TRL sees it: the first of a batch has all rewards run at once, and each gives its own."""

    def __init__(self, index: int, reward: Reward, shared: dict[str, Any], score: Callable[..., Scored]) -> None:
        self.__name__ = reward.label  # GRPOTrainer names its metrics after it: rewards/<label>/mean
        self.index = index
        self.shared = shared
        self.score = score

    def __call__(self, **arguments: Any) -> list[float | None]:
        completions: Sequence[Any] = arguments["completions"]
        if self.shared.get("completions") is not completions:
            self.shared.update(completions=completions, values=self.score(arguments).values)
        return [row[self.index] for row in self.shared["values"]]


def _stand_ins(rewards: Sequence[Reward], score: Callable[..., Scored]) -> list[_RewardProxy]:
    shared: dict[str, Any] = {}
    return [_RewardProxy(index, reward, shared, score) for index, reward in enumerate(rewards)]
