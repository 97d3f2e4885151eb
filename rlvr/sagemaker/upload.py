"""What travels to a job, and nothing else: the project's code, the resolved recipe, its data, a model that is local.

    parcel = pack(recipe, settings, folder)      # folder/code is made; data and models stay where they are
    for one in parcel.files: print(one.name, one.size)

In the job the code lies in /opt/ml/input/data/code, data in …/data and a model from outside models/ in …/model. The
recipe that travels is the resolved one, with the paths that its files have there.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlvr.config.recipe import Recipe, RewardSpec, TaskSpec, write_recipe
from rlvr.errors import InputError
from rlvr.modeling.loading import find_model
from rlvr.sagemaker.reward_hosts import wants_ray
from rlvr.sagemaker.secret_scan import secrets_in

PROJECT = Path(__file__).resolve().parents[2]
INPUT = "/opt/ml/input/data"
ENTRY = "scripts/run_finetuning.sh"

# Folders of the project that the training program consists of, and single files beside them.
_FOLDERS = ("rlvr", "rewards", "tasks", "accelerate_configs")
_FILES = ("run_grpo.py", ENTRY)
_IF_THERE = ("scripts/serve_rewards.py",)
_REQUIREMENTS = {"requirements.txt": "requirements.txt", "constraints.txt": "job-constraints.txt"}
_NEVER = {".git", ".venv", ".env", "__pycache__", ".ipynb_checkpoints", ".DS_Store", ".cache", "node_modules"}
_SCANNED_DATA = 32 * 2**20  # bytes of data that are looked through for secrets


@dataclass(frozen=True)
class File:
    """A file that travels.

    Attributes:
        channel: "code", "data" or "model".
        name: its place within the channel.
        source: where it is here.
    """

    channel: str
    name: str
    source: Path

    @property
    def size(self) -> int:
        return self.source.stat().st_size


@dataclass(frozen=True)
class Parcel:
    """All that travels.

    Attributes:
        code: the folder that is uploaded as the job's source code.
        files: of all channels.
        recipe: as it runs in the job.
        faults: what must be mended first, a sentence each.
        notes: what one should know.
    """

    code: Path
    files: tuple[File, ...]
    recipe: Recipe
    faults: tuple[str, ...]
    notes: tuple[str, ...]

    def of(self, channel: str) -> tuple[File, ...]:
        return tuple(file for file in self.files if file.channel == channel)


def pack(recipe: Recipe, environment: Mapping[str, str], folder: Path) -> Parcel:
    """Lays out the code of a job in `folder`/code, and finds what else must travel.

    Args:
        environment: of the job, written down beside the code as job.env for whoever looks into the bucket.
    """
    code = folder / "code"
    faults: list[str] = []
    notes: list[str] = []
    _copy_project(code, faults)
    if wants_ray(recipe):
        with (code / "requirements.txt").open("a", encoding="utf-8") as file:
            file.write((PROJECT / "rlvr/sagemaker/container/ray-requirements.txt").read_text(encoding="utf-8"))
    rewards, renamed = _pack_plugins(recipe, code, faults, notes)
    task = TaskSpec(_pack_plugin("task", "tasks", recipe.task.name, code, faults), recipe.task.options)
    data: list[File] = []
    task = replace(task, options=_with_data("task", task.options, data, faults))
    rewards = [replace(spec, options=_with_data(spec.name, spec.options, data, faults)) for spec in rewards]
    model, model_files = _pack_model(recipe, code, faults)
    settings = {**recipe.settings, "model_name_or_path": model, "report_to": _trackers(recipe, environment, notes)}
    evaluation = recipe.evaluation
    if evaluation is not None and evaluation.metric in renamed:
        evaluation = replace(evaluation, metric=renamed[evaluation.metric])
    travelling = replace(
        recipe, task=task, rewards=tuple(rewards), evaluation=evaluation, settings=settings, sagemaker=None
    )
    write_recipe(travelling, code / "recipe.yaml")
    lines = [f"{name}={value}\n" for name, value in sorted(environment.items())]
    (code / "job.env").write_text("".join(lines), encoding="utf-8")
    files = [File("code", str(path.relative_to(code)), path) for path in _walk(code)] + data + model_files
    faults += _secrets(files)
    return Parcel(code, tuple(files), travelling, tuple(faults), tuple(notes))


def _copy_project(code: Path, faults: list[str]) -> None:
    """The training program, from the project that this module belongs to."""
    for name in _FOLDERS:
        for path in _walk(PROJECT / name):
            _copy(path, code / path.relative_to(PROJECT))
    for name in (*_FILES, *(name for name in _IF_THERE if (PROJECT / name).is_file())):
        if (PROJECT / name).is_file():
            _copy(PROJECT / name, code / name)
        else:
            faults.append(
                f"{PROJECT / name} is missing, but the job needs it: submit from a whole checkout of the project."
            )
    for name, place in _REQUIREMENTS.items():
        source = PROJECT / "rlvr" / "sagemaker" / "container" / name
        if source.is_file():
            _copy(source, code / place)
        else:
            faults.append(f"{source} is missing, but the job needs it: submit from a whole checkout of the project.")


def _pack_plugins(
    recipe: Recipe, code: Path, faults: list[str], notes: list[str]
) -> tuple[list[RewardSpec], dict[str | None, str]]:
    """The rewards by the names that they have in the job, and what was renamed."""
    renamed: dict[str | None, str] = {}
    for spec in recipe.rewards:
        name = _pack_plugin("reward", "rewards", spec.name, code, faults)
        if name != spec.name:
            renamed[spec.name] = name
            notes.append(f"The reward {spec.name} travels as {name}; files that it reads from its own folder do not.")
    rewards = [
        replace(spec, name=renamed.get(spec.name, spec.name), gate=renamed.get(spec.gate, spec.gate))
        for spec in recipe.rewards
    ]
    return rewards, renamed


def _pack_plugin(kind: str, folder: str, name: str, code: Path, faults: list[str]) -> str:
    """Takes the file of a reward or a task along where it is none of the project's; its name in the job."""
    file, colon, function = name.partition(":")
    if file.endswith(".py"):
        source = Path(file)
        if not source.is_file():
            faults.append(f"The {kind} {name}: there is no file {source} (looked in {Path.cwd()}).")
            return name
        inside = source.resolve()
        if inside.is_relative_to(PROJECT) and (code / inside.relative_to(PROJECT)).is_file():
            return f"{inside.relative_to(PROJECT)}{colon}{function}"
        place = Path("plugins", source.name)
        if (code / place).exists():
            place = Path("plugins", f"{source.resolve().parent.name}-{source.name}")
            colon, function = ":", function or source.stem
        _copy(source, code / place)
        return f"{place}{colon}{function}"
    here = Path.cwd() / folder / f"{name}.py"
    if "." not in name and here.is_file():
        _copy(here, code / folder / f"{name}.py")  # the folder that one works in wins over the project, as in a run
    elif "." in name:
        module = name.partition(".")[0]
        origin = _origin(module)
        installed = origin is None or "site-packages" in origin.parts
        near = origin is not None and any(origin.is_relative_to(root) for root in (Path.cwd(), PROJECT))
        if near and not installed and not (code / module).exists():
            faults.append(
                f"The {kind} {name}: the package {module} lies in {origin}, which does not travel. Put the function "
                f"into a file of {folder}/, or name its file (path/to/file.py:function)."
            )
    return name


def _origin(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or not (spec.origin or spec.submodule_search_locations):
        return None
    return Path(spec.origin or next(iter(spec.submodule_search_locations or []))).resolve()


def _with_data(owner: str, options: Mapping[str, Any], data: list[File], faults: list[str]) -> dict[str, Any]:
    """Options with the paths of their local files as they are in the job; `data` gets the files."""
    found = dict(options)
    for key, value in options.items():
        if not isinstance(value, str) or not _is_path(key):
            continue
        source = Path(value).expanduser()
        if source.exists():
            place = f"{owner if owner == 'task' else Path(owner.partition(':')[0]).stem}.{key}/{source.resolve().name}"
            if source.is_dir():
                data += [File("data", f"{place}/{path.relative_to(source)}", path) for path in _walk(source)]
            else:
                data.append(File("data", place, source))
            found[key] = f"{INPUT}/data/{place}"
        elif value.startswith((".", "/", "~")) or Path(value).suffix or value.count("/") > 1:
            faults.append(f"{owner}: {key}: there is no file or folder {value} (looked in {Path.cwd()}).")
    return found


def _is_path(key: str) -> bool:
    """Whether an option of this name may name a file or a folder."""
    return key.rpartition("_")[2] in ("path", "file", "folder", "dir")


def _pack_model(recipe: Recipe, code: Path, faults: list[str]) -> tuple[str, list[File]]:
    name = str(recipe.settings["model_name_or_path"])
    try:
        found = find_model(name)
    except InputError as error:
        faults.append(str(error))
        return name, []
    folder = Path(found)
    if not folder.is_dir():
        return name, []
    inside = folder.resolve()
    if inside.is_relative_to(PROJECT / "models"):
        place = inside.relative_to(PROJECT)
        for path in _walk(inside):
            _copy(path, code / place / path.relative_to(inside))
        return str(place), []
    return f"{INPUT}/model", [File("model", str(path.relative_to(folder)), path) for path in _walk(folder)]


def _trackers(recipe: Recipe, environment: Mapping[str, str], notes: list[str]) -> Any:
    """`report_to` in the job: MLflow only where it is told a server, since a store within the host would be lost."""
    wanted = recipe.settings.get("report_to")
    names = [wanted] if isinstance(wanted, str) else list(wanted or [])
    if "mlflow" not in names or "MLFLOW_TRACKING_URI" in environment:
        return wanted
    notes.append(
        "Metrics go to CloudWatch and to metrics.jsonl, not to MLflow: mlflow_tracking_uri names no server for them."
    )
    rest = [name for name in names if name != "mlflow"]
    return rest or "none"


def _secrets(files: list[File]) -> list[str]:
    found: list[str] = []
    looked_at = 0
    for file in files:
        if file.channel == "code":
            found += secrets_in(file.source, f"code/{file.name}")
        elif file.channel == "data" and looked_at < _SCANNED_DATA:
            looked_at += file.size
            found += secrets_in(file.source, str(file.source), shapes_only=True)
    return found


def _walk(folder: Path) -> Iterator[Path]:
    """The files of a folder in a fixed order, without what is never anybody's source."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _NEVER)
        for name in sorted(names):
            if name not in _NEVER and not name.startswith(".env") and not name.endswith((".pyc", ".pyo")):
                yield Path(root, name)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if source.suffix == ".sh" else 0o644)
