"""Where in a job the rewards of a recipe run, and which of the job's hosts that wants."""

from __future__ import annotations

from rlvr.config.recipe import Recipe
from rlvr.config.reward_location import RAY, is_on_ray
from rlvr.config.sagemaker import SageMakerSettings

JUDGE = "http://judge:"  # what a recipe calls the hosts that judge; see scripts/run_finetuning.sh


def makes_ray_cluster(recipe: Recipe) -> bool:
    """Whether the job's hosts are to be a Ray cluster."""
    return any(spec.where == RAY for spec in recipe.rewards)


def wants_ray(recipe: Recipe) -> bool:
    """Whether Ray has to be installed in the job: for its own cluster, or for another one that it is a client of."""
    return any(is_on_ray(spec.where) for spec in recipe.rewards)


def place_faults(recipe: Recipe, settings: SageMakerSettings) -> list[str]:
    """What of the rewards' places and the instance groups doesn't go together, a sentence each."""
    judges = [group for group in settings.groups if group.role == "judge"]
    served = [spec.name for spec in recipe.rewards if spec.where is not None and JUDGE in spec.where]
    on_ray = [spec.name for spec in recipe.rewards if spec.where == RAY]
    faults = []
    if served and settings.groups and not judges:
        faults.append(
            f"{', '.join(served)} should run on {JUDGE}8000, but no instance group has the role judge: add one, like "
            "{name: judges, instance_type: ml.c7i.8xlarge, role: judge}."
        )
    if judges and served and on_ray:
        faults.append(
            f"{', '.join(served)} should run on {JUDGE}8000 and {', '.join(on_ray)} on ray, but hosts that judge are "
            "either reward servers or a part of the Ray cluster: give all of them the same where."
        )
    if judges and not served and not on_ray:
        faults.append(
            f"The group {judges[0].name} has the role judge, but no reward runs there, and its hosts would be paid for "
            f"and stand idle: give the rewards where: ray (or {JUDGE}8000), or remove the group."
        )
    return faults


def place_line(recipe: Recipe, settings: SageMakerSettings) -> str | None:
    """Where rewards run, as a plan says it; None where they run beside each training process."""
    judges = [group for group in settings.groups if group.role == "judge"]
    count = sum(group.instance_count for group in judges)
    if makes_ray_cluster(recipe):
        total = sum(group.instance_count for group in settings.groups)
        cpus = f"the CPUs of the {_hosts(count)} of {judges[0].name}" if judges else "the CPUs of the hosts that train"
        return f"on Ray: {_hosts(total)} as one cluster, its head on the first that trains; tasks run on {cpus}"
    if judges:
        return f"on {count} reward server{'s' if count != 1 else ''} ({judges[0].name})"
    return None


def _hosts(count: int) -> str:
    return f"{count} host{'s' if count != 1 else ''}"
