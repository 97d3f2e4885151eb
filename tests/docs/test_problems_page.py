"""docs/reference/problems.md lists every kind of problem that the recipe and the checks report."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# Of InputError, the kind is a keyword.
KIND_POSITION = {"Problem": 1, "problem": 1, "remarks_of": 1, "ValueFault": 0, "_model_error": 0, "_problem": 2}


CHECKED = (
    "errors",
    "config/*",
    "preflight/*",
    "environments/*",
    "modeling/loading",
    "export/settings",
    "training/launch",
    "training/trl_config",
    "tracking/trackers",
    "artifacts/resumption",
    "artifacts/run_lock",
    "scoring/backends/base",
    "scoring/backends/*_backend",
)


def written_kinds() -> Iterator[str]:
    """The kinds that are written as arguments in the modules that a check calls."""
    for path in (path for pattern in CHECKED for path in (REPOSITORY / "rlvr").glob(f"{pattern}.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") == "CallResult":  # of another kind
                continue
            position = KIND_POSITION.get(getattr(node.func, "id", getattr(node.func, "attr", "")))
            arguments = node.args[position : position + 1] if position is not None else []
            for argument in [*arguments, *(word.value for word in node.keywords if word.arg == "kind")]:
                if isinstance(argument, ast.Constant):
                    yield argument.value


def test_the_page_has_exactly_the_kinds_of_the_code() -> None:
    page = (REPOSITORY / "docs" / "reference" / "problems.md").read_text(encoding="utf-8")
    listed, written = set(re.findall(r"^\| `(.*?)`", page, re.MULTILINE)), set(written_kinds())
    assert listed == written, (listed - written, written - listed)
