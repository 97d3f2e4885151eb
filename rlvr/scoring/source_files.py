"""Find the source files that a reward's or an environment's file rests on, to notice that one of them has changed."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from rlvr.config.project import PACKAGE
from rlvr.public_names import MODULES
from rlvr.scoring.reward import Reward, file_of

VERIFIERS = f"{PACKAGE.name}.verifiers"
_INSTALLED = tuple(
    Path(path).resolve()
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def digest_of(reward: Reward) -> str:
    """Hash of the file that defines a reward, to compare machines; "" without a file."""
    return digest_of_file(file_of(reward.function))


def digest_of_file(file: str | None) -> str:
    """Hash of a file; "" without one."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file is not None else ""
    except OSError:
        return ""


def imported_digests(files: Iterable[str]) -> dict[str, str]:
    """Hash the modules that files import, and those that these import, by name.

    Installed packages are left out. Of this project's modules, the verifiers are listed: verdicts depend on them.
    `rlvr` is one entry for all modules. Imports by other means than a statement are not found.
    """
    own = {Path(file).resolve() for file in files}
    found: dict[str, Path] = {}
    queue = [("", path) for path in own]
    while queue:
        package, path = queue.pop()
        for name in _import_names(_content_of(path), package):
            source = None if name in found else _source_of(name)
            if source is not None and source not in own:
                found[name] = source
                queue.append((name if source.name == "__init__.py" else name.rpartition(".")[0], source))
    return {PACKAGE.name: project_digest(), **{name: digest_of_file(str(path)) for name, path in found.items()}}


def project_digest() -> str:
    """Hash the modules of `rlvr`."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(PACKAGE)} {digest_of_file(str(path))}\n".encode())
    return digest.hexdigest()


def _content_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # gone
        return b""


@cache
def _import_names(source: bytes, package: str) -> list[str]:
    """The modules that a file's import statements may mean, wherever they stand; `package` is the file's own."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # an extension module
        return []
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
            if base == PACKAGE.name:  # `from rlvr import check_answer`
                names += [MODULES[alias.name] for alias in node.names if alias.name in MODULES]
    parts = [name.split(".") for name in names]
    return [".".join(one[:end]) for one in parts for end in range(1, len(one) + 1)]


@cache
def _source_of(name: str) -> Path | None:
    """The source of a module that is not installed; None if it is, if there is none, or if `name` is no module."""
    parent = name.rpartition(".")[0]
    if name == PACKAGE.name or (parent and name != VERIFIERS and not _is_package(parent)):
        return None  # a look at a submodule imports its parent: no installed package, and no module that is none
    try:
        spec = importlib.util.find_spec(name)
    except Exception:  # the import of a parent may raise anything; then the reward has failed before
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    source = Path(spec.origin).resolve()
    return None if any(source.is_relative_to(folder) for folder in _INSTALLED) else source


def _is_package(name: str) -> bool:
    source = _source_of(name)
    return source is not None and source.name == "__init__.py"
