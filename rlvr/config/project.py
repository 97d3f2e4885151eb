"""Find the project's own files, in a checkout and in an installed wheel.

A checkout has rewards/, tasks/ and environments/ at its top. A wheel installs `rlvr` alone and carries them inside it
(setup.py), so that `math_correctness` names the same file on a Ray node or a reward server that has no checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent  # of a checkout; the folder of all installed packages for a wheel


def locate_plugin(folder: str, name: str, recipe: Path) -> str:
    """Return the name of a reward, task or environment, as a path if the file is found with the recipe alone.

    A file is looked up in the working directory, beside the recipe, in the folder above, and in the project.

    Args:
        folder: "rewards", "tasks" or "environments", where the file of a bare name is.
    """
    file, colon, function = name.partition(":")
    is_path = file.endswith(".py")
    if not is_path and ("/" in name or "." in name):
        return name  # a dotted import path
    relative = Path(file).expanduser() if is_path else Path(folder, f"{name}.py")
    beside = recipe.absolute().parent
    usual = roots()[:1] if is_path else roots()  # where such a name is looked up without a recipe
    for root in dict.fromkeys((Path.cwd(), beside, beside.parent, *roots())):
        if os.path.isfile(root / relative):  # Path.is_file raises for a name that is too long
            path = os.path.normpath(found := root / relative)  # without "..", which a link may give another meaning
            if not os.path.isfile(path) or not os.path.samefile(path, found):
                path = str(found)
            return name if root in usual else f"{path}{colon}{function}"
    return name


def roots() -> list[Path]:
    """The folders that relative names are looked up in: the working directory first, then the project's own."""
    own = ROOT if (ROOT / "run_grpo.py").is_file() else PACKAGE / "plugins"
    return list(dict.fromkeys([Path.cwd(), own]))
