"""A job before it is one: the request, what travels, what it needs and costs, and everything that is wrong with it.

    with make_plan(Path("recipes/x.yaml"), ["--sagemaker.instance_type", "ml.g6e.12xlarge", …]) as plan:
        print("\\n".join(plan.lines()))

Nothing is uploaded, and AWS is not asked: neither credentials nor a configuration are wanted. `submit` sends the very
request of a plan (rlvr/sagemaker/job.py).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlvr.config.recipe import Recipe, load_recipe
from rlvr.config.sagemaker import SageMakerSettings
from rlvr.console import duration
from rlvr.errors import InputError
from rlvr.sagemaker import preflight, request, sdk
from rlvr.sagemaker import quotas as quota
from rlvr.sagemaker.reward_hosts import place_line
from rlvr.sagemaker.upload import ENTRY, File, Parcel, pack
from rlvr.sagemaker.validation import settings_faults

_SHOWN_FILES = 5
_NOWHERE = "not known: no bucket is given, and the account's own takes a role and a region"
# What Studio says of itself.
STUDIO = Path("/opt/ml/metadata/resource-metadata.json")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass
class JobPlan:
    """All that is known of a job before it is submitted; as a context manager it clears up after itself.

    Attributes:
        recipe, settings: as they were read.
        name: of the job.
        parcel: what travels.
        digest: of the recipe as it travels; two jobs that share it train the same.
        request: for CreateTrainingJob; None where a fault leaves none.
        uploads: each file and the S3 URI that it goes to.
        processes: how many train together; None where the GPUs of the instance type aren't known.
        faults: why it can't be submitted; `notes` and `lines` are for people.
    """

    recipe: Recipe
    settings: SageMakerSettings
    name: str
    parcel: Parcel
    digest: str
    folder: tempfile.TemporaryDirectory[str]
    request: dict[str, Any] | None = None
    uploads: list[tuple[File, str]] = field(default_factory=list)
    processes: int | None = None
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    costs: list[str] = field(default_factory=list)
    preflight: list[str] = field(default_factory=list)

    def __enter__(self) -> JobPlan:
        return self

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint of this job is made of, as far as it is known here: see rlvr/artifacts/identity.py."""
        return {
            "recipe": self.parcel.recipe.as_dict(),
            "processes": self.processes,
            "launcher": request.launcher_of(self.settings),
        }

    @property
    def checkpoints(self) -> str:
        return request.checkpoints_of(self.settings, self.name)

    def check(self) -> None:
        """Raises what is wrong.

        Raises:
            InputError: with a line for each fault.
        """
        if self.faults:
            raise InputError("\n".join(self.faults))

    def lines(self, *, all_files: bool = False) -> list[str]:
        """The plan as it is printed."""
        return [
            f"{self.recipe.path} as a SageMaker training job",
            *(f"  {name:<12}{text}" for name, text in self._facts()),
            *self._file_lines(all_files),
            *(f"  {'cost' if not number else '':<12}{line}" for number, line in enumerate(self.costs)),
            *(f"  {'preflight' if not number else '':<12}{line}" for number, line in enumerate(self.preflight)),
            *(f"  {'note':<12}{note}" for note in self.notes),
        ]

    def _facts(self) -> list[tuple[str, str]]:
        settings = self.settings
        asked = self.request or {}
        image = asked.get("AlgorithmSpecification", {}).get("TrainingImage", "not known")
        hosts = " + ".join(
            f"{group.instance_count} x {group.instance_type} ({group.role})" for group in settings.groups
        )
        kind = "spot" if settings.spot else "on demand"
        count = self.processes
        processes = f"{count} process{'es' if count != 1 else ''}" if count else "all GPUs"
        variables = request.environment(self.recipe, settings)
        ends = duration(float(variables["GRPO_MAX_RUNTIME_S"]))
        waits = f", waits for capacity until {duration(settings.wait_s)}" if settings.wait_s else ""
        bucket = request.bucket_of(settings)
        facts = [
            ("job", f"{self.name} in {settings.region or 'no region'}"),
            ("role", settings.role or "none"),
            ("hosts", f"{hosts}, {kind}; {processes} under {request.launcher_of(settings)}" if hosts else "none"),
            ("image", image),
            ("time", f"at most {duration(settings.max_runtime_s)}, training saves and stops at {ends}{waits}"),
            ("checkpoints", self.checkpoints if settings.checkpoints or bucket else _NOWHERE),
            (
                "results",
                f"{request.output_of(settings)}/{self.name}/output/model.tar.gz"
                if settings.output or bucket
                else _NOWHERE,
            ),
        ]
        rewards = place_line(self.recipe, settings)
        if rewards is not None:
            facts.insert(3, ("rewards", rewards))
        quotas = quota.quotas_of(settings)
        facts += [
            ("quota" if not number else "", f"{one.name}: {one.needed} or more") for number, one in enumerate(quotas)
        ]
        if quotas:
            facts.append(("", quota.console_link(settings.region)))
            facts.append(("", quota.lookup_command(quotas, settings.region)))
        return facts

    def _file_lines(self, everything: bool) -> list[str]:
        files = self.parcel.files
        total = size_text(sum(file.size for file in files))
        lines = [f"  {'files':<12}{len(files)} files, {total}; nothing else travels"]
        if everything:
            return lines + [f"  {'':<12}{size_text(file.size):>9}  {file.channel}/{file.name}" for file in files]
        sizes: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for file in files:
            head = (
                f"{file.channel}/{file.name}" if "/" not in file.name else f"{file.channel}/{file.name.split('/')[0]}/"
            )
            sizes[head] += file.size
            counts[head] += 1
        largest = sizes.most_common(_SHOWN_FILES)
        lines += [
            f"  {'':<12}{size_text(size):>9}  {head}{f' ({counts[head]} files)' if counts[head] > 1 else ''}"
            for head, size in largest
        ]
        rest = len(files) - sum(counts[head] for head, _ in largest)
        return lines + ([f"  {'':<12}{'':>9}  and {rest} more (--files shows all)"] if rest else [])


def make_plan(
    path: Path, overrides: Sequence[str] = (), *, ask_hub: bool = True, checkpoints: str | None = None
) -> JobPlan:
    """Reads a recipe and finds out all that can be known about it as a job.

    Args:
        overrides: `--key value` words for the recipe; its section is reached by `--sagemaker.KEY`.
        ask_hub: whether the Hugging Face hub may be asked for the model's configuration and the data. If not, it isn't
            by this process any more: its libraries read that once.
        checkpoints: S3 URI of an earlier job's, to go on from.

    Raises:
        InputError: the recipe itself can't be read, with a line for each fault. What is wrong with the job is in the
            plan's `faults`.
    """
    if not ask_hub:
        os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    # The SDK takes its seconds in a process of its own, beside all that is found out here.
    building = sdk.Building()
    folder = tempfile.TemporaryDirectory(prefix="sagemaker-job-")
    try:
        return _planned(building, *_read(path, overrides, checkpoints), folder)
    except BaseException:
        folder.cleanup()
        raise
    finally:
        building.cancel()


def _read(path: Path, overrides: Sequence[str], checkpoints: str | None) -> tuple[Recipe, SageMakerSettings]:
    """The recipe and its section, with what the surroundings say where the section says nothing."""
    recipe = load_recipe(path, overrides)
    settings = recipe.sagemaker or SageMakerSettings()
    settings = replace(
        settings, region=settings.region or _region_of_environment(), role=settings.role or _role_of_studio()
    )
    return recipe, settings if checkpoints is None else replace(settings, checkpoints=checkpoints)


def _planned(
    building: sdk.Building, recipe: Recipe, settings: SageMakerSettings, folder: tempfile.TemporaryDirectory[str]
) -> JobPlan:
    faults = settings_faults(recipe, settings)
    name = request.job_name(request.base_name(recipe, settings))
    parcel = pack(recipe, request.environment(recipe, settings), Path(folder.name))
    digest = request.digest_of(parcel.recipe.as_dict())
    plan = JobPlan(recipe, settings, name, parcel, digest, folder, notes=list(parcel.notes))
    drivers = Path(folder.name, "drivers")
    drivers.mkdir()
    complete = not faults and (parcel.code / ENTRY).is_file()
    if complete:
        channels = [channel for channel in ("data", "model") if parcel.of(channel)]
        folders = {"code": str(parcel.code), "drivers": str(drivers)}
        building.send(request.order_of(recipe, settings, name, folders, channels, digest))
    if settings.groups:
        found = preflight.rehearse(recipe, settings)
        plan.processes = found.processes
        plan.preflight = [*found.lines, *found.notes]
        plan.costs = preflight.cost_lines(settings, found.estimate)
        faults += found.faults
    if complete:
        try:
            made = building.result()
        except sdk.SdkError as error:
            faults.append(_sdk_fault(str(error)))
        else:
            plan.request = made["request"]
            plan.uploads = _uploads(parcel, drivers, made)
            faults += request.request_faults(made["request"])
    plan.faults = list(dict.fromkeys([*faults, *parcel.faults]))
    return plan


def _uploads(parcel: Parcel, drivers: Path, made: dict[str, Any]) -> list[tuple[File, str]]:
    uris = {one["folder"]: one["uri"] for one in made["uploads"]}
    channels = {
        channel["ChannelName"]: channel["DataSource"]["S3DataSource"]["S3Uri"]
        for channel in made["request"]["InputDataConfig"]
    }
    uploads = [(file, f"{channels[file.channel]}/{file.name}") for file in parcel.files]
    for path in sorted(path for path in drivers.rglob("*") if path.is_file()):
        place = str(path.relative_to(drivers))
        uploads.append((File("sm_drivers", place, path), f"{uris[str(drivers)]}/{place}"))
    return uploads


def _sdk_fault(said: str) -> str:
    if "ModuleNotFoundError" in said and ("sagemaker" in said or "boto3" in said):
        return request.NOT_INSTALLED
    return f"The SageMaker Python SDK refuses this job: {said}"


def _role_of_studio() -> str | None:
    """The role that SageMaker Studio runs as, where this is Studio."""
    try:
        return json.loads(STUDIO.read_text(encoding="utf-8")).get("ExecutionRoleArn")
    except (OSError, ValueError, AttributeError):
        return None


def _region_of_environment() -> str | None:
    """The region that AWS's own tools would take."""
    for name in _REGION_VARIABLES:
        if os.environ.get(name):
            return os.environ[name]
    try:
        import botocore.session
    except ImportError:
        return None
    try:
        region = botocore.session.Session().get_config_variable("region")
    except Exception:  # a profile that isn't there, a configuration that can't be read: then there is none
        return None
    return str(region) if region else None


def size_text(size: float) -> str:
    """Bytes as a person says them."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
