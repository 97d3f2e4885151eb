"""Read a recipe file: YAML as plain Python, with the lines of its keys. Syntax errors are explained in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.tag import Tag

from rlvr.config import project, schema
from rlvr.errors import InputError

_MAX_VALUES = 20_000  # with each alias (*name) written out; a few lines of aliases can stand for billions
# How ruamel.yaml names an error (a part of its context and of its problem), our explanation, and whether the error is
# where the construct began rather than where it was noticed.
_EXPLANATIONS: tuple[tuple[str, str, str, bool], ...] = (
    ("", "could not find expected ':'", "this is no `key: value`. Put a colon and a space behind the key", True),
    ("", "unknown escape", "a backslash in double quotes begins an escape. Use single quotes", False),
    ("quoted scalar", "end of stream", "the quotation mark that opens here is never closed", True),
    ("while parsing a flow mapping", "", "the { that opens here is never closed, or a comma is missing in it", True),
    ("while parsing a flow sequence", "", "the [ that opens here is never closed, or a comma is missing in it", True),
    ("", "mapping values are not allowed", "a second colon. Put the value into quotes, or begin a new line", False),
    ("", "undefined alias", "a value that begins with * must be in quotes", False),
    ("while parsing a block", "but found ','", "a comma behind the value. Put a list into brackets: [a, b]", False),
    (
        "while parsing a block",
        "expected <block end>",
        "the indentation fits no level. Keys of one level begin in the same column, list entries with a dash",
        False,
    ),
    ("", "complex key", "a key is one word. For << write the keys out, or take them from a recipe with extends", False),
    ("", "could not determine a constructor", "a tag (!name) in front of the value. Remove it, or use quotes", False),
    ("", "cannot start any token", "a value that begins with @, ` or % must be in quotes", False),
)


def read_yaml(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the file's content as plain Python, and the line of every key (see `rlvr.config.key_location.Lines`).

    Raises:
        InputError: there is no such file, it is no text, no YAML, or no mapping.
    """
    text = _read_text(path)
    if text.startswith("#!") or path.suffix == ".sh":
        raise _invalid(path, "this is a shell script. docs/migrate.md maps the flags of OpenRLHF and veRL to keys")
    try:
        content, lines = parse_yaml(text)
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1
        key = str(error.problem).split('"')[1]
        raise InputError(
            f"{path}, line {line}: {key} is given twice. Keep one.", kind="duplicate-key", key=key, path=path, line=line
        ) from None
    except MarkedYAMLError as error:
        line, explanation = _explain(error, text.splitlines())
        raise _invalid(path, explanation, line) from None
    except YAMLError as error:
        raise _invalid(path, f"this is not YAML text: {error}") from None
    if content is None:
        raise _invalid(path, "the recipe is empty. Start from a copy of recipes/demo-arithmetic.yaml")
    if not isinstance(content, dict):
        raise _invalid(path, "the recipe is not a mapping. Write one `key: value` per line")
    return content, lines


def parse_yaml(text: str) -> tuple[Any, dict[str, int]]:
    """Return the content of a YAML text as plain Python, and the line of every key.

    Raises:
        YAMLError: it is no YAML, it holds a merge key (<<) or an unknown tag, or its aliases make it too large.
    """
    reader = YAML(typ="safe", pure=True)
    try:
        node = reader.compose(text)
        lines = list(islice(_lines(node, ""), _MAX_VALUES + 1))
        if len(lines) > _MAX_VALUES:
            raise YAMLError(f"more than {_MAX_VALUES:,} values, with each alias (*name) written out")
        return None if node is None else _plain(reader.constructor.construct_document(node)), dict(lines)
    except RecursionError:
        raise YAMLError("it is nested too deeply") from None
    except ValueError as error:  # 2026-13-01, !!int x, a number of 5,000 digits
        raise YAMLError(f"a value can't be read: {error}") from None


def _lines(node: Node | None, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield the dotted keys inside a value, with their lines. The values << and = become texts."""
    if isinstance(node, ScalarNode) and node.tag in ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"):
        node.ctag = Tag(suffix="tag:yaml.org,2002:str")
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge" or not isinstance(key, ScalarNode):
                raise MarkedYAMLError(problem="merge or complex key", problem_mark=key.start_mark)
            yield f"{prefix}{key.value}", key.start_mark.line + 1
            yield from _lines(value, f"{prefix}{key.value}.")
    elif isinstance(node, SequenceNode):
        for number, item in enumerate(node.value, start=1):
            for name in (number, *_names(item, prefix)):
                yield f"{prefix}{name}", item.start_mark.line + 1
                yield from _lines(item, f"{prefix}{name}.")


def _names(item: Node, prefix: str) -> list[str]:
    """What an entry of a list is called, besides its number."""
    if isinstance(item, MappingNode):
        named = [value for key, value in item.value if key.value == "name"]
        return [value.value for value in named if isinstance(value, ScalarNode) and value.value]
    return [item.value] if prefix == "rewards." and isinstance(item, ScalarNode) else []


def _invalid(path: Path, explanation: str, line: int | None = None) -> InputError:
    where = f"{path}, line {line}" if line is not None else str(path)
    return InputError(f"{where}: {explanation}.", kind="invalid-yaml", path=path, line=line)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise _invalid(path, "this is not UTF-8 text. Save the file as UTF-8", line) from None
    except FileNotFoundError:
        others = _recipes_in(path.parent, path.name) or _recipes_in(project.ROOT / "recipes", path.name)
        message = f"There is no recipe {path.absolute()}.{others}"
    except IsADirectoryError:
        message = f"{path} is a folder. Name a recipe, a YAML file.{_recipes_in(path)}"
    except OSError as error:
        message = f"The recipe {path} can't be read: {error.strerror}."
    raise InputError(message, kind="recipe-not-found", path=path)


def _recipes_in(folder: Path, name: str = "") -> str:
    """A sentence with the recipes of a folder whose names are like `name`, else with all; empty if there are none."""
    recipes = sorted(file.name for file in folder.glob("*.yaml")) if folder.is_dir() else []
    if close := schema.nearest(name.removesuffix(".yaml") + ".yaml", recipes, count=3):
        return f" Did you mean {' or '.join(str(folder.absolute() / one) for one in close)}?"
    return f" Recipes in {folder.absolute()}/: {', '.join(recipes)}." if recipes else ""


def _explain(error: MarkedYAMLError, lines: list[str]) -> tuple[int, str]:
    """The line of a syntax error, and its explanation."""
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    if 0 < line <= len(lines) and "\t" in lines[line - 1]:
        return line, "a tab. YAML is indented with spaces only"
    for context, problem, explanation, is_at_start in _EXPLANATIONS:
        if context in (error.context or "") and problem in (error.problem or ""):
            return error.context_mark.line + 1 if error.context_mark and is_at_start else line, explanation
    return line, f"not valid YAML: {error.problem or error.context}"


def _plain(value: Any) -> Any:
    """Make keys texts, and also dates and the like: no recipe key takes them, so the text is what the user wrote."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
