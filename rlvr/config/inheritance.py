"""`extends: base.yaml`: a recipe takes over the keys of another one and states only what differs.

A key of the recipe replaces the base's, and also the base's other name for the same choice (`REPLACES`). The sections
that are mappings are merged, key by key, unless they name another task or environment, which would have other options.
`rewards` and all other values are replaced as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr.config.key_location import FileLine, KeyLocation
from rlvr.config.schema import nearest
from rlvr.config.yaml_reader import read_yaml
from rlvr.errors import InputError

KEY = "extends"
_MERGED = ("task", "environment", "evaluation", "sagemaker")
# A key that is set later, by a recipe or on the command line, replaces the other key of its pair.
_PAIRS = (("task", "tasks"), ("generation_batch_size", "steps_per_generation"))
REPLACES = {**dict(_PAIRS), **{second: first for first, second in _PAIRS}}


def read_with_bases(path: Path, extended_by: Sequence[Path] = ()) -> tuple[dict[str, Any], dict[str, FileLine]]:
    """Read a recipe file and the recipes that it extends.

    Args:
        extended_by: the recipes through which this one is reached, the first one first.

    Returns:
        The content, without the key `extends`, and where each of its keys was written.

    Raises:
        InputError: a file is missing or is no YAML, or a recipe extends itself.
    """
    content, numbers = read_yaml(path)
    lines = {key: FileLine(str(path), number) for key, number in numbers.items()}
    if KEY not in content:
        return content, lines
    at = KeyLocation.of(KEY, str(path), lines)
    base = _locate(content.pop(KEY), path, at)
    del lines[KEY]
    chain = [*extended_by, path]
    if any(os.path.samefile(base, each) for each in chain):
        names = " -> ".join(str(each) for each in [*chain, base])
        raise InputError(problems=[at.problem(f"leads in a circle: {names}. Remove one of them.", "circular-extends")])
    base_content, base_lines = read_with_bases(base, chain)
    if content.get("model_name_or_path") not in (None, base_content.get("model_name_or_path")):
        _remove(base_content, base_lines, "evaluation", "reference")  # a published score of the base's model
    return _merge(base_content, base_lines, content, lines)


def _locate(named: Any, path: Path, at: KeyLocation) -> Path:
    if not isinstance(named, str) or not named:
        raise InputError(problems=[at.problem("takes one file, relative to the recipe's folder.", "wrong-type")])
    base = path.parent / Path(named).expanduser()
    if base.is_file():
        return base
    others = [file.name for file in base.parent.glob("*.yaml") if not file.samefile(path)]
    close = nearest(base.name, others)
    hint = f" Did you mean {Path(named).with_name(close[0])}?" if close else ""
    raise InputError(problems=[at.problem(f": there is no file {base}.{hint}", "recipe-not-found")])


def _merge(
    base: dict[str, Any], base_lines: dict[str, FileLine], content: dict[str, Any], lines: dict[str, FileLine]
) -> tuple[dict[str, Any], dict[str, FileLine]]:
    for key, value in content.items():
        if key in REPLACES:
            _remove(base, base_lines, REPLACES[key])
        inherited = base.get(key)
        if key in _MERGED and isinstance(inherited, dict) and isinstance(value, dict) and _is_of(inherited, value):
            for inner in value:
                _remove(base, base_lines, key, inner)
            base[key] = {**inherited, **value}
        else:
            _remove(base, base_lines, key)
            base[key] = value
    return base, {**base_lines, **lines}


def _is_of(inherited: dict[str, Any], section: dict[str, Any]) -> bool:
    """Whether both sections configure the same task or environment; sections without a name always do."""
    return section.get("name", inherited.get("name")) == inherited.get("name")


def _remove(content: dict[str, Any], lines: dict[str, FileLine], *keys: str) -> None:
    section: Any = content
    for key in keys[:-1]:
        section = section.get(key)
    if isinstance(section, dict):
        section.pop(keys[-1], None)
    dotted = ".".join(keys)
    for each in [each for each in lines if each == dotted or each.startswith(f"{dotted}.")]:
        del lines[each]
