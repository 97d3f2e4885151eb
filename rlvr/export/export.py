"""Export a finished run: write beside the target, measure what was written, then rename."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from transformers.utils import cached_file

from rlvr import console
from rlvr.artifacts import directory
from rlvr.artifacts.export_record import ExportRecord, Remeasurement, digest_files
from rlvr.artifacts.finished_run import FinishedRun, open_run
from rlvr.errors import InputError, writing
from rlvr.export.merged import merged_dtype, write_adapter, write_merged
from rlvr.export.quantization import OWN_TYPES, check_installed, quantize, read_quantizations
from rlvr.export.remeasure import HeldOut, open_held_out, remeasure_folder
from rlvr.modeling import loading
from rlvr.scoring.reward import metrics_of


@dataclass(frozen=True)
class Plan:
    """What to export.

    Attributes:
        kind: "merged", "gguf" or "adapter".
        quantization: types, separated by commas; of `gguf` alone.
        dtype: of the merged weights; None for that of the run.
        rows: measure only so many rows.
        allow_worse: keep an artifact that is worse than the run.
    """

    kind: str
    quantization: str | None = None
    dtype: str | None = None
    rows: int | None = None
    allow_worse: bool = False


class ExportRefused(Exception):
    """The artifact is worse than the run; `record` has the figures."""

    def __init__(self, record: ExportRecord) -> None:
        super().__init__("; ".join(_faults(record)))
        self.record = record


def export_run(run_dir: Path, out: Path, plan: Plan) -> ExportRecord:
    """Write the artifact of a run to `out`, which appears only if it was measured and is no worse than the run.

    Raises:
        InputError: as the checks say; nothing is written.
        ExportRefused: it is worse than chance allows; nothing is kept.
    """
    if out.exists():
        message = f"--out {out} exists. Name a new folder, or remove this one."
        raise InputError(message, kind="would-overwrite", key="--out", path=out)
    quantizations = read_quantizations(plan.quantization)
    if plan.quantization is not None and plan.kind != "gguf":
        message = f"--quantization is for --to gguf, not for --to {plan.kind}. Remove it."
        raise InputError(message, kind="conflicting-keys", key="--quantization")
    if plan.dtype is not None and plan.kind == "adapter":
        raise InputError("--dtype is not for --to adapter. Remove it.", kind="conflicting-keys", key="--dtype")
    if plan.kind == "gguf":
        check_installed()
    run = open_run(run_dir)
    console.error(f"{run_dir}: loading torch and transformers …")
    console.silence_loading_bars()
    dtype, reason = merged_dtype(run, plan.dtype)
    if plan.kind == "gguf":
        from rlvr.export import gguf_file

        gguf_file.check_model(run.weights if not run.is_adapter else _base_folder(run))
    console.error(f"{run.name}: weights in {dtype} ({reason}).")
    with _written_beside(out) as folder, open_held_out(run, plan.rows) as held:
        if plan.kind == "adapter":
            write_adapter(run, folder)
            # On the base as the run had it. After QLoRA also on the base as vLLM loads it, which decides nothing.
            ways = (True, False) if held.recipe.settings.get("load_in_4bit") else (True,)
            measured = [remeasure_folder(held, folder, quantised=way) for way in ways]
        elif plan.kind == "merged":
            with console.SlowStep("Merging"):
                write_merged(run, folder, dtype)
            measured = [remeasure_folder(held, folder)]
        else:
            measured = _write_gguf(run, held, folder, dtype, quantizations)
        for path in folder.iterdir():
            path.chmod(folder.stat().st_mode & 0o666)  # safetensors writes for this user alone
        record = _record(
            run, plan.kind, dtype, " + ".join(reward.label for reward in metrics_of(held.metrics)), measured, folder
        )
        if _faults(record) and not plan.allow_worse:
            raise ExportRefused(record)
        record.write(folder)
        os.rename(folder, out)
    return record


def _write_gguf(
    run: FinishedRun, held: HeldOut, folder: Path, dtype: str, quantizations: list[str]
) -> list[Remeasurement]:
    """Write one file in the dtype of the run, or one for each quantisation, and measure each."""
    from rlvr.export import gguf_file, llama_cpp

    files = {kind: folder / f"{run.name}-{kind}.gguf" for kind in quantizations or [dtype]}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        merged, whole = Path(scratch) / "merged", Path(scratch) / "whole.gguf"
        merged.mkdir()
        with console.SlowStep("Merging and converting"):
            write_merged(run, merged, dtype)
            for kind, file in files.items():
                if kind in OWN_TYPES:
                    gguf_file.write_gguf(merged, file, kind)
                    continue
                if not whole.exists():
                    gguf_file.write_gguf(merged, whole, dtype)
                quantize(whole, file, kind)
    return [llama_cpp.remeasure_gguf(held, file, kind) for kind, file in files.items()]


def _faults(record: ExportRecord) -> list[str]:
    deciding = record.measured[:1] if record.kind == "adapter" else record.measured
    return [f"{part.file} {fault}".strip() for part in deciding for fault in part.faults]


def _record(
    run: FinishedRun, kind: str, dtype: str, metric: str, measured: list[Remeasurement], folder: Path
) -> ExportRecord:
    packages = ("gguf", "xllamacpp") if kind == "gguf" else ()
    return ExportRecord(
        kind=kind,
        run=run.name,
        result=run.record.digest,
        recipe=run.record.recipe,
        recipe_digest=run.record.recipe_digest,
        train_digest=run.record.train_digest,
        held_out_digest=run.record.held_out_digest,
        base=run.base,
        dtype=dtype,
        metric=metric,
        measured=measured,
        versions=directory.versions() | {name: version(name) for name in packages},
        files=digest_files(folder),
    )


# ----------------------------------------------------------------------------------------------------------------------
# Files


@contextmanager
def _written_beside(out: Path) -> Iterator[Path]:
    """A new folder beside the target. Unless it was renamed, it is removed, with the parents that it needed."""
    new_parents = [parent for parent in out.absolute().parents if not parent.exists()]
    folder = out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}")
    with writing(out, "Name another folder.", key="--out"):
        folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # they aren't empty
            for parent in new_parents:
                parent.rmdir()


def _base_folder(run: FinishedRun) -> Path:
    """The folder of the base's configuration and tokenizer, in the hub's cache if it has an id there."""
    found = Path(loading.find_model(str(run.recipe.settings["model_name_or_path"])))
    if found.is_dir():
        return found
    return Path(str(cached_file(run.record.model, "config.json", revision=run.record.revision))).parent
