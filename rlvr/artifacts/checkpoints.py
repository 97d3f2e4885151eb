"""Checkpoints that can be trusted: complete or not at all, and continued only by the run that they belong to.

A checkpoint counts once `complete.json` lies in it, which is written last, when every process has written its part. It
lists the files with their sizes, and what the run was made of. So a checkpoint that a killed run left half-written, or
that lost a file on its way through a bucket, is told from one that can be continued, and a checkpoint of another recipe
is refused with the name of the key.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr import console
from rlvr.artifacts import directory
from rlvr.config import schema
from rlvr.config.recipe import Recipe
from rlvr.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

MARKER = "complete.json"
PREFIX = "checkpoint-"
EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: what was begun can be continued
SHOWN = 8

# Keys that may change between a checkpoint and its continuation, because no reward, loss or prompt depends on them:
# where things are written and told, how often, how long one waits, and what saves memory without changing a number.
IMMATERIAL = frozenset(
    {
        "output_dir", "resume_from_checkpoint", "max_runtime_s", "run_name", "report_to", "project", "trackio_space_id",
        "logging_steps", "logging_strategy", "logging_first_step", "log_level", "log_level_replica", "disable_tqdm",
        "log_completions", "num_completions_to_print", "log_unique_prompts", "save_strategy", "save_steps",
        "save_total_limit", "eval_strategy", "eval_steps", "eval_on_start", "evaluation", "ddp_timeout",
        "on_reward_error", "reward_timeout_s", "reward_batch_timeout_s", "reward_outage_timeout_s", "reward_hedge_s",
        *schema.DEPRECATED,  # in checkpoints of an earlier release
        "dataloader_num_workers",
        "dataloader_pin_memory", "dataloader_prefetch_factor", "push_to_hub", "hub_model_id", "hub_strategy",
        "hub_private_repo",
        "ds3_gather_for_generation", "vllm_gpu_memory_utilization", "vllm_server_host", "vllm_server_port",
        "vllm_server_base_url", "vllm_server_timeout", "vllm_group_port",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Identity:
    """What a run's numbers depend on.

    Attributes:
        recipe: the resolved recipe, as it would stand in YAML.
        processes: how many processes train together.
        launcher: "plain" (python or ddp: their checkpoints are the same), "zero2", "zero3" …
        rows: a digest of the training prompts in their order.
    """

    recipe: Mapping[str, Any]
    processes: int
    launcher: str
    rows: str

    @classmethod
    def of(cls, recipe: Recipe, train: Dataset, processes: int, launcher: str) -> Identity:
        plain = json.loads(json.dumps(recipe.as_dict()))  # as it will be read back from a checkpoint
        digest = hashlib.sha256()
        for prompt in train["prompt"]:
            digest.update(json.dumps(prompt).encode())
        return cls(plain, processes, "plain" if launcher in ("python", "ddp") else launcher, digest.hexdigest())

    def differences(self, earlier: Identity) -> list[str]:
        """What of this run differs from an `earlier` one in a way that matters, a phrase each."""
        found = []
        for key in sorted({*self.recipe, *earlier.recipe} - IMMATERIAL):
            was, now = (_material(key, one.recipe.get(key, "not given")) for one in (earlier, self))
            if was != now:
                found += [f"{path} was {before}, now {after}" for path, before, after in _changes(key, was, now)]
        if self.processes != earlier.processes:
            found.append(f"it was trained by {earlier.processes} processes, now there are {self.processes}")
        if self.launcher != earlier.launcher:
            found.append(f"it was launched with {earlier.launcher}, now with {self.launcher} (--config_file)")
        if self.rows != earlier.rows:
            found.append("the task gives other training prompts, or gives them in another order")
        return found


class RunStatus:
    """Keeps run.json, from which a later start of the same command knows what to do.

    Args:
        folder: the run directory.
        identity: what the run is made of.
        writes: whether this is the process that writes.
    """

    def __init__(self, folder: Path, identity: Identity, writes: bool) -> None:
        self.folder = folder
        self.identity = identity
        self.writes = writes
        self.facts: dict[str, Any] = {}

    def tell(self, status: str, **facts: Any) -> None:
        """Notes how far the run has come: "running", "trained" (only the evaluation is left), "done" …"""
        self.facts = {"status": status, **facts}
        if self.writes:
            directory.write_status(self.folder, **self.facts, identity=asdict(self.identity))

    def failed(self, trace: str, *, learnt: bool = True) -> None:
        """Notes a failure and its traceback; what was trained stays trained.

        Args:
            learnt: False where to continue would come to the same end.
        """
        self._end("failed")
        if self.writes:
            with contextlib.suppress(OSError):  # a disk that is full may be why it failed
                (self.folder / "failure.txt").write_text(trace, encoding="utf-8")
            latest = newest(self.folder)
            if latest is not None and self.facts["status"] == "failed" and learnt:
                console.error(f"  {latest} is complete: the same command continues from it.")

    def interrupted(self, why: str) -> int:
        """Notes that the run was told to stop, and says what continues it; returns the exit code."""
        self._end("interrupted")
        if not self.writes:
            return EXIT_CODE  # on a machine of its own it holds only its part of a checkpoint
        latest = newest(self.folder)
        if self.facts["status"] == "trained":
            left = "Training is done and saved; the same command goes on with the evaluation."
        elif latest is not None:
            left = f"{latest} is complete: the same command continues from it."
        elif found(self.folder):
            console.info(f"\n{why} No checkpoint could be saved: the same command begins anew.")
            return 1
        elif (self.folder / directory.ANSWERS).is_dir():
            left = "No step was made yet; the same command goes on with the evaluation before it."
        else:
            left = "No step was made yet: the same command begins anew."
        console.info(f"\n{why} {left}")
        return EXIT_CODE

    def _end(self, status: str) -> None:
        if self.facts.get("status") != "trained":
            with contextlib.suppress(OSError):
                self.tell(status)


@dataclass(frozen=True)
class Resumption:
    """Where a run begins.

    Attributes:
        checkpoint: the folder to continue from; None to begin at step 0.
        trained: training is over and saved; only what comes after it is left.
        notes: sentences for people.
    """

    checkpoint: Path | None = None
    trained: bool = False
    notes: tuple[str, ...] = ()

    @property
    def fresh(self) -> bool:
        return self.checkpoint is None and not self.trained


def choose(recipe: Recipe, identity: Identity) -> Resumption:
    """What `resume_from_checkpoint` means for this run, here and now. Only reads.

    Raises:
        InputError: the checkpoint belongs to another recipe, launcher or dataset, naming what differs; the folder
            that `resume_from_checkpoint` names is no complete checkpoint; or a later version of the project wrote it.
    """
    wanted = recipe.settings["resume_from_checkpoint"]
    status = directory.read_status(recipe.output_dir)
    if wanted == "never":
        return Resumption()
    if wanted != "auto":
        folder = Path(wanted)
        fault = incompleteness(folder) or missing_part(folder)
        if fault:
            raise InputError(f"resume_from_checkpoint: {folder} can't be continued: {fault}.")
        _same(identity, folder)
        return Resumption(folder, notes=(f"continues from {folder}, step {step_of(folder)}",))
    if status is None or status["status"] == "done":
        return Resumption()
    notes = []
    if status["status"] == "trained":
        final = recipe.output_dir / str(status.get("saved"))
        if (final / "adapter_config.json").is_file() or (final / "config.json").is_file():
            _same(identity, recipe.output_dir, status)
            return Resumption(trained=True, notes=(f"training is done ({final}); only the evaluation is left",))
    for folder in found(recipe.output_dir):
        fault = incompleteness(folder) or missing_part(folder)
        if fault:
            notes.append(f"{folder.name} is skipped: {fault}")
            continue
        _same(identity, folder)
        return Resumption(folder, notes=(*notes, f"continues from {folder}, step {step_of(folder)}"))
    notes.append(f"the earlier run in {recipe.output_dir} left no complete checkpoint: this one begins at step 0")
    return Resumption(notes=tuple(notes))


def agreed(begin: Resumption, processes: int) -> Resumption:
    """The same, when all processes found the same.

    Collective, where there is more than one process.

    Raises:
        InputError: machines see different folders, on all of them.
    """
    if processes == 1:
        return begin
    from accelerate.utils import gather_object

    where = begin.checkpoint.name if begin.checkpoint is not None else "the end" if begin.trained else "the beginning"
    everyones = gather_object([where])
    if len(set(everyones)) > 1:
        found_by = "; ".join(f"process {process}: {where}" for process, where in enumerate(everyones))
        raise InputError(
            f"The processes would not begin at the same place ({found_by}). output_dir must be a folder that all "
            "machines share; or set resume_from_checkpoint: never to begin anew."
        )
    return begin


def found(output_dir: Path) -> list[Path]:
    """The checkpoint folders of a run, complete or not, newest first."""
    folders = [path for path in output_dir.glob(f"{PREFIX}*") if path.is_dir() and path.name[len(PREFIX) :].isdigit()]
    return sorted(folders, key=step_of, reverse=True)


def step_of(folder: Path) -> int:
    """The optimizer step that a checkpoint folder is of."""
    number = folder.name.removeprefix(PREFIX)
    return int(number) if number.isdigit() else int(read_marker(folder)["step"])  # a copy may have another name


def incompleteness(folder: Path) -> str | None:
    """Why a folder is no complete checkpoint, as half a sentence; None if it is one."""
    if not folder.is_dir():
        return "there is no such folder"
    if not (folder / MARKER).is_file():
        return f"it has no {MARKER}, which is written last: the run ended while it was being saved"
    try:
        sizes = read_marker(folder)["files"]
    except (ValueError, KeyError):
        return f"its {MARKER} can't be read"
    for name, size in sizes.items():
        file = folder / name
        if not file.is_file():
            return f"its file {name} is missing"
        if file.stat().st_size != size:
            return f"its file {name} has {file.stat().st_size} bytes instead of {size}"
    return None


def missing_part(folder: Path) -> str | None:
    """The same of what processes on other machines have written: the marker can't list what its writer can't see.

    To be asked where a run begins, when all parts have come together, through a bucket or a shared folder.
    """
    content = read_marker(folder)
    identity = content.get("identity")
    if not isinstance(identity, dict) or part_file(folder, 0).name not in content.get("files", ()):
        return None  # not said for how many processes, or not made of such parts
    processes = int(identity.get("processes", 1))
    lost = [process for process in range(processes) if not part_file(folder, process).is_file()]
    if not lost:
        return None
    return f"its file {part_file(folder, lost[0]).name} is missing, which process {lost[0]} wrote"


def part_file(folder: Path, process: int) -> Path:
    """What one process keeps in a checkpoint of what lies between two steps (rlvr/training/checkpoint_trainer.py)."""
    return folder / f"between_steps_{process}.pt"


def complete(folder: Path, step: int, identity: Identity) -> None:
    """Declares a checkpoint complete; to be called when every process has written its part."""
    content = {
        "format": directory.FORMAT,
        "step": step,
        "files": {str(file.relative_to(folder)): file.stat().st_size for file in _files(folder)},
        "identity": asdict(identity),
        "versions": directory.versions(),
    }
    directory.write_json(folder / MARKER, content)


def read_marker(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / MARKER).read_text(encoding="utf-8")))


def newest(output_dir: Path) -> Path | None:
    """The newest complete checkpoint of a run."""
    return next((folder for folder in found(output_dir) if incompleteness(folder) is None), None)


def rotate(output_dir: Path, keep: int | None) -> None:
    """Deletes all but the `keep` newest complete checkpoints; incomplete ones older than those go as well."""
    if not keep:
        return
    kept = 0
    for folder in found(output_dir):
        if kept < keep:
            kept += incompleteness(folder) is None
        else:
            remove(folder)


def keep_only(output_dir: Path, names: Collection[str]) -> None:
    """Deletes the checkpoints that the main process has not kept: on a machine of their own, the parts of them."""
    for folder in found(output_dir):
        if folder.name not in names:
            remove(folder)


def remove(folder: Path) -> None:
    """Deletes a checkpoint, its marker first: one that is half-deleted is not complete any more."""
    (folder / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def size(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(file.stat().st_size for file in _files(folder))


def _files(folder: Path) -> list[Path]:
    return sorted(
        Path(root) / name for root, _, names in os.walk(folder) for name in names if Path(root, name) != folder / MARKER
    )


def _same(identity: Identity, folder: Path, content: Mapping[str, Any] | None = None) -> None:
    """Refuses to continue what another run has left; `content` is its marker's, or run.json's."""
    content = read_marker(folder) if content is None else content
    directory.check_format(content.get("format", 1), folder)
    try:
        earlier = Identity(**content["identity"])
    except (KeyError, TypeError):
        raise InputError(
            f"{folder} does not say what run it belongs to (its `identity` is missing or damaged), so it can't be "
            "continued. Begin anew with --resume_from_checkpoint never: what is there is moved aside, not overwritten."
        ) from None
    differences = identity.differences(earlier)
    if differences:
        more = [f"and {len(differences) - SHOWN} more"] if len(differences) > SHOWN else []
        listed = "\n".join(f"  {line}" for line in [*differences[:SHOWN], *more])
        raise InputError(
            f"{folder} belongs to a run that differs from this one, so it can't be continued:\n{listed}\n"
            "Undo that; or begin anew with --resume_from_checkpoint never (what is there is moved aside, not "
            "overwritten), or with another --output_dir."
        )


def _material(key: str, value: Any) -> Any:
    """A value without what no reward depends on: a reward is the same wherever it is computed."""
    if key != "rewards" or not isinstance(value, list):
        return value
    return [{name: part for name, part in entry.items() if name != "where"} for entry in value]


def _changes(key: str, was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """The parts of a value that changed, by their dotted keys; rewards by their names."""
    if isinstance(was, list) and isinstance(now, list) and key == "rewards":
        was, now = ({entry["name"]: entry for entry in entries} for entries in (was, now))
        if list(was) != list(now) and set(was) == set(now):
            yield "the order of rewards", ", ".join(was), ", ".join(now)
    if not (isinstance(was, Mapping) and isinstance(now, Mapping)):
        yield key, was, now
        return
    for part in sorted({*was, *now}):
        before, after = was.get(part, "not given"), now.get(part, "not given")
        if before != after:
            yield from _changes(f"{key}.{part}", before, after)
