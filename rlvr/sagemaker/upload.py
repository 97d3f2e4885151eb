"""Collect the files of a job: code, resolved recipe, data, and a local model. Nothing else is uploaded.

    files = collect_files(recipe, environment, folder)      # writes folder/code; data and models stay in place
    for file in files.files: print(file.name, file.size)

In the job, code is in /opt/ml/input/data/code, data in …/data and a model from outside models/ in …/model. The uploaded
recipe is the resolved one, with the paths inside the job.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlvr.config.recipe import Recipe
from rlvr.config.recipe_writer import write_recipe
from rlvr.config.specs import RewardSpec
from rlvr.errors import InputError, Problem
from rlvr.modeling.adapters import WEIGHTS
from rlvr.modeling.loading import find_model
from rlvr.sagemaker.reward_hosts import needs_ray
from rlvr.sagemaker.secret_scan import find_secrets

PROJECT = Path(__file__).resolve().parents[2]
CONTAINER = Path(__file__).parent / "container"
INPUT = "/opt/ml/input/data"
ENTRY_SCRIPT = "scripts/run_finetuning.sh"

# The training program, and its requirements by their names in the job.
_FOLDERS = ("rlvr", "rewards", "tasks", "environments", "accelerate_configs")
_FILES = ("run_grpo.py", ENTRY_SCRIPT, "scripts/serve_rewards.py")
_REQUIREMENTS = {
    "requirements.txt": "requirements.txt",
    "constraints.txt": "job-constraints.txt",
    "vllm-constraints.txt": "vllm-constraints.txt",
}
_VLLM = "vllm-requirements.txt"  # for recipes that generate with vLLM
_VLLM_NOTE = (
    "vLLM 0.30.0 is installed on each training host, which downloads about 1 GB at the start. It was not yet tried in "
    "Amazon's image. Without it: --rollouts transformers, or an image of your own (docker/README.md)."
)
_EXCLUDED = {".git", ".venv", ".env", "__pycache__", ".ipynb_checkpoints", ".DS_Store", ".cache", "node_modules"}
_MAX_SCANNED = 256 * 2**20  # bytes of a model's folder and of data that are scanned for secrets


@dataclass(frozen=True)
class UploadFile:
    """A file of this machine, and its name within a channel: "code", "data" or "model"."""

    channel: str
    name: str
    source: Path

    @property
    def size(self) -> int:
        return self.source.stat().st_size


@dataclass(frozen=True)
class JobFiles:
    """The files of all channels, the folder with the job's code, and the recipe as it runs in the job."""

    code: Path
    files: tuple[UploadFile, ...]
    recipe: Recipe
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def collect_files(recipe: Recipe, environment: Mapping[str, str], folder: Path) -> JobFiles:
    """Write the job's code to `folder`/code, and list all files to upload.

    Args:
        environment: of the job; written to job.env beside the code, for readers of the bucket.
    """
    code = folder / "code"
    problems: list[Problem] = []
    notes: list[str] = []
    _copy_project(code, problems)
    if needs_ray(recipe):
        with (code / "requirements.txt").open("a", encoding="utf-8") as file:
            file.write((CONTAINER / "ray-requirements.txt").read_text(encoding="utf-8"))
    if recipe.settings.get("use_vllm"):
        notes.append(_VLLM_NOTE)
        _copy(CONTAINER / _VLLM, code / _VLLM)
    rewards, renamed = _copy_rewards(recipe, code, problems, notes)
    tasks = [replace(one, name=_copy_plugin("task", "tasks", one.name, code, problems)) for one in recipe.tasks]
    data: list[UploadFile] = []
    channels = recipe.sagemaker.channels if recipe.sagemaker is not None else {}
    if "train" in channels:  # a folder for each split, beside the other channels
        replaced = f" in place of {path}" if (path := tasks[0].options.get("path")) else ""
        shown = ", ".join(uri.partition("?")[0] for uri in channels.values())
        notes.append(f"The job reads {shown}{replaced}. Only a local copy is checked.")
        splits = {key: value for key, value in tasks[0].options.items() if key != "test_path"}
        tasks = [replace(tasks[0], options={**splits, "path": INPUT})]
    else:
        tasks = [
            replace(
                one, options=_relocate_data("-".join(filter(None, ("task", one.label))), one.options, data, problems)
            )
            for one in tasks
        ]
    environments = tuple(
        replace(
            spec,
            name=_copy_plugin("environment", "environments", spec.name, code, problems),
            options=_relocate_data(spec.name, spec.options, data, problems),
        )
        for spec in recipe.environments
    )
    rewards = [replace(spec, options=_relocate_data(spec.name, spec.options, data, problems)) for spec in rewards]
    model, model_files = _relocate_model(recipe, code, problems)
    settings = {**recipe.settings, "model_name_or_path": model, "report_to": _trackers(recipe, environment, notes)}
    evaluation = recipe.evaluation
    if evaluation is not None and isinstance(evaluation.metric, Mapping):
        metrics = {label: renamed.get(name, name) for label, name in evaluation.metric.items()}
        evaluation = replace(evaluation, metric=metrics)
    elif evaluation is not None and evaluation.metric in renamed:
        evaluation = replace(evaluation, metric=renamed[evaluation.metric])
    job_recipe = replace(
        recipe,
        tasks=tuple(tasks),
        environments=environments,
        rewards=tuple(rewards),
        evaluation=evaluation,
        settings=settings,
        sagemaker=None,
    )
    write_recipe(job_recipe, code / "recipe.yaml")
    lines = [f"{name}={value}\n" for name, value in sorted(environment.items())]
    (code / "job.env").write_text("".join(lines), encoding="utf-8")
    files = [UploadFile("code", str(path.relative_to(code)), path) for path in _walk(code)] + data + model_files
    problems += _scan_for_secrets(files)
    return JobFiles(code, tuple(files), job_recipe, tuple(problems), tuple(notes))


def _copy_project(code: Path, problems: list[Problem]) -> None:
    """Copy the training program from this module's project."""
    for name in _FOLDERS:
        for path in _walk(PROJECT / name):
            _copy(path, code / path.relative_to(PROJECT))
    sources = {PROJECT / name: code / name for name in _FILES}
    sources |= {CONTAINER / name: code / target for name, target in _REQUIREMENTS.items()}
    for source, target in sources.items():
        if source.is_file():
            _copy(source, target)
        else:
            message = f"{source} is missing, but the job needs it. Submit from a complete checkout of the project."
            problems.append(Problem(message, kind="incomplete-checkout", path=str(source)))


def _copy_rewards(
    recipe: Recipe, code: Path, problems: list[Problem], notes: list[str]
) -> tuple[list[RewardSpec], dict[str | None, str]]:
    """The rewards under their names in the job, and a mapping of the renamed ones."""
    renamed: dict[str | None, str] = {}
    for spec in recipe.rewards:
        name = _copy_plugin("reward", "rewards", spec.name, code, problems)
        if name != spec.name:
            renamed[spec.name] = name
            notes.append(f"The reward {spec.name} is uploaded as {name}, without other files of its folder.")
    rewards = [
        replace(spec, name=renamed.get(spec.name, spec.name), gate=renamed.get(spec.gate, spec.gate))
        for spec in recipe.rewards
    ]
    return rewards, renamed


def _copy_plugin(kind: str, folder: str, name: str, code: Path, problems: list[Problem]) -> str:
    """Copy the file of a reward, a task or an environment from outside the project; return its name in the job."""
    file, colon, function = name.partition(":")
    if file.endswith(".py"):
        source = Path(file)
        if not source.is_file():
            message = f"The {kind} {name}: there is no file {source} (looked in {Path.cwd()})."
            problems.append(Problem(message, kind="file-not-found", key=kind, path=file))
            return name
        resolved = source.resolve()
        if resolved.is_relative_to(PROJECT) and (code / resolved.relative_to(PROJECT)).is_file():
            return f"{resolved.relative_to(PROJECT)}{colon}{function}"
        target = Path("plugins", source.name)
        if (code / target).exists():
            target = Path("plugins", f"{resolved.parent.name}-{source.name}")
            colon, function = ":", function or source.stem
        _copy(source, code / target)
        return f"{target}{colon}{function}"
    local = Path.cwd() / folder / f"{name}.py"
    if "." not in name and local.is_file():
        _copy(local, code / folder / f"{name}.py")  # as in a run, the working folder takes precedence over the project
    return name


def _relocate_data(
    owner: str, options: Mapping[str, Any], data: list[UploadFile], problems: list[Problem]
) -> dict[str, Any]:
    """Replace local paths in options by their paths in the job, and add the files to `data`."""
    relocated = dict(options)
    for key, value in options.items():
        if not isinstance(value, str) or not (_is_path_option(key) or _is_data_file(value)):
            continue
        source = Path(value).expanduser()
        if source.exists():
            prefix = owner if owner == "task" else Path(owner.partition(":")[0]).stem
            target = f"{prefix}.{key}/{source.resolve().name}"
            if source.is_dir():
                data += [UploadFile("data", f"{target}/{path.relative_to(source)}", path) for path in _walk(source)]
            else:
                data.append(UploadFile("data", target, source))
            relocated[key] = f"{INPUT}/data/{target}"
        elif value.startswith((".", "/", "~")) or _has_file_suffix(value) or value.count("/") > 1:
            message = f"{owner}: {key}: there is no file or folder {value} (looked in {Path.cwd()})."
            problems.append(Problem(message, kind="file-not-found", key=f"{owner}.{key}", path=value))
    return relocated


def _has_file_suffix(value: str) -> bool:
    """Whether a name ends like a file's, and not with a version, as AI-MO/NuminaMath-1.5 does."""
    suffix = Path(value).suffix
    return bool(suffix) and not suffix[1:2].isdigit()


def _is_data_file(value: str) -> bool:
    """Whether a value names a file of this machine, whatever its option is called."""
    return _has_file_suffix(value) and os.path.isfile(os.path.expanduser(value))


def _is_path_option(key: str) -> bool:
    """Whether an option of this name may be a path."""
    return key.rpartition("_")[2] in ("path", "file", "folder", "dir")


def _relocate_model(recipe: Recipe, code: Path, problems: list[Problem]) -> tuple[str, list[UploadFile]]:
    """The model's name in the job, and its files if it is a folder outside models/."""
    name = str(recipe.settings["model_name_or_path"])
    try:
        folder = Path(find_model(name))
    except InputError as error:
        problems += error.problems
        return name, []
    if not folder.is_dir():
        return name, []
    resolved = folder.resolve()
    if resolved.is_relative_to(PROJECT / "models"):
        target = resolved.relative_to(PROJECT)
        for path in _walk(resolved):
            _copy(path, code / target / path.relative_to(resolved))
        return str(target), []
    return f"{INPUT}/model", [UploadFile("model", str(path.relative_to(folder)), path) for path in _walk(folder)]


def _trackers(recipe: Recipe, environment: Mapping[str, str], notes: list[str]) -> Any:
    """`report_to` in the job: without a server's URI MLflow is left out, because a store on the host would be lost."""
    trackers = recipe.settings.get("report_to")
    names = [trackers] if isinstance(trackers, str) else list(trackers or [])
    if "mlflow" not in names or "MLFLOW_TRACKING_URI" in environment:
        return trackers
    notes.append("Metrics go to CloudWatch and metrics.jsonl, not to MLflow: mlflow_tracking_uri is not set.")
    return [name for name in names if name != "mlflow"] or "none"


def _scan_for_secrets(files: list[UploadFile]) -> list[Problem]:
    problems: list[Problem] = []
    scanned = 0
    for file in files:
        if file.channel == "code":
            problems += find_secrets(file.source, f"code/{file.name}")
        elif file.source.suffix not in WEIGHTS and scanned < _MAX_SCANNED:
            scanned += file.size
            problems += find_secrets(file.source, str(file.source), shapes_only=True)
    return problems


def _walk(folder: Path) -> Iterator[Path]:
    """The files of a folder in a fixed order, without caches, environments and version control."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _EXCLUDED)
        for name in sorted(names):
            if name not in _EXCLUDED and not name.startswith(".env") and not name.endswith((".pyc", ".pyo")):
                yield Path(root, name)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if source.suffix == ".sh" else 0o644)
