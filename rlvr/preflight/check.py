"""The table of checks. A check finds problems in the loaded components of a run; it opens nothing and changes nothing.

To add a check, write a function from `RunComponents` to some `Problem`s, and add a row with what it needs. One error
suppresses only the errors that it causes: a check is skipped if a component that it needs could not be loaded, if a
check that it relies on found an error, or if the value of a key that it reads is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from rlvr.config.recipe import Recipe
from rlvr.errors import InputError, Problem
from rlvr.preflight import (
    batch_checks,
    compatibility,
    data_checks,
    environment_checks,
    generation_checks,
    rollout_weights,
    vllm_checks,
    vllm_server,
)
from rlvr.preflight.components import RunComponents
from rlvr.preflight.lora_targets import check_lora_targets
from rlvr.training import launch

Component = TypeVar("Component")
CheckFunction = Callable[[RunComponents], Iterable[Problem]]


@dataclass(frozen=True)
class Check:
    """One row of the table of checks.

    Attributes:
        function: finds problems in the components, or raises an InputError with them.
        reads: recipe keys that it depends on. If the value of one is unknown, the check is skipped.
        needs: attributes of `RunComponents` that must not be None.
        after: checks that must have found no error.
    """

    function: CheckFunction
    reads: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    after: tuple[CheckFunction, ...] = ()


class Findings:
    """The problems that checks find.

    Args:
        known_problems: errors of the recipe's text, which are reported already. The values of their keys are unknown,
            so checks that read these keys are skipped.
        recipe: tells where the key of a problem was written.
    """

    def __init__(self, known_problems: Iterable[Problem] = (), recipe: Recipe | None = None) -> None:
        self._recipe = recipe
        self.problems: list[Problem] = []
        self.known_problems = tuple(known_problems)
        self.unknown_keys = {key for one in self.known_problems for key in (one.key, one.suggestion) if key}
        self.skipped_keys: set[str] = set()
        self._failed: set[CheckFunction] = set()
        self._doubtful_keys = set(self.unknown_keys)  # an error about one of them may be a consequence

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.level == "error"]

    def add(self, problems: Iterable[Problem], section: str = "") -> None:
        """Add problems that are new, each with its place in the recipe, or with that of `section`."""
        recipe = self._recipe
        located = dict.fromkeys(recipe.locate(one, section) if recipe is not None else one for one in problems)
        for problem in located:
            is_consequence = problem.kind == "missing-key" and problem.key in self.unknown_keys
            if problem not in self.problems and not is_consequence:
                self.problems.append(problem)

    def attempt(self, load: Callable[[], Component], section: str = "") -> Component | None:
        """Return what `load` returns. If it raises InputError, add its problems, and return None."""
        try:
            return load()
        except InputError as error:
            self.add(error.problems, section)
            return None

    def run(self, checks: Iterable[Check], components: RunComponents) -> None:
        """Run checks in their order."""
        for check in checks:
            unknown = self.unknown_keys.intersection(check.reads)
            self.skipped_keys |= unknown
            missing = any(getattr(components, name) is None for name in check.needs)
            if unknown or missing or self.has_failed(check.after):
                continue
            try:
                problems = list(check.function(components))
            except InputError as error:
                problems = list(error.problems)
            self.add(problems)
            if any(problem.level == "error" for problem in problems):
                self._failed.add(check.function)
                self._doubtful_keys.update(check.reads)

    def has_failed(self, functions: Iterable[CheckFunction]) -> bool:
        """Whether one of these checks found an error."""
        return not self._failed.isdisjoint(functions)

    def is_doubtful(self, keys: Iterable[str]) -> bool:
        """Whether an error about these keys may be a consequence of one that is found already."""
        found = {problem.key for problem in self.errors}
        return any(key in self._doubtful_keys or key in found for key in keys)

    def error(self) -> InputError:
        """The error to raise. Its message has the new errors and warnings; its problems are all, notes included."""
        skipped = ", ".join(sorted(self.skipped_keys))
        rest = [f"Checks of {skipped} were skipped: correct the above first."] if skipped else []
        errors = sorted(self.errors, key=lambda one: (one.path is None, one.path or "", one.line or 0))
        lines = [*map(str, errors), *rest, *(str(one) for one in self.problems if one.level == "warning")]
        return InputError("\n".join(lines), problems=[*self.known_problems, *self.problems])


BATCH_KEYS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "generation_batch_size",
    "steps_per_generation",
    "num_generations",
    "num_iterations",
)
STEP_KEYS = (*BATCH_KEYS, "max_steps", "num_train_epochs", "warmup_steps")
ROWS = (data_checks.check_training_rows,)
# What must be right before rows can be given to rewards.
SCORING = (
    *ROWS,
    data_checks.check_columns,
    data_checks.check_rows,
    data_checks.check_prompts,
    environment_checks.check_rows,
)

CHECKS: tuple[Check, ...] = (
    # The recipe against the installation, the model's configuration and the launcher.
    Check(compatibility.check_versions),
    Check(compatibility.check_quantization, reads=("load_in_4bit", "use_peft", "dtype")),
    Check(compatibility.check_precision, reads=("bf16", "fp16", "dtype", "learning_rate", "use_cpu", "use_peft")),
    Check(compatibility.check_cispo, reads=("loss_type", "epsilon", "epsilon_high")),
    Check(
        compatibility.check_vespo,
        reads=("loss_type", "use_vllm", "vllm_importance_sampling_correction", "vllm_importance_sampling_mode"),
    ),
    Check(
        compatibility.check_late_conflicts,
        reads=("sync_ref_model", "cast_lm_head_to_fp32", "multi_objective_aggregation", "beta", "use_peft"),
    ),
    Check(
        compatibility.check_best_checkpoint,
        reads=("save_strategy", "eval_strategy", "load_best_model_at_end"),
    ),
    Check(compatibility.check_trackers, reads=("report_to",)),
    Check(compatibility.check_publishing, reads=("push_to_hub", "hub_model_id")),
    Check(check_lora_targets, reads=("lora_target_modules", "lora_modules_to_save", "use_peft")),
    Check(batch_checks.check_reward_timeouts, reads=("reward_timeout_s", "reward_batch_timeout_s", "ddp_timeout")),
    Check(compatibility.check_launcher, reads=("use_cpu", "bf16", "fp16", "optim", "load_in_4bit")),
    Check(generation_checks.check_layerwise_gathering, reads=("ds3_gather_for_generation",)),
    Check(
        vllm_checks.check_vllm,
        reads=("use_vllm", "rollouts", "vllm_mode", "vllm_weight_sync", "vllm_base_quantization", "use_peft"),
    ),
    Check(
        vllm_server.check_vllm_server,
        reads=("use_vllm", "rollouts", "vllm_mode", "vllm_weight_sync", "use_peft", "lora_r", "vllm_server_port"),
        needs=("tokenizer",),
        after=(vllm_checks.check_vllm,),
    ),
    Check(
        rollout_weights.check_rollout_weights,
        reads=(
            "rollout_weights",
            "use_vllm",
            "use_peft",
            "use_dora",
            "lora_dropout",
            "lora_modules_to_save",
        ),
    ),
    Check(generation_checks.check_generation_kwargs, reads=("generation_kwargs",)),
    # Environments.
    Check(environment_checks.check_use, reads=("environment",), needs=("environments",)),
    Check(environment_checks.check_tools, needs=("environments",)),
    Check(environment_checks.check_template, needs=("environments", "tokenizer")),
    # The rows, and the rewards with them.
    Check(
        compatibility.check_dynamic_sampling,
        reads=("dynamic_sampling", "scale_rewards", "multi_objective_aggregation", "curriculum", *BATCH_KEYS),
        needs=("task",),
    ),
    Check(compatibility.check_mixture, reads=("environment", "dynamic_sampling", "curriculum")),
    Check(data_checks.check_training_rows, needs=("task",)),
    Check(compatibility.check_curriculum, reads=("curriculum",), needs=("train",)),
    Check(data_checks.check_columns, needs=("task",), after=ROWS),
    Check(data_checks.check_rows, needs=("task",), after=ROWS),
    Check(data_checks.check_prompts, needs=("task",), after=ROWS),
    Check(data_checks.check_truncation_mask, reads=("mask_truncated_completions",), needs=("task",), after=ROWS),
    Check(
        data_checks.check_held_out_splits,
        reads=("eval_strategy", "ds3_gather_for_generation"),
        needs=("task",),
        after=ROWS,
    ),
    Check(environment_checks.check_rows, needs=("environments", "task"), after=ROWS),
    # The numbers of the run.
    Check(batch_checks.check_batches, reads=BATCH_KEYS),
    Check(
        generation_checks.check_prompt_lengths,
        reads=("max_completion_length", "eval_strategy", "use_vllm", "vllm_max_model_length"),
        after=SCORING,
    ),
    Check(data_checks.check_leaked_prompts, needs=("train",), after=(data_checks.check_prompts,)),
    # What a measurement can show.
    Check(data_checks.check_repeated_prompts, needs=("train",), after=(data_checks.check_prompts,)),
    Check(data_checks.check_held_out_size, needs=("task",)),
    Check(generation_checks.check_turn_end, needs=("train", "tokenizer", "config"), after=SCORING),
    Check(generation_checks.check_text_end, needs=("train", "tokenizer"), after=SCORING),
    Check(
        batch_checks.check_schedule,
        reads=STEP_KEYS,
        needs=("train",),
        after=(*SCORING, batch_checks.check_batches),
    ),
)


def check_components(components: RunComponents, findings: Findings | None = None) -> Findings:
    """Run the table of checks, as under the launcher of the target machine. `findings` receives the problems."""
    findings = findings or Findings()
    with launch.as_launched(components.target.launcher):
        findings.run(CHECKS, components)
    return findings
