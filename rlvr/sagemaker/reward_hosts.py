"""Decide which hosts of a job compute the rewards, and check that these hosts exist."""

from __future__ import annotations

from urllib.parse import urlsplit

from rlvr.config.recipe import Recipe
from rlvr.config.reward_location import RAY, addresses, is_on_ray
from rlvr.config.sagemaker import SageMakerSettings
from rlvr.errors import Problem
from rlvr.formatting import count
from rlvr.scoring import reward_key

JUDGE_PORT = 8000
JUDGE_URL = "http://judge:"  # stands for all judge hosts in a recipe; scripts/run_finetuning.sh replaces it


def is_loopback(address: str) -> bool:
    """Whether a URL names the machine that reads it."""
    host = urlsplit(address).hostname or ""
    return host == "0.0.0.0" or reward_key.is_loopback(host)


def uses_job_ray_cluster(recipe: Recipe) -> bool:
    """Whether the job's hosts form a Ray cluster."""
    return any(spec.where == RAY for spec in recipe.rewards)


def needs_ray(recipe: Recipe) -> bool:
    """Whether the job must install Ray, for its own cluster or as a client of another one."""
    return any(is_on_ray(spec.where) for spec in recipe.rewards)


def reward_host_problems(recipe: Recipe, settings: SageMakerSettings) -> list[Problem]:
    """Contradictions between the rewards' `where` and the instance groups."""
    judges = [group for group in settings.groups if group.role == "judge"]
    on_servers = [spec.name for spec in recipe.rewards if spec.where is not None and JUDGE_URL in spec.where]
    on_ray = [spec.name for spec in recipe.rewards if spec.where == RAY]
    problems = []
    for spec in recipe.rewards:
        for address in addresses(spec.where or ""):
            if is_loopback(address):
                message = (
                    f"{spec.name}: {address} is the training host itself, which serves no rewards. Name an address "
                    "that the job reaches, or add an instance group with the role judge and set where: "
                    f"{JUDGE_URL}{JUDGE_PORT}."
                )
                problems.append(Problem(message, kind="unreachable-address", key="where"))
            elif address.startswith(JUDGE_URL) and urlsplit(address).port != JUDGE_PORT:
                message = f"{spec.name}: judge hosts listen on port {JUDGE_PORT}. Set where: {JUDGE_URL}{JUDGE_PORT}."
                problems.append(Problem(message, kind="invalid-address", key="where"))
    if on_servers and settings.groups and not judges:
        message = (
            f"{', '.join(on_servers)} should run on {JUDGE_URL}8000, but no instance group has the role judge. Add "
            "one, such as {name: judges, instance_type: ml.c7i.8xlarge, role: judge}."
        )
        problems.append(Problem(message, kind="missing-judge-group", key="instance_groups"))
    if judges and on_servers and on_ray:
        message = (
            f"{', '.join(on_servers)} should run on {JUDGE_URL}8000 and {', '.join(on_ray)} on Ray, but judge hosts "
            "are either reward servers or Ray nodes. Give all these rewards the same where."
        )
        problems.append(Problem(message, kind="mixed-reward-hosts", key="where"))
    if judges and not on_servers and not on_ray:
        message = (
            f"No reward runs on the judge group {judges[0].name}, so its hosts would be idle and billed. Set where: "
            f"ray or where: {JUDGE_URL}8000 on the rewards, or remove the group."
        )
        problems.append(Problem(message, kind="idle-hosts", key="instance_groups"))
    return problems


def describe_reward_hosts(recipe: Recipe, settings: SageMakerSettings) -> str | None:
    """Where the rewards run, as one line of the plan; None if they run beside each training process."""
    judges = [group for group in settings.groups if group.role == "judge"]
    judge_hosts = sum(group.instance_count for group in judges)
    if uses_job_ray_cluster(recipe):
        all_hosts = sum(group.instance_count for group in settings.groups)
        workers = f"the {count(judge_hosts, 'host')} of {judges[0].name}" if judges else "the training hosts"
        return f"one Ray cluster of {count(all_hosts, 'host')}, its head on the first training host; tasks on {workers}"
    if judges:
        return f"on {count(judge_hosts, 'reward server')} ({judges[0].name})"
    return None
