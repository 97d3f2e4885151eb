"""Publish weights: write their card, list and scan the files, say what will happen, and push."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr import console
from rlvr.errors import InputError
from rlvr.formatting import byte_count
from rlvr.publishing import hub
from rlvr.publishing.artifact import Artifact, find_artifact
from rlvr.publishing.curves_image import draw_curves
from rlvr.publishing.model_card import IMAGE, model_card, published_recipe
from rlvr.publishing.settings import check_id
from rlvr.publishing.upload import Upload, UploadFile, collect

CARD = "README.md"
_RECORDS = ("evaluation.json", "result.json")  # of the run, as evidence beside the card


@dataclass(frozen=True)
class Publication:
    """What would be published, and its card."""

    artifact: Artifact
    upload: Upload
    card: str

    def describe(self) -> str:
        """The files with their sizes, and what is left out."""
        sizes = [(file.name, byte_count(file.size)) for file in self.upload.files]
        width = max(len(name) for name, _ in sizes)
        lines = [f"  {name:<{width}}  {size:>9}" for name, size in sizes]
        lines.append(f"  {'in all':<{width}}  {byte_count(self.upload.size):>9}")
        lines += [f"  left out: {name}: {reason}" for name, reason in self.upload.left_out.items()]
        return "\n".join(lines)

    def check(self) -> None:
        """Refuse what must not be uploaded.

        Raises:
            InputError: with all problems.
        """
        if self.upload.problems:
            raise InputError(problems=self.upload.problems)


def prepare(artifact: Artifact, repo: str) -> Publication:
    """Write the card of an artifact, and list and scan all files. Nothing is sent.

    Raises:
        InputError: of kind "invalid-repository".
    """
    check_id(repo)
    run, folder = artifact.run, artifact.folder
    image = draw_curves(run)
    card = model_card(
        run, artifact.kind, repo, base=artifact.base, image=IMAGE if image else None, export=artifact.export
    )
    own = [UploadFile(CARD, card.encode("utf-8", "replace"))]
    own += [UploadFile(IMAGE, image)] if image else []
    own += [UploadFile("recipe.yaml", published_recipe(run).encode())] if run.recipe_text else []
    own += [UploadFile(name, run.folder / name) for name in _RECORDS if (run.folder / name).is_file()]
    private = [path for one in (run.folder, folder) for path in (one, one.resolve())]
    return Publication(artifact, collect(folder, own, private), card)


def publish(publication: Publication, repo: str, *, private: bool | None) -> str:
    """Say what will happen, and push; return the address of the commit.

    Raises:
        InputError: it must not be uploaded, or the upload failed. Nothing of the repository's content changed then.
    """
    publication.check()
    repository = hub.look_up(repo, private=private)
    console.info(repository.describe(publication.upload.files))
    console.info(publication.describe())
    what = f"Publishing {repository.id}"
    with console.SlowStep(what):
        return hub.push(repository, publication.upload.files, f"Publish {publication.artifact.run.name}")


def publish_run(run_dir: Path, model_folder: Path, settings: Mapping[str, Any]) -> int:
    """Push the model of a finished run to the hub, as its recipe says; return the exit code."""
    repo, private = settings["hub_model_id"], settings.get("hub_private_repo")
    words = ["python", "scripts/publish.py", str(run_dir), "--repo", repo, *(["--private"] if private else [])]
    later = f"The run is done and saved: {model_folder}. To publish it later: {shlex.join(words)}"
    try:
        address = publish(prepare(find_artifact(run_dir), repo), repo, private=private)
    except InputError as error:
        console.error(f"{error}\n  {later}")
        return 1
    except KeyboardInterrupt:
        console.error(f"\n  Publishing was stopped. {later}")
        return 130
    console.info(f"  published {address}")
    return 0
