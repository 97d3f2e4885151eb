"""A recipe against its data, its rewards and its model's configuration, as far as they could be loaded."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.config.batch_plan import BatchPlan, arithmetic_faults, plan_of, rate_notes, schedule_faults
from rlvr.config.recipe import Recipe
from rlvr.data.task import Task
from rlvr.modeling import loading
from rlvr.preflight.compatibility import combination_faults, precision_notes, sampling_faults, waiting_faults
from rlvr.preflight.components import RunComponents
from rlvr.preflight.data_checks import data_faults, data_notes, turn_notes
from rlvr.preflight.lora_targets import target_faults
from rlvr.preflight.prompt_lengths import Lengths, gold_notes, prompt_lengths
from rlvr.preflight.sampling_notes import ending_notes, engine_notes, sampling_notes
from rlvr.preflight.versions import version_faults
from rlvr.training import launch


@dataclass(frozen=True)
class Findings:
    """What a check found.

    Attributes:
        faults, notes: sentences; a note that begins with `warning: ` is more than a note.
        scorable: whether the rows can be given to the rewards.
        plan: what would run; None where it can't be known.
    """

    faults: tuple[str, ...]
    notes: tuple[str, ...]
    scorable: bool
    plan: BatchPlan | None


def check_recipe(recipe: Recipe, parts: RunComponents, processes: int, *, here: bool = True) -> Findings:
    """Checks a recipe; what a part is needed for that isn't there is left out.

    Args:
        processes: how many train together.
        here: False for a recipe that is meant for another machine, with other packages.
    """
    faults = [
        *version_faults(),
        *combination_faults(recipe, parts.config, here=here),
        *target_faults(recipe, parts.config),
        *waiting_faults(recipe, processes),
        *launch.launch_faults(recipe, here=here),
    ]
    notes = [*precision_notes(recipe), *engine_notes(recipe), *rate_notes(recipe)]
    if parts.config is not None:
        notes += sampling_notes(recipe, loading.load_generation_config(recipe, parts.config))
    if (task := parts.task) is None:
        return Findings(tuple(faults), tuple(notes), False, None)

    rewards = [*(parts.rewards or []), *([parts.metric] if parts.metric else [])]
    unusable = data_faults(recipe, task, [one for place, one in enumerate(rewards) if one not in rewards[:place]])
    faults += [*sampling_faults(recipe, task, processes), *unusable]
    if unusable:
        return Findings(tuple(faults), tuple(notes), False, None)
    wrong = arithmetic_faults(recipe, len(task.train), processes)
    lengths, of_texts = _texts(recipe, task, parts)
    faults += [*wrong, *(lengths.faults if lengths is not None else ())]
    notes += [*data_notes(task), *of_texts]
    if wrong:
        return Findings(tuple(faults), tuple(notes), True, None)
    plan = plan_of(recipe, len(task.train), processes, lengths.longest if lengths is not None else None, tuple(notes))
    return Findings((*faults, *schedule_faults(recipe, plan.steps)), tuple(notes), True, plan)


def _texts(recipe: Recipe, task: Task, parts: RunComponents) -> tuple[Lengths | None, list[str]]:
    """What only the model's own tokenizer tells of prompts and golds."""
    if parts.tokenizer is None or parts.config is None:
        return None, []
    ends = loading.end_tokens(recipe, parts.tokenizer, parts.config)
    return prompt_lengths(recipe, task, parts.tokenizer, parts.config), [
        *turn_notes(task, parts.tokenizer, ends),
        *ending_notes(task, parts.tokenizer),
        *gold_notes(recipe, task, parts.tokenizer),
    ]
