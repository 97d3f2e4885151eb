"""What can be known to be wrong before a weight is loaded: batch arithmetic, columns, prompts, combinations.

All faults are found in one pass. What is checked here is what would otherwise fail after the first generation, or not
fail at all: TRL finishes "successfully" with 0 steps when the data is smaller than one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlvr import launch, model
from rlvr.errors import InputError
from rlvr.preflight.arithmetic import Plan, arithmetic_faults, plan_of, schedule_faults
from rlvr.preflight.combinations import (
    combination_faults,
    precision_notes,
    reward_budget,
    sampling_faults,
    waiting_faults,
)
from rlvr.preflight.data import data_faults, data_notes, turn_notes
from rlvr.preflight.lengths import gold_notes, prompt_lengths
from rlvr.preflight.parts import Parts, load_parts
from rlvr.preflight.sampling import ending_notes, engine_notes, sampling_notes
from rlvr.preflight.targets import target_faults
from rlvr.preflight.trial import try_rewards
from rlvr.preflight.versions import version_faults
from rlvr.recipe import Recipe
from rlvr.rewarding import Reward
from rlvr.task import Task

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

__all__ = ["Parts", "Plan", "check", "load_parts", "reward_budget", "try_rewards"]


def check(
    recipe: Recipe,
    task: Task,
    rewards: Sequence[Reward],
    metric: Reward,
    tokenizer: PreTrainedTokenizerBase,
    config: PretrainedConfig,
    processes: int,
    *,
    here: bool = True,
) -> Plan:
    """Checks a recipe against its data, its rewards and its model's configuration.

    Args:
        here: False for a recipe that is meant for another machine, with other packages.

    Raises:
        InputError: with one line for each fault, and one for each warning.
    """
    faults = [
        *version_faults(),
        *combination_faults(recipe, config, here=here),
        *target_faults(recipe, config),
        *waiting_faults(recipe, processes),
        *sampling_faults(recipe, task, processes),
        *launch.launch_faults(recipe, here=here),
    ]
    generation = model.load_generation_config(recipe, config)
    notes = [*precision_notes(recipe), *engine_notes(recipe), *sampling_notes(recipe, generation)]
    unusable = data_faults(recipe, task, rewards if metric in rewards else [*rewards, metric])
    faults += unusable
    plan = None
    if not unusable:
        wrong = arithmetic_faults(recipe, len(task.train), processes)
        lengths = prompt_lengths(recipe, task, tokenizer, config)
        faults += [*wrong, *lengths.faults]
        notes += [
            *data_notes(task),
            *turn_notes(task, tokenizer, model.end_tokens(recipe, tokenizer, config)),
            *ending_notes(task, tokenizer),
            *gold_notes(recipe, task, tokenizer),
        ]
        if not wrong:
            plan = plan_of(recipe, len(task.train), processes, lengths.longest, tuple(notes))
            faults += schedule_faults(recipe, plan.steps)
    if faults:
        raise InputError("\n".join([*faults, *(note for note in notes if note.startswith("warning: "))]))
    assert plan is not None  # it is made exactly when there is no fault
    return plan
