"""Plan a job: its files, its request, its needs and cost, and all its problems.

    with make_plan(Path("recipes/x.yaml"), ["--sagemaker.instance_type", "ml.g6e.12xlarge", …]) as plan:
        print("\\n".join(plan.lines()))

A plan uploads nothing and asks AWS nothing. `submit` sends exactly the plan's request (rlvr/sagemaker/submission.py).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlvr.config.recipe import Recipe, load_recipe
from rlvr.config.sagemaker import SageMakerSettings
from rlvr.console import duration
from rlvr.errors import InputError, Problem
from rlvr.estimates.machines import INSTANCES
from rlvr.formatting import byte_count
from rlvr.sagemaker import cost, job_preflight, request
from rlvr.sagemaker.reward_hosts import describe_reward_hosts
from rlvr.sagemaker.secret_scan import find_secrets_in_request
from rlvr.sagemaker.upload import JobFiles, UploadFile, collect_files
from rlvr.sagemaker.validation import settings_problems

_UNKNOWN_LOCATION = "unknown: no bucket is set, and the default bucket needs a role and a region"
# SageMaker Studio's description of itself.
STUDIO_METADATA = Path("/opt/ml/metadata/resource-metadata.json")
PROFILE_VARIABLE = "GRPO_PROFILE"  # the words of run_grpo.py; scripts/run_finetuning.sh adds them
_PROFILE_START_S = 1800  # for the requirements, the download of the model, and the step that passes the limit


@dataclass
class JobPlan:
    """A job before it is submitted. A context manager: leaving it deletes the temporary files.

    Attributes:
        settings: the recipe's section, completed from the environment.
        digest: of the uploaded recipe; equal for two jobs that train the same.
        resumes: whether the job needs the checkpoints of an earlier one.
        request: of CreateTrainingJob; None if a problem prevents it.
        uploads: each file and its S3 URI.
        processes: number of training processes; None if the instance type's GPUs are unknown.
        problems: what prevents the job.
        notes, costs, preflight: lines for people.
    """

    recipe: Recipe
    settings: SageMakerSettings
    name: str
    files: JobFiles
    digest: str
    folder: tempfile.TemporaryDirectory[str]
    resumes: bool = False
    request: dict[str, Any] | None = None
    uploads: list[tuple[UploadFile, str]] = field(default_factory=list)
    processes: int | None = None
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    costs: list[str] = field(default_factory=list)
    preflight: list[str] = field(default_factory=list)

    def __enter__(self) -> JobPlan:
        return self

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()

    @property
    def identity(self) -> dict[str, Any]:
        """The run that the job's checkpoints belong to; see rlvr/artifacts/identity.py."""
        return {
            "recipe": self.files.recipe.as_dict(),
            "processes": self.processes,
            "launcher": request.launcher_of(self.settings),
        }

    @property
    def checkpoints(self) -> str:
        return request.checkpoints_uri(self.settings, self.name)

    def check(self) -> None:
        """Raise all problems as one InputError."""
        if self.problems:
            raise InputError(problems=self.problems)

    def as_dict(self) -> dict[str, Any]:
        """The request, the files and the problems, for JSON; no request that holds a secret."""
        has_secret = any(problem.kind == "secret-in-request" for problem in self.problems)
        files = [{"name": f"{file.channel}/{file.name}", "bytes": file.size, "to": uri} for file, uri in self.uploads]
        return {
            "request": None if has_secret else self.request,
            "files": files,
            "problems": [problem.as_dict() for problem in self.problems],
        }

    def lines(self, *, all_files: bool = False) -> list[str]:
        """The plan as text."""
        return [
            f"{self.recipe.path} as a SageMaker training job",
            *(f"  {name:<13}{text}" for name, text in self._facts()),
            *self._file_lines(all_files),
            *(f"  {'cost' if not number else '':<13}{line}" for number, line in enumerate(self.costs)),
            *(f"  {'preflight' if not number else '':<13}{line}" for number, line in enumerate(self.preflight)),
            *(f"  {'note':<13}{note}" for note in self.notes),
        ]

    def _facts(self) -> list[tuple[str, str]]:
        settings = self.settings
        image = (self.request or {}).get("AlgorithmSpecification", {}).get("TrainingImage", "unknown")
        hosts = " + ".join(
            f"{group.instance_count} x {group.instance_type} ({group.role})" for group in settings.groups
        )
        capacity = "spot" if settings.spot else "on demand"
        count = self.processes
        processes = f"{count} process{'es' if count != 1 else ''}" if count else "all GPUs"
        variables = request.job_environment(self.recipe, settings)
        saves_at = duration(float(variables["GRPO_MAX_RUNTIME_S"]))
        waits = f"; waits for capacity until {duration(settings.wait_s)}" if settings.wait_s else ""
        bucket = request.bucket_of(settings)
        results = f"{request.output_uri(settings)}/{self.name}/output/model.tar.gz"
        facts = [
            ("job", f"{self.name} in {settings.region or 'no region'}"),
            ("role", settings.role or "none"),
            ("hosts", f"{hosts}, {capacity}; {processes} under {request.launcher_of(settings)}" if hosts else "none"),
            ("image", image),
            ("time", f"at most {duration(settings.max_runtime_s)}; training saves and stops at {saves_at}{waits}"),
            ("checkpoints", self.checkpoints if settings.checkpoints or bucket else _UNKNOWN_LOCATION),
            ("results", results if settings.output or bucket else _UNKNOWN_LOCATION),
        ]
        rewards = describe_reward_hosts(self.recipe, settings)
        if rewards is not None:
            facts.insert(3, ("rewards", rewards))
        needed = request.required_quotas(settings)
        facts += [
            ("quota" if not number else "", f"{name}: {count} or more")
            for number, (name, count) in enumerate(needed.items())
        ]
        if needed:
            console = f"https://{settings.region or 'us-east-1'}.console.aws.amazon.com"
            facts.append(("", f"{console}/servicequotas/home/services/sagemaker/quotas"))
        return facts

    def _file_lines(self, all_files: bool) -> list[str]:
        files = self.files.files
        total = byte_count(sum(file.size for file in files))
        if not all_files:
            return [f"  {'files':<13}{len(files)} files, {total}; nothing else is uploaded (--files lists them)"]
        return [
            f"  {'files':<13}{len(files)} files, {total}; nothing else is uploaded",
            *(f"  {'':<13}{byte_count(file.size):>9}  {file.channel}/{file.name}" for file in files),
        ]


def make_plan(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    checkpoints: str | None = None,
    profile_minutes: float | None = None,
) -> JobPlan:
    """Plan the job of a recipe.

    Args:
        overrides: `--key value` words for the recipe, such as `--sagemaker.KEY value` for its section.
        checkpoints: S3 URI of an earlier job's checkpoints to continue from.
        profile_minutes: plan a short job that measures two generations and keeps nothing (`run_grpo.py --profile`).

    Raises:
        InputError: the recipe can't be read. Problems of the job are in the plan's `problems`.
    """
    folder = tempfile.TemporaryDirectory(prefix="sagemaker-job-")
    try:
        recipe, settings = _load(path, overrides, checkpoints)
        if profile_minutes is not None:
            settings = _settings_of_profile(recipe, settings, profile_minutes)
        plan = _plan(recipe, settings, folder)
        return replace(plan, resumes=checkpoints is not None)
    except BaseException:
        folder.cleanup()
        raise


def _load(path: Path, overrides: Sequence[str], checkpoints: str | None) -> tuple[Recipe, SageMakerSettings]:
    """The recipe and its section, completed with region and role of the environment."""
    recipe = load_recipe(path, overrides)
    settings = recipe.sagemaker or SageMakerSettings()
    settings = replace(settings, region=settings.region or _environment_region(), role=settings.role or _studio_role())
    return recipe, settings if checkpoints is None else replace(settings, checkpoints=checkpoints)


def _settings_of_profile(recipe: Recipe, settings: SageMakerSettings, minutes: float) -> SageMakerSettings:
    """The settings of a job that profiles: short, on demand, and with no checkpoints of a run."""
    train, name = settings.train_group, request.base_name(recipe, settings)
    has_price = train is not None and train.instance_type in INSTANCES
    words = ["--profile", f"{minutes:g}"]
    words += ["--machine", train.instance_type] if train is not None and has_price else []
    return replace(
        settings,
        job_name=f"{name[: request.MAX_BASE_NAME - len('-profile')]}-profile",
        environment={**settings.environment, PROFILE_VARIABLE: " ".join(words)},
        max_runtime_s=min(settings.max_runtime_s, int(60 * minutes) + _PROFILE_START_S),
        spot=False,
        max_wait_s=None,
        checkpoints=None,
    )


def _plan(recipe: Recipe, settings: SageMakerSettings, folder: tempfile.TemporaryDirectory[str]) -> JobPlan:
    problems = settings_problems(recipe, settings)
    name = request.job_name(request.base_name(recipe, settings))
    files = collect_files(recipe, request.job_environment(recipe, settings), Path(folder.name))
    profile = settings.environment.get(PROFILE_VARIABLE)
    material = files.recipe.as_dict() | {"channels": dict(settings.channels)}
    digest = request.recipe_digest(material | ({"profile": profile} if profile else {}))
    plan = JobPlan(recipe, settings, name, files, digest, folder, notes=list(files.notes))
    if not problems:
        channels = dict.fromkeys(file.channel for file in files.files)
        try:
            plan.request = request.build_request(recipe, settings, name, channels, digest)
            problems += [*request.request_problems(plan.request), *find_secrets_in_request(plan.request)]
        except InputError as error:
            problems += error.problems
        plan.uploads = [
            (file, f"{request.channel_uri(settings, name, file.channel)}/{file.name}") for file in files.files
        ]
    if settings.groups:
        result = job_preflight.check_for_hosts(recipe, settings)
        plan.processes = result.processes
        plan.preflight = [*result.lines, *result.notes]
        plan.costs = cost.cost_lines(settings, None if profile else result.estimate)
        problems += result.problems
    plan.problems = list({problem.message: problem for problem in [*problems, *files.problems]}.values())
    return plan


def _studio_role() -> str | None:
    """The role of SageMaker Studio, if this is Studio."""
    try:
        return json.loads(STUDIO_METADATA.read_text(encoding="utf-8")).get("ExecutionRoleArn")
    except (OSError, ValueError, AttributeError):
        return None


def _environment_region() -> str | None:
    """The region that AWS's own tools would use."""
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        return region
    try:
        import botocore.session

        return botocore.session.Session().get_config_variable("region") or None
    except Exception:  # without botocore, and with a missing profile or an unreadable configuration, none is known
        return None
