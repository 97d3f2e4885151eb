"""Resume a run: record how far it has come in run.json, and choose where its next start begins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rlvr import console
from rlvr.artifacts import checkpoints, directory
from rlvr.artifacts.identity import Identity, more_training
from rlvr.artifacts.sealed_json import damaged
from rlvr.config.recipe import Recipe
from rlvr.errors import InputError
from rlvr.formatting import mapping

if TYPE_CHECKING:
    from accelerate import PartialState

EXIT_INTERRUPTED = 75  # EX_TEMPFAIL of sysexits.h: the same command can continue
MAX_DIFFERENCES = 8  # that a message lists


class RunStatus:
    """run.json, from which the next start of the same command chooses where to begin.

    Args:
        folder: the run directory.
        identity: of the run.
        writes: whether this process writes the file.
        reward_files: hash of the file of each reward and environment.
        imported_files: hash of each module that these import.
        origin: how the run was started (`rlvr.artifacts.origin`).
    """

    def __init__(
        self,
        folder: Path,
        identity: Identity,
        writes: bool,
        reward_files: Mapping[str, str] | None = None,
        imported_files: Mapping[str, str] | None = None,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.identity = identity
        self.writes = writes
        self.files: dict[str, Any] = {"reward_files": reward_files or {}, "imported_files": imported_files or {}}
        self.machine = directory.machine(gpus=not identity.recipe.get("use_cpu")) if writes else {}
        self.origin = origin or {}
        self.facts: dict[str, Any] = {}

    def update(self, status: str, **facts: Any) -> None:
        """Record a status: "running", "trained" (only the evaluation is left), "done" …"""
        self.facts = {"status": status, **facts}
        if self.writes:
            if status == "trained":
                facts[checkpoints.DIGESTS] = checkpoints.digests_of(self.folder / facts["saved"])
            identity = asdict(self.identity)
            origins = {"machine": self.machine, "origin": self.origin, **self.files}
            directory.write_status(self.folder, status, **facts, **origins, identity=identity)

    def changed_files(self) -> list[str]:
        """The rewards, environments and modules whose files differ from those that run.json names."""
        status = directory.read_status(self.folder) or {}
        return [
            name
            for key, files in self.files.items()
            for name, digest in files.items()
            if (status.get(key) or {}).get(name, digest) != digest
        ]

    def failed(self, trace: str, *, can_continue: bool = True) -> None:
        """Record a failure and its traceback. The status "trained" stays.

        Args:
            can_continue: False if a continuation would fail in the same way.
        """
        self._end("failed")
        if self.writes:
            with contextlib.suppress(OSError):  # a full disk may be the cause of the failure
                (self.folder / "failure.txt").write_text(trace, encoding="utf-8")
            latest = checkpoints.newest_complete(self.folder)
            if latest is not None and self.facts["status"] == "failed" and can_continue:
                console.error(f"  {latest} is complete: the same command continues from it.")

    def interrupted(self, reason: str) -> int:
        """Record an interruption and print how to continue; return the exit code."""
        self._end("interrupted")
        if not self.writes:
            return EXIT_INTERRUPTED  # a machine with its own disk sees only its part of a checkpoint
        latest = checkpoints.newest_complete(self.folder)
        if self.facts["status"] == "trained":
            outlook = "The trained model is saved; the same command does what is left."
        elif latest is not None:
            outlook = f"{latest} is complete: the same command continues from it."
        elif checkpoints.list_checkpoints(self.folder):
            console.info(f"\n{reason} No checkpoint could be saved: the same command starts again.")
            return 1
        elif (self.folder / directory.ANSWERS).is_dir():
            outlook = "Training has not started; the same command continues with the evaluation before it."
        else:
            outlook = "Training has not started: the same command starts again."
        console.info(f"\n{reason} {outlook}")
        return EXIT_INTERRUPTED

    def _end(self, status: str) -> None:
        if self.facts.get("status") != "trained":
            with contextlib.suppress(OSError):
                self.update(status)


@dataclass(frozen=True)
class Resumption:
    """Where a run begins.

    Attributes:
        checkpoint: folder to continue from; None to begin at step 0.
        saved: folder of the trained weights, if only the evaluation is left.
        notes: sentences for people.
        extends_finished: the checkpoint is of a run that is done, and this one trains for more steps.
        damaged: names of newer checkpoints that were skipped; without their markers they don't count in the rotation.
    """

    checkpoint: Path | None = None
    saved: Path | None = None
    notes: tuple[str, ...] = ()
    extends_finished: bool = False
    damaged: tuple[str, ...] = ()

    @property
    def fresh(self) -> bool:
        return self.checkpoint is None and self.saved is None


def choose_intact(
    recipe: Recipe,
    identity: Identity,
    state: PartialState,
    attempt: Callable[[Callable[[], Resumption]], Resumption | None],
) -> Resumption:
    """Find where this run begins, skipping folders in which a process finds a damaged file. Collective.

    Each process checks its own files, and the first one of each machine those of the main process, too. `attempt`
    reports the errors of `choose_resumption`: a process that ended would let the others wait.
    """
    from accelerate.utils import gather_object

    processes = {state.process_index, *([0] if state.is_local_main_process else [])}
    damages: dict[str, str] = {}
    found: list[tuple[str, str | OSError]]
    while True:
        chosen = attempt(partial(choose_resumption, recipe, identity, damages)) or Resumption()
        found = []
        if folder := chosen.checkpoint or chosen.saved:
            fault: str | OSError | None
            try:
                content = checkpoints.read_marker(folder) if chosen.checkpoint else directory.read_status(folder.parent)
                fault = checkpoints.find_damage(folder, mapping(mapping(content).get(checkpoints.DIGESTS)), processes)
            except OSError as error:
                error.filename = error.filename or str(folder)
                fault = error
            found = [(folder.name, fault)] if fault else []
        found = gather_object(found) if state.num_processes > 1 else found
        if not found:
            skipped = tuple(name for name in damages if chosen.checkpoint and name.startswith(checkpoints.PREFIX))
            return replace(chosen, damaged=skipped)
        for name, fault in found:
            if isinstance(fault, OSError):
                return attempt(partial(_refuse_unread, fault)) or Resumption()
            damages[name] = fault


def _refuse_unread(error: OSError) -> NoReturn:
    raise InputError(
        f"{error.filename} can't be read: {error.strerror}. Start again when it can be read, or begin a new run with "
        "--resume_from_checkpoint never.",
        kind="damaged-file",
        path=error.filename,
    )


def choose_resumption(recipe: Recipe, identity: Identity, damages: Mapping[str, str] | None = None) -> Resumption:
    """Find where `resume_from_checkpoint` lets this run begin. Only reads.

    Args:
        damages: what is wrong with folders, by their names, as half a sentence.

    Raises:
        InputError: of kind "checkpoint-mismatch" (the checkpoint belongs to another recipe, launcher or dataset),
            "checkpoint-incomplete", "damaged-file" or "later-format".
    """
    resumption, folder, content = _find_beginning(recipe, damages or {})
    if folder is None:
        return resumption
    try:
        notes = _check_identity(identity, folder, content)
    except InputError as error:
        if resumption.extends_finished and error.problems[0].kind == "checkpoint-mismatch":
            note = f"the finished run in {recipe.output_dir} is a different one: this one begins at step 0"
            return Resumption(notes=(note,))
        raise
    return replace(resumption, notes=(*resumption.notes, *notes))


def earlier_engine(recipe: Recipe) -> bool | None:
    """Whether the run that this one would continue samples with vLLM; None if it would continue none, or can't."""
    earlier = earlier_recipe(recipe)
    return bool(earlier.get("use_vllm")) if earlier is not None else None


def earlier_recipe(recipe: Recipe) -> Mapping[str, Any] | None:
    """The resolved recipe of the run that this one would continue; None if it would continue none, or can't."""
    try:
        _, folder, content = _find_beginning(recipe, {})
        return dict(content["identity"]["recipe"]) if folder is not None else None
    except (InputError, LookupError, TypeError):
        return None  # choose_resumption reports it


def _find_beginning(recipe: Recipe, damages: Mapping[str, str]) -> tuple[Resumption, Path | None, Mapping[str, Any]]:
    """Where the run begins; with the folder that it continues, and what run.json or the marker says of that run."""
    wanted = recipe.settings["resume_from_checkpoint"]
    status = directory.read_status(recipe.output_dir)
    if wanted == "never":
        return Resumption(), None, {}
    if wanted != "auto":
        folder = Path(wanted)
        if fault := checkpoints.why_incomplete(folder) or damages.get(folder.name):
            raise InputError(
                f"resume_from_checkpoint: {folder} can't be continued: {fault}.",
                kind="checkpoint-incomplete",
                key="resume_from_checkpoint",
                path=folder,
            )
        return Resumption(folder, notes=(_continues_from(folder),)), folder, checkpoints.read_marker(folder)
    run_json = recipe.output_dir / directory.STATUS
    if run_json.exists() and (status is None or not directory.is_sealed(directory.read_json(run_json))):
        latest = checkpoints.newest_complete(recipe.output_dir)
        go_on = f"--resume_from_checkpoint {latest} to continue, or " if latest is not None else ""
        raise damaged(run_json, f"Restore it; or give {go_on}--resume_from_checkpoint never to begin a new run.")
    more = status is not None and more_training(recipe.as_dict(), (status.get("identity") or {}).get("recipe") or {})
    if status is None or (status["status"] == "done" and not more):
        return Resumption(), None, {}
    notes = []
    if status["status"] == "trained" and not more:
        saved = recipe.output_dir / str(status.get("saved"))
        if saved.name in damages:
            notes.append(f"{saved} is not used: {damages[saved.name]}")
        elif (saved / "adapter_config.json").is_file() or (saved / "config.json").is_file():
            note = f"training is done ({saved}); only the evaluation is left"
            return Resumption(saved=saved, notes=(note,)), recipe.output_dir, status
    for folder in checkpoints.list_checkpoints(recipe.output_dir):
        if fault := checkpoints.why_incomplete(folder) or damages.get(folder.name):
            notes.append(f"{folder.name} is skipped: {fault}")
            continue
        resumption = Resumption(
            folder, notes=(*notes, _continues_from(folder)), extends_finished=status["status"] == "done"
        )
        return resumption, folder, checkpoints.read_marker(folder)
    if more and status["status"] in ("done", "trained"):
        notes.append(
            f"the finished run in {recipe.output_dir} kept no checkpoint (save_strategy): this one begins at step 0. "
            "To train its model further instead, merge it (scripts/export.py RUN --to merged --out FOLDER) and set "
            "model_name_or_path to that folder"
        )
        return Resumption(notes=tuple(notes)), None, {}
    notes.append(f"the earlier run in {recipe.output_dir} left no complete checkpoint: this one begins at step 0")
    return Resumption(notes=tuple(notes)), None, {}


def agree(resumption: Resumption, processes: int) -> Resumption:
    """Check that all processes begin at the same place. Collective, with more than one process.

    Raises:
        InputError: of kind "processes-disagree", on all of them: machines see different folders.
    """
    if processes == 1:
        return resumption
    from accelerate.utils import gather_object

    if resumption.checkpoint is not None:
        start = resumption.checkpoint.name
    else:
        start = "the evaluation" if resumption.saved else "step 0"
    starts = gather_object([start])
    if len(set(starts)) > 1:
        listed = "; ".join(f"process {process}: {start}" for process, start in enumerate(starts))
        raise InputError(
            f"The processes would begin at different places ({listed}). Set output_dir to a folder that all machines "
            "share, or set resume_from_checkpoint: never.",
            kind="processes-disagree",
            key="output_dir",
        )
    return resumption


def _continues_from(folder: Path) -> str:
    return f"continues from {folder}, step {checkpoints.step_of(folder)}"


def _check_identity(identity: Identity, folder: Path, content: Mapping[str, Any]) -> list[str]:
    """Refuse a checkpoint of another run; `content` is its marker's, or run.json's. Return what else has changed."""
    directory.check_format(content.get("format", 1), folder)
    try:
        earlier = Identity(**content["identity"])
    except (KeyError, TypeError):
        raise InputError(
            f"{folder} can't be continued: its `identity` is missing or damaged. Start again with "
            "--resume_from_checkpoint never. The old run is renamed, not overwritten.",
            kind="checkpoint-mismatch",
            key="identity",
            path=folder,
        ) from None
    if differences := identity.differences(earlier):
        more = [f"and {len(differences) - MAX_DIFFERENCES} more"] if len(differences) > MAX_DIFFERENCES else []
        listed = "\n".join(f"  {line}" for line in [*differences[:MAX_DIFFERENCES], *more])
        raise InputError(
            f"{folder} can't be continued: it belongs to a different run:\n{listed}\n"
            "Undo these changes, or start again with --resume_from_checkpoint never (the old run is renamed, not "
            "overwritten) or with another --output_dir.",
            kind="checkpoint-mismatch",
            path=folder,
        )
    notes = []
    if longer := more_training(identity.recipe, earlier.recipe):
        notes.append(f"{longer}: from here on the learning rate follows the schedule of the longer run, so it may jump")
    if identity.golds != earlier.golds:
        notes.append("columns of training rows, such as golds or tests, have changed: from here on the new ones count")
    return notes
