"""How a run was started: its command, the commit of the project, and a digest of the keys in its recipe file."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rlvr.artifacts.directory import content_digest
from rlvr.artifacts.result_record import ResultRecord, digested_keys
from rlvr.config import project
from rlvr.config.recipe import Recipe
from rlvr.config.recipe_text import RecipeText
from rlvr.errors import InputError
from rlvr.formatting import SECRET_KEY

_ADDRESS = re.compile(r"\w+://[^\s,'\"\]}]+")
_PATH = re.compile(r"(?<![^\s=:\[{,'\"])(?:~|\.\.?)?/[^\s,'\"\]}]*")
_SECRET = re.compile(rf"(?i)({SECRET_KEY}['\"]?(?:\s*[:=]\s*|\s+))(?:'[^']*'|[^\s,\]}}]+)")


def find_origin(recipe: Recipe) -> dict[str, str | None]:
    """Return the fields `command`, `commit` and `recipe_file_digest` of a record, as a run starts."""
    # A run directory's recipe.yaml has every default: its keys are not those that a person wrote.
    is_written = recipe.path.name != "recipe.yaml"
    return {
        "command": command(recipe.path, recipe.overrides),
        "commit": commit(project.ROOT),
        "recipe_file_digest": recipe_file_digest(recipe.path) if is_written else None,
    }


def command(recipe: Path, overrides: Sequence[str]) -> str:
    """The command that starts a run, without secrets, hosts, and the folders of paths outside the project."""
    words = ["python", "run_grpo.py", "--config", str(recipe), *overrides]
    words = [_PATH.sub(lambda path: Path(path[0]).name, _ADDRESS.sub("ADDRESS", word)) for word in words]
    return _SECRET.sub(r"\1(hidden)", shlex.join(words))


def commit(root: Path) -> str | None:
    """The commit of a checkout, with "-dirty" if a tracked file differs from it; None outside of one."""
    if not (root / ".git").exists():
        return None  # git would look for a repository in the folders above
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def recipe_file_digest(recipe: Path) -> str:
    """The digest of the keys that a recipe file and the recipes it extends state, without seeds, paths and logging."""
    return content_digest(digested_keys(RecipeText(recipe).content))


def was_changed(record: ResultRecord, recipe: Path) -> bool:
    """Whether the keys of a recipe file have changed since the record's run; False if the record has no digest."""
    try:
        return record.recipe_file_digest not in (None, recipe_file_digest(recipe))
    except InputError:
        return True
