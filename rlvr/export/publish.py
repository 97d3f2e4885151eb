"""Publish weights: write their card, list and scan the files, say what will happen, and push."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr import console
from rlvr.errors import InputError, Problem
from rlvr.export import hub
from rlvr.export.artifact import find_artifact
from rlvr.export.curves_image import draw_curves
from rlvr.export.model_card import IMAGE, model_card, published_recipe
from rlvr.export.settings import check_id
from rlvr.export.upload import Files, is_part_of_model, scan, size
from rlvr.formatting import byte_count

_RECORDS = ("evaluation.json", "result.json")  # of the run, as evidence beside the card


@dataclass(frozen=True)
class Publication:
    """What would be published: the files, the names of those that stay here, the card, and what forbids it."""

    run: str
    files: Files
    left_out: tuple[str, ...]
    card: str
    problems: tuple[Problem, ...]

    def describe(self) -> str:
        """The files with their sizes, and what is left out."""
        sizes = {name: size(source) for name, source in self.files.items()}
        rows = [[f"  {name}", byte_count(each)] for name, each in [*sizes.items(), ("in all", sum(sizes.values()))]]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {each:>9}" for name, each in rows]
        return "\n".join([*lines, f"  left out: {', '.join(self.left_out) or 'nothing'}"])

    def check(self) -> None:
        """Refuse what must not be uploaded.

        Raises:
            InputError: with all problems.
        """
        if self.problems:
            raise InputError(problems=self.problems)


def prepare(folder: Path, repo: str, run_dir: Path | None = None) -> Publication:
    """Write the card of a run or of an export, and list and scan all files. Nothing is sent.

    Raises:
        InputError: there is nothing to publish, or of kind "invalid-repository".
    """
    artifact = find_artifact(folder, run_dir)
    check_id(repo)
    run, folder = artifact.run, artifact.folder
    image = draw_curves(run)
    card = model_card(
        run, artifact.kind, repo, base=artifact.base, image=IMAGE if image else None, export=artifact.export
    )
    files: dict[str, Path | bytes] = {path.name: path for path in sorted(folder.iterdir()) if is_part_of_model(path)}
    files |= {name: run.folder / name for name in _RECORDS if (run.folder / name).is_file()}
    files["README.md"] = card.encode("utf-8", "replace")
    if image:
        files[IMAGE] = image
    if run.recipe_text:
        files["recipe.yaml"] = published_recipe(run).encode()
    left_out = tuple(sorted(path.name for path in folder.iterdir() if path.name not in files))
    private = [path for one in (run.folder, folder) for path in (one, one.resolve())]
    return Publication(run.name, files, left_out, card, tuple(scan(files, private)))


def publish(publication: Publication, repo: str, *, private: bool | None) -> str:
    """Say what will happen, and push; return the address of the commit.

    Raises:
        InputError: it must not be uploaded, or the upload failed. Nothing of the repository's content changed then.
    """
    publication.check()
    console.info(publication.describe())
    return hub.push(repo, publication.files, f"Publish {publication.run}", private=private)


def publish_run(run_dir: Path, model_folder: Path, settings: Mapping[str, Any]) -> int:
    """Push the model of a finished run to the hub, as its recipe says; return the exit code."""
    repo, private = settings["hub_model_id"], settings.get("hub_private_repo")
    words = ["python", "scripts/publish.py", str(run_dir), "--repo", repo, *(["--private"] if private else [])]
    later = f"The run is done and saved: {model_folder}. To publish it later: {shlex.join(words)}"
    try:
        address = publish(prepare(run_dir, repo), repo, private=private)
    except InputError as error:
        console.error(f"{error}\n  {later}")
        return 1
    except KeyboardInterrupt:
        console.error(f"\n  Publishing was stopped. {later}")
        return 130
    console.info(f"  published {address}")
    return 0
