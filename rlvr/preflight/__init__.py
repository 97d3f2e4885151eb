"""What can be known to be wrong before a weight is loaded: batch arithmetic, columns, prompts, combinations.

All faults are found in one pass. What is checked here is what would otherwise fail after the first generation, or not
fail at all: TRL finishes "successfully" with 0 steps when the data is smaller than one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlvr import launch, model
from rlvr.errors import InputError
from rlvr.preflight.arithmetic import Plan, arithmetic_faults, length_faults, longest_prompt, plan_of, schedule_faults
from rlvr.preflight.combinations import (
    combination_faults,
    precision_notes,
    reward_budget,
    sampling_faults,
    waiting_faults,
)
from rlvr.preflight.data import data_faults, data_notes, turn_notes
from rlvr.preflight.trial import try_rewards
from rlvr.preflight.versions import version_faults
from rlvr.recipe import Recipe
from rlvr.rewarding import Reward
from rlvr.task import Task

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

__all__ = ["Plan", "check", "reward_budget", "try_rewards"]


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
        *version_faults(),
        *combination_faults(recipe, config),
        *waiting_faults(recipe, processes),
        *sampling_faults(recipe, task, processes),
        *launch.launch_faults(recipe),
        *data_faults(recipe, task, rewards, metric),
    ]
    plan = None
    if not faults:
        faults += arithmetic_faults(recipe, len(task.train), processes)
    if not faults:
        longest = longest_prompt(task, tokenizer)
        faults += length_faults(recipe, config, longest)
        notes = [
            *precision_notes(recipe),
            *data_notes(task),
            *turn_notes(task, tokenizer, model.end_tokens(recipe, tokenizer, config)),
        ]
        plan = plan_of(recipe, len(task.train), processes, longest, tuple(notes))
        faults += schedule_faults(recipe, plan.steps)
    if faults:
        raise InputError("\n".join(faults))
    assert plan is not None  # it is made exactly when there is no fault
    return plan
