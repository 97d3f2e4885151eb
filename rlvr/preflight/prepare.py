"""Prepare a run: load its components, check them, and open its resources.

    with prepare_run(recipe) as run:
        run.task, run.plan, run.scorer, run.remarks

The resources are the process group, the checkpoint to resume from, and the rewards' workers and servers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from accelerate.utils import broadcast_object_list, gather_object

from rlvr import estimates
from rlvr.artifacts.identity import Identity
from rlvr.artifacts.resumption import Resumption, agree, choose_intact, earlier_engine, earlier_recipe
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.config import schema
from rlvr.config.batch_plan import BatchPlan, reward_batch_timeout
from rlvr.config.recipe import Recipe, value_of, with_engine
from rlvr.data.task import Task
from rlvr.environments.loading import COLUMN
from rlvr.environments.proxies import Environments
from rlvr.errors import InputError, Problem
from rlvr.modeling import loading, threads
from rlvr.modeling.digests import base_digests
from rlvr.modeling.vllm_engines import sends_adapter
from rlvr.preflight.check import SCORING, Findings, check_components
from rlvr.preflight.components import RunComponents, TargetMachine, load_components
from rlvr.preflight.environment_trial import try_environments
from rlvr.preflight.reward_contract import check_contract
from rlvr.preflight.reward_services import contact_services
from rlvr.preflight.rollout_weights import as_merged, choose_weights, with_weights
from rlvr.preflight.vllm_checks import choose_engine
from rlvr.scoring.environment_reward import ENVIRONMENTS
from rlvr.scoring.metric_choice import rewards_to_run
from rlvr.scoring.registry import environment_info
from rlvr.scoring.reward import Metrics
from rlvr.scoring.scorer import START_TIMEOUT_S, Scorer
from rlvr.training import launch
from rlvr.training.prepared_run import PreparedRun

if TYPE_CHECKING:
    from accelerate import PartialState

START_S_OF_A_CHECK = 60.0  # for the imports of workers, and for a server that is starting


@contextmanager
def prepare_run(
    recipe: Recipe,
    target: TargetMachine | None = None,
    *,
    state: PartialState | None = None,
    only_check: bool = False,
    known_problems: Iterable[Problem] = (),
) -> Iterator[PreparedRun]:
    """Load, check and open a run; its resources stay open as long as the context lasts.

    Args:
        target: where the recipe will run, if not on this machine.
        state: of the processes that have joined already (`launch.join`).
        only_check: don't wait for reward servers that can't be reached.
        known_problems: errors of the recipe's text, already reported. With any, the run is refused.

    Raises:
        InputError: with all problems. Its message leaves out the known ones.
    """
    target = target or TargetMachine()
    findings = Findings(known_problems, recipe)
    state = state or launch.join(recipe)
    processes = target.processes() or state.num_processes
    # With a fault of the rewards, those of a task, and its metric, are unknown.
    with_metric = not recipe.is_mixture or not any(key.split(".")[0] == "rewards" for key in findings.unknown_keys)
    components = load_components(recipe, target, processes, findings.attempt, with_metric=with_metric)
    recipe, engine = _choose_engine(components, state.num_processes)
    components = replace(components, recipe=recipe)
    recipe, weights = _choose_weights(components, state.num_processes)
    components = replace(components, recipe=recipe)
    check_components(components, findings)
    if only_check and target.is_here:
        findings.add(_use_of_output_dir(recipe))
    identity, resumption = _resume(components, findings, state, only_check)
    task, rewards, metrics, tokenizer = components.task, components.rewards, components.metrics, components.tokenizer
    if identity is None or rewards is None or metrics is None or findings.has_failed(SCORING):
        _check_with_trl(components, findings)  # the rewards can't be tried
        _refuse(findings, state)
    assert task is not None  # it has an identity
    with Scorer(
        rewards_to_run(list(rewards), metrics),
        timeout_s=recipe.settings["reward_timeout_s"],
        batch_timeout_s=reward_batch_timeout(recipe),
        seed=recipe.value("seed"),
        rank=state.process_index,
        start_timeout_s=START_S_OF_A_CHECK if only_check else START_TIMEOUT_S,
        waits_for_services=not only_check,
    ) as scorer:
        _check_with_trl(components, findings)  # imports TRL, while the workers of the rewards start
        environment = _try_rewards(components, metrics, scorer, state, findings, resumption.fresh)
        if findings.errors or findings.known_problems:
            _refuse(findings, state)
        plan = components.plan
        assert tokenizer is not None and plan is not None  # a missing one is an error
        estimate = components.estimate(as_merged(recipe))
        recipe = _in_rounds(recipe, estimate, state.num_processes)
        about = [", ".join(filter(None, (engine, weights))), *_machine_lines(components, recipe, environment)]
        remarks = (
            *_plan_remarks(task, plan),
            *remarks_of(filter(None, about), "environment"),
            *(_estimate_remarks(estimate) if estimate is not None else ()),
            *findings.problems,
            *remarks_of(resumption.notes, "resumption"),
        )
        yield PreparedRun(
            recipe,
            task,
            list(rewards),
            metrics,
            tokenizer,
            state,
            plan,
            identity,
            resumption,
            scorer,
            environment,
            estimate,
            remarks,
            tuple(components.environments or ()),
        )


def _try_rewards(
    components: RunComponents,
    metrics: Metrics,
    scorer: Scorer,
    state: PartialState,
    findings: Findings,
    fresh: bool,
) -> dict[str, str]:
    """Contact the services of the rewards, and try the rewards of a fresh run. Collective.

    Returns:
        What scores depend on beside the recipe.
    """
    rewards = components.rewards
    assert rewards is not None
    services = list(contact_services(components.recipe, scorer, required=fresh))
    if state.num_processes > 1:
        services = gather_object(services)  # some of the processes may not reach a service
    findings.add(services)
    unusable = any(problem.level == "error" for problem in services)
    if fresh and state.is_main_process and not unusable:
        findings.add(findings.attempt(lambda: _try_plugins(components, metrics, scorer)) or [])
    if fresh and state.num_processes > 1:
        # Only the main process tries the rewards, but all processes must refuse the run, or none.
        of_main = broadcast_object_list([findings.problems])[0]
        findings.problems += [problem for problem in of_main if problem not in findings.problems]
    return {**environment_info(rewards), **scorer.environment_info()}


def _machine_lines(components: RunComponents, recipe: Recipe, environment: Mapping[str, str]) -> list[str]:
    """What this machine computes with, if the recipe runs on it, and what scores depend on."""
    facts = [f"{name}: {value}" for name, value in environment.items()]
    if not components.target.is_here:
        return facts
    lines = [f"attention: {loading.attention(recipe)[1]}"]
    if loading.device(recipe).type == "cpu" and components.config is not None:
        lines.append(f"CPU threads: {threads.set_threads(components.config)}")
    return [*lines, *facts]


def _choose_engine(components: RunComponents, processes: int) -> tuple[Recipe, str]:
    """The recipe with the engine of its rollouts, and a line that says which and why. Collective.

    Machines may differ in what is installed: all take transformers if one must.
    """
    recipe, why = components.recipe, ""
    if recipe.settings["rollouts"] == "auto":
        earlier = earlier_engine(recipe) if components.target.is_here else None
        choice = choose_engine(components, earlier)
        vllm, why = min(gather_object([choice])) if processes > 1 else choice
        recipe = with_engine(recipe, vllm=vllm)
    elif not recipe.settings.get("use_vllm"):
        return recipe, "rollouts: transformers"
    return recipe, f"rollouts: {_engine(recipe)}{f' ({why})' if why else ''}"


def _choose_weights(components: RunComponents, processes: int) -> tuple[Recipe, str]:
    """The recipe with what transformers generates from, and a line that says so. Collective.

    All processes take the adapter if one has no room for a copy.
    """
    recipe, settings = components.recipe, components.settings
    if value_of(settings, "rollout_weights") != "auto" or settings.get("use_vllm") or not settings.get("use_peft"):
        return recipe, ""
    earlier = (earlier_recipe(recipe) or {}).get("rollout_weights") if components.target.is_here else None
    choice = choose_weights(components, earlier)
    weights, why = min(gather_object([choice])) if processes > 1 else choice
    recipe = with_weights(recipe, weights)
    what = "from the adapter" if weights == "adapter" else "merged copy if it agrees"
    return recipe, f"{what}{f' ({why})' if why else ''}"


def _engine(recipe: Recipe) -> str:
    settings = recipe.settings
    if not settings.get("use_vllm"):
        return "transformers"
    if settings.get("vllm_mode") == "server":
        return "a vLLM server"
    sends = "the adapter" if sends_adapter(settings) else "all weights"
    share = "" if settings.get("use_cpu") else f", {settings.get('vllm_gpu_memory_utilization', 0.3):.0%} of the GPU"
    return f"vLLM in the training process{share}; each update sends {sends}"


def _try_plugins(components: RunComponents, metrics: Metrics, scorer: Scorer) -> list[Problem]:
    """Try the environments and the rewards on some rows, of each task."""
    task, rewards, loaded = components.task, components.rewards, components.environments
    assert task is not None and rewards is not None
    # Without an environment, or with one that fails, they can't be tried, and the cause is reported.
    asking = [
        reward.label for reward in scorer.rewards if ENVIRONMENTS in inspect.signature(reward.function).parameters
    ]
    if not loaded or components.recipe.is_mixture:
        return [
            problem
            for label, part in task.parts.items()
            for problem in check_contract(
                components.recipe,
                part,
                [reward for reward in rewards if reward.applies(label)],
                metrics[label],
                scorer,
                skipped=asking,
                label=label,
            )
        ]
    environments = Environments(components.recipe, loaded, by_column=COLUMN in task.train.column_names)
    with environments.workers:
        problems = list(try_environments(task, loaded, environments))
        if not any(problem.level == "error" for problem in problems):
            return problems + check_contract(components.recipe, task, rewards, metrics[""], scorer, environments)
    return problems


def _resume(
    components: RunComponents, findings: Findings, state: PartialState, only_check: bool
) -> tuple[Identity | None, Resumption]:
    """Which run this is, and the checkpoint that all processes agree on; step 0 if that is an error."""
    if components.train is None:
        return None, Resumption()
    recipe, model = components.recipe, None
    if components.config is not None and not (only_check and earlier_engine(recipe) is None):
        model = base_digests(recipe)  # takes seconds for large weights; a mere check needs none
    identity = Identity.of(recipe, components.train, state.num_processes, launch.launcher(), model)
    if not components.target.is_here or findings.known_problems:
        return identity, Resumption()
    resumption = choose_intact(recipe, identity, state, findings.attempt)
    # Collective: a process that did not call it would let the others wait.
    agreed = findings.attempt(lambda: agree(resumption, state.num_processes))
    return identity, agreed or Resumption()


def _use_of_output_dir(recipe: Recipe) -> Iterator[Problem]:
    """Warn of a run that is writing the output directory: it may have ended when this one starts."""
    try:
        refuse_if_in_use(recipe.output_dir)
    except InputError as error:
        yield replace(error.problems[0], level="warning")


def _check_with_trl(components: RunComponents, findings: Findings) -> None:
    """Add what TRL, transformers and PEFT refuse, unless an error that was found already explains it.

    Their messages are text, so the keys that one is about are searched in it.
    """
    from rlvr.training import trl_config

    stop_strings = components.task.stop_strings if components.task is not None else ()
    elsewhere = None if components.target.is_here else components.processes
    try:
        trl_config.check_config(components.recipe, stop_strings, elsewhere=elsewhere)
    except InputError as error:
        words = set(re.findall(r"\w+", str(error)))
        if not findings.is_doubtful(key for key in words & set(schema.fields()) if "_" in key):
            findings.add(error.problems)


def _refuse(findings: Findings, state: PartialState) -> NoReturn:
    """Raise all problems, once every process has found its own.

    A launcher ends the other processes as soon as one has ended, and the main process, which prints, has more to do.
    """
    state.wait_for_everyone()
    raise findings.error()


def remarks_of(lines: Iterable[str], kind: str) -> list[Problem]:
    """Turn lines of text into notes, and into warnings if they begin with `warning: `."""
    return [
        Problem(line.removeprefix("warning: "), kind, level="warning" if line.startswith("warning: ") else "note")
        for line in lines
    ]


def _plan_remarks(task: Task, plan: BatchPlan) -> list[Problem]:
    """All but the first note of a task are details."""
    first, rest = remarks_of(task.notes[:1], "plan"), remarks_of(task.notes[1:], "data")
    return [*first, *rest, *remarks_of(plan.lines(), "plan")]


def _estimate_remarks(estimate: estimates.Estimate) -> list[Problem]:
    """The table of memory is a detail of a run that fits."""
    table = remarks_of(estimate.table(), "memory") if estimate.fits else remarks_of(estimate.table(), "estimate")
    return [*table, *remarks_of(estimate.summary(), "estimate")]


def _in_rounds(recipe: Recipe, estimate: estimates.Estimate | None, processes: int) -> Recipe:
    """The recipe with the completions that transformers generates at once, the same number on all processes."""
    rows = [estimate.setup.at_once] if estimate is not None and not estimate.setup.vllm else []
    rows = gather_object(rows) if processes > 1 else rows
    if not rows:
        return recipe
    return replace(recipe, settings={**recipe.settings, "per_device_generation_batch_size": min(rows)})
