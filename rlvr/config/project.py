"""Find the project's own files, in a checkout and in an installed wheel.

A checkout has rewards/ and tasks/ at its top. A wheel installs `rlvr` alone and carries both folders inside it
(setup.py), so that `math_correctness` names the same file on a Ray node or a reward server that has no checkout.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent  # of a checkout; the folder of all installed packages for a wheel


def is_checkout() -> bool:
    return (ROOT / "run_grpo.py").is_file()


def roots() -> list[Path]:
    """The folders that relative names are looked up in: the working directory first, then the project's own."""
    own = ROOT if is_checkout() else PACKAGE / "plugins"
    return list(dict.fromkeys([Path.cwd(), own]))
