"""Everything that can be known to be wrong before a weight is loaded, found in one pass: what `--check` is.

    with examined(recipe, meant) as found:
        found.task, found.plan, found.scorer, found.notes

Two sentences about one mistake are avoided (rlvr/preflight/fault_collector.py); no fault hides another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr import estimates, evaluation
from rlvr.artifacts import resumption
from rlvr.artifacts.identity import Identity
from rlvr.config.batch_plan import BatchPlan, reward_budget
from rlvr.config.recipe import Recipe
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.modeling import loading
from rlvr.preflight.components import load_parts
from rlvr.preflight.fault_collector import FaultCollector
from rlvr.preflight.recipe_checks import check_recipe
from rlvr.preflight.reward_trial import try_rewards
from rlvr.scoring.registry import environment_info
from rlvr.scoring.reward import Reward
from rlvr.scoring.scorer import Scorer
from rlvr.training import launch, trl_config

if TYPE_CHECKING:
    from accelerate import PartialState
    from transformers import PretrainedConfig, PreTrainedTokenizerBase


@dataclass(frozen=True)
class TargetMachine:
    """Where a recipe is meant to run, for a check that is made elsewhere; None for here."""

    world_size: int | None = None
    machine: str | None = None
    launcher: str | None = None

    @property
    def here(self) -> bool:
        return self == TargetMachine()

    def processes(self) -> int | None:
        """How many processes are meant: as told, or one a GPU of the machine; None where neither says it."""
        if self.world_size is not None or self.machine is None:
            return self.world_size
        return estimates.find_machine(self.machine).gpus or None


@dataclass(frozen=True)
class PreparedRun:
    """What a run is made of, all of it found right.

    Attributes:
        state: of the processes of this launch.
        plan: what will run, in numbers.
        identity, begin: which run it is, and where it begins.
        scorer: with the rewards' workers at work.
        surroundings: what scores depend on beside the recipe.
        notes: sentences for people.
    """

    task: Task
    rewards: list[Reward]
    metric: Reward
    tokenizer: PreTrainedTokenizerBase
    state: PartialState
    plan: BatchPlan
    identity: Identity
    begin: resumption.Resumption
    scorer: Scorer
    surroundings: dict[str, str]
    notes: tuple[str, ...]


@contextmanager
def prepare_run(
    recipe: Recipe, meant: TargetMachine | None = None, *, brief: bool = False, told: Collection[str] = ()
) -> Iterator[PreparedRun]:
    """Examines a recipe, and keeps its rewards' workers for as long as the context lasts.

    Args:
        meant: where it is meant to run, if not here.
        brief: a check and no run: reward servers aren't waited for.
        told: what was found wrong with the recipe's text before; something is wrong then in any case.

    Raises:
        InputError: with all that is wrong, and the warnings; empty if there is nothing but what was told.
    """
    launch.check_environment(recipe)
    meant = meant or TargetMachine()
    found = FaultCollector(told)
    world_size = meant.processes()
    parts = load_parts(recipe, found.attempt)
    state = launch.join(recipe)
    processes = world_size or state.num_processes
    with launch.as_launched(meant.launcher):
        findings = check_recipe(recipe, parts, processes, here=meant.here)
    found.add(findings.faults)
    found.warn(findings.notes)

    identity, begin = None, resumption.Resumption()
    if parts.task is not None and "prompt" in parts.task.train.column_names:
        identity = Identity.of(recipe, parts.task.train, state.num_processes, launch.launcher())
        if meant.here and not told:
            begin = _beginning(recipe, identity, state.num_processes, found)
    stop_strings = parts.task.stop_strings if parts.task is not None else ()
    elsewhere = None if meant.here else processes
    if parts.rewards is None or parts.metric is None or not findings.scorable:
        found.collect_if_new(lambda: trl_config.check_config(recipe, stop_strings, elsewhere=elsewhere))
        raise InputError(_settled(found, state))

    task, rewards, metric = parts.task, parts.rewards, parts.metric
    assert task is not None and identity is not None  # or its rows would not be scorable
    scorer = Scorer(
        evaluation.scored_by(rewards, metric),
        deadline_s=recipe.settings["reward_timeout_s"],
        budget_s=reward_budget(recipe),
        seed=recipe.settings.get("seed", 42),
        rank=state.process_index,
        start_s=15.0 if brief else None,
    )
    with scorer:  # its workers begin with their imports meanwhile
        found.collect_if_new(lambda: trl_config.check_config(recipe, stop_strings, elsewhere=elsewhere))
        surroundings = {**environment_info(rewards), **scorer.environment_info()}
        notes = [f"attention: {loading.attention(recipe)[1]}"] if meant.here and not found.faults else []
        notes += [f"{name}: {words}" for name, words in surroundings.items()]
        if findings.plan is not None and parts.config is not None and not found.faults:
            notes += _estimated(recipe, parts.config, findings.plan, meant)
        if begin.fresh and state.is_main_process:
            trial = found.attempt(lambda: try_rewards(recipe, task, rewards, metric, scorer)) or []
            notes += trial
            found.warn(trial)
        if found.faults or told:
            raise InputError(_settled(found, state))
        assert parts.tokenizer is not None and findings.plan is not None  # or there would be faults
        notes = [*task.notes, *findings.plan.lines(), *notes, *begin.notes]
        yield PreparedRun(
            task,
            rewards,
            metric,
            parts.tokenizer,
            state,
            findings.plan,
            identity,
            begin,
            scorer,
            surroundings,
            tuple(notes),
        )


def _beginning(recipe: Recipe, identity: Identity, processes: int, found: FaultCollector) -> resumption.Resumption:
    """Where the run begins, as all processes see it; at step 0 where that is a fault."""
    begin = found.attempt(lambda: resumption.choose_resumption(recipe, identity))
    # All processes have to ask, or some would wait for the others.
    agreed = found.attempt(lambda: resumption.agree(begin or resumption.Resumption(), processes))
    return agreed or resumption.Resumption()


def _settled(found: FaultCollector, state: PartialState) -> str:
    """What is to be said, once no process has anything left to find.

    A launcher ends the others as soon as one process has ended, and the main one, which speaks, has more to do.
    """
    state.wait_for_everyone()
    return found.text()


def _estimated(recipe: Recipe, config: PretrainedConfig, plan: BatchPlan, meant: TargetMachine) -> list[str]:
    """Memory and hours on the GPU that is meant, or that is here; nothing where there is none."""
    if recipe.settings.get("use_cpu") and meant.machine is None:
        return []
    machine = estimates.find_machine(meant.machine) if meant.machine else estimates.this_machine()
    if machine is None:
        return []
    estimate = estimates.estimate(
        recipe,
        config,
        plan.processes,
        meant.launcher or launch.launcher(),
        machine,
        prompt_tokens=plan.longest_prompt or 0,
        steps=plan.steps,
    )
    return [*(estimate.rollouts.lines() if estimate.rollouts is not None else []), *estimate.lines()]
