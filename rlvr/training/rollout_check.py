"""Check that vLLM or a merged copy samples from the policy that is trained, and not from stale or wrong weights.

Both report the log probability of each token that they sampled. With vLLM, TRL computes the trainer's own right after
sampling, for the importance sampling correction. No update lies between the two, whatever `num_iterations` and gradient
accumulation are. So a check needs no further forward pass, unless the correction is off or dropout is on. A check of a
merged copy needs one unless TRL replays a generation for several updates.

Rounding and quantisation move the logits, which moves a token's log probability by about (1 - p) times as much. The
statistic is therefore sum |difference| / sum (1 - p): roughly the difference of a logit, whatever the entropy. Data
types and quantisation explain its value before the first update. Where a later value is far above that, one forward
pass without the adapter tells a fault from rounding: rounding grows with the weights, but stays a small share of what
the adapter changes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from accelerate.utils import is_peft_model

from rlvr.errors import FailedRun

if TYPE_CHECKING:
    from rlvr.training.trl_seam import TrlSeam

FIRST_SYNCS = 3  # that are checked, whatever `rollout_check_steps` is
FIRST_LIMIT = 0.5  # of a logit, before any update
FIRST_LIMIT_QUANTISED = 5.0  # where only one of the two bases is quantised
# What rounding alone may be, of a logit. One check may find nothing: both may round alike.
ROUNDING = {"float32": 1e-4, "float16": 8e-3, "bfloat16": 6e-2}
LARGE = 0.05  # difference of a token, on average, for a run without an adapter to compare with


class RolloutError(FailedRun):
    """What generates does not sample from the policy.

    The kind is "wrong-base" (before any update), "no-adapter", "wrong-policy", or "overflow" of a merged copy.
    """


class Difference(NamedTuple):
    """How far log probabilities of the same tokens are apart, over all processes."""

    logit: float  # sum |difference| / sum (1 - p)
    mean: float  # of a token
    largest: float
    tokens: int

    def __str__(self) -> str:
        return (
            f"{self.logit:.2g} of a logit (a token: {self.mean:.2g} on average, {self.largest:.2g} at most; "
            f"{self.tokens:,} tokens)"
        )


class RolloutCheck:
    """Check the first syncs of a process, and then every so many steps.

    Args:
        every: `rollout_check_steps`; 0 for never.

    Attributes:
        expected: the difference before the first update, in logits; part of a checkpoint.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.expected: float | None = None
        self.checked: list[int] = []  # steps; part of a checkpoint, except that a new vLLM is checked anew

    def is_due(self, step: int) -> bool:
        """Whether the completions of a step are to be checked; once a step, since weights are sent once."""
        if not self.every or step in self.checked[-1:]:
            return False
        return len(self.checked) < FIRST_SYNCS or step - self.checked[-1] >= self.every

    def check(self, trainer: TrlSeam, batch: dict[str, Any]) -> None:
        """Compare the log probabilities of a batch that was just sampled. Collective.

        Raises:
            RolloutError: on all processes: the sampler does not sample from the policy.
        """
        step = trainer.state.global_step
        self.checked.append(step)
        own = batch.get("old_per_token_logps")
        if own is None or has_dropout(trainer):
            own = trainer.log_probabilities_of(batch)
        found = difference(trainer, batch, own)
        trainer.metrics["sampling/logit_difference"].append(found.logit)
        if self.expected is None:
            first_limit = FIRST_LIMIT_QUANTISED if base_differs(trainer) else FIRST_LIMIT
            if found.logit > first_limit and not samples_from_a_part(trainer):
                raise RolloutError(
                    f"{sampler(trainer)} samples from another model than the trainer's: before any update their log "
                    f"probabilities of the same tokens differ by {found}; data types and quantisation explain up to "
                    f"{first_limit:g} of a logit. Likely causes: another base or revision, another tokenizer or chat "
                    "template, or weights that were not loaded. Compare them, and read some completions. "
                    "docs/training.md describes the check, and rollout_check_steps: 0 turns it off.",
                    "wrong-base",
                )
            self.expected = found.logit
            return
        noise = max(limit(found.tokens) * self.expected, ROUNDING[compute_type(trainer)])
        if found.logit > noise:
            self._confirm(trainer, batch, own, found, noise)

    def _confirm(
        self, trainer: TrlSeam, batch: dict[str, Any], own: torch.Tensor, found: Difference, noise: float
    ) -> None:
        """Compare with what the adapter changes; raise unless rounding explains the difference."""
        assert self.expected is not None
        who = sampler(trainer)
        kind, cause = "wrong-policy", f"{who} has other weights: an older sync, or a part of them."
        if has_adapter(trainer):
            base = trainer.log_probabilities_of(batch, without_adapter=True)
            effect = difference(trainer, batch, own, base)
            explained = rounding_share(self.expected) * effect.logit
            if found.logit < explained:
                return
            if difference(trainer, batch, base).logit < min(max(explained, noise), found.logit / 3):
                kind, cause = "no-adapter", f"{who} samples from the base: the adapter did not arrive."
            else:
                cause = f"{who} has another adapter: an older one, a part of it, or another scale."
            cause += f" The trainer's adapter changes {effect.logit:.2g} of a logit."
        elif found.mean < LARGE:
            return
        fix = "rollouts: transformers" if trainer.use_vllm else "rollout_weights: adapter"
        raise RolloutError(
            f"{who} does not sample from the policy that is trained: at step {trainer.state.global_step} their log "
            f"probabilities of the same tokens differ by {found}, but by {self.expected:.2g} of a logit before the "
            f"first update. Likely cause: {cause} Set {fix}, and report the fault with "
            "this message. docs/training.md describes the check; rollout_check_steps: 0 turns it off.",
            kind,
        )


def limit(tokens: int) -> float:
    """By how much a difference may exceed that before the first update: more for few tokens, whose mean varies."""
    return 2 + 40 / math.sqrt(tokens)


def rounding_share(expected: float) -> float:
    """Which share of the adapter's effect rounding may be, from the difference before the first update."""
    return min(0.05 + 8 * expected, 0.8)


def difference(
    trainer: TrlSeam, batch: dict[str, Any], one: torch.Tensor, other: torch.Tensor | None = None
) -> Difference:
    """Compare log probabilities of a batch's completions with the sampler's, or with others; collective."""
    sampled = batch["sampling_per_token_logps"]
    other = sampled if other is None else other
    # vLLM reports NaN for a token that it could not score.
    counted = (batch["completion_mask"] * batch.get("tool_mask", 1)).bool() & ~sampled.isnan()
    distance = (one - other).abs()[counted].double()
    uncertain = 1 - sampled[counted].double().exp()
    sums = [distance.sum(), uncertain.sum(), distance.new_tensor(distance.numel())]
    largest = distance.max() if distance.numel() else distance.new_tensor(0.0)
    ranks = trainer.accelerator.gather(torch.stack([*sums, largest]).float().unsqueeze(0))
    apart, room, tokens = ranks[:, :3].sum(dim=0).tolist()
    return Difference(apart / max(room, 1e-9), apart / max(tokens, 1), ranks[:, 3].max().item(), int(max(tokens, 1)))


def sampler(trainer: TrlSeam) -> str:
    return "vLLM" if trainer.use_vllm else "The merged copy"


def has_adapter(trainer: TrlSeam) -> bool:
    return is_peft_model(trainer.accelerator.unwrap_model(trainer.model))


def compute_type(trainer: TrlSeam) -> str:
    """The name of the type that training computes in."""
    args = trainer.args
    return "bfloat16" if args.bf16 else "float16" if args.fp16 else str(trainer.model.dtype).removeprefix("torch.")


def base_differs(trainer: TrlSeam) -> bool:
    """Whether training has 4-bit weights, and vLLM has a base that was not made of them."""
    if not trainer.use_vllm:
        return False
    base = getattr(trainer.vllm_generation, "base_quantization", "none")
    is_own = base == "none" and trainer.vllm_mode == "colocate"
    return not is_own and getattr(trainer.accelerator.unwrap_model(trainer.model), "is_loaded_in_4bit", False)


def has_dropout(trainer: TrlSeam) -> bool:
    """Whether TRL's log probabilities of a batch differ from call to call."""
    return any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in trainer.model.modules())


def samples_from_a_part(trainer: TrlSeam) -> bool:
    """Whether vLLM's log probabilities are those of a part of the vocabulary, or of changed logits."""
    args = trainer.args
    plain = args.top_p == 1 and not args.top_k and not args.min_p and args.repetition_penalty == 1
    own = set(args.generation_kwargs or {}) - {"stop", "include_stop_str_in_output"}
    return not plain or bool(own) or args.vllm_structured_outputs_regex is not None
