"""The text of a recipe: a YAML file as plain Python, with the lines of its keys; what is no YAML is told in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.config import schema
from rlvr.errors import InputError

if TYPE_CHECKING:
    from ruamel.yaml.error import MarkedYAMLError

# What ruamel.yaml calls a fault (a part of its context and problem), what a person would call it, and whether it lies
# where the thing began rather than where it was noticed.
_SAID: tuple[tuple[str, str, str, bool], ...] = (
    ("", "could not find expected ':'", "this is no `key: value`; a colon and a space go after the key", True),
    ("", "unknown escape", "a backslash in double quotes begins an escape; use single quotes", False),
    ("quoted scalar", "end of stream", "the quotation mark that opens here is never closed", True),
    ("while parsing a flow mapping", "", "the { that opens here is never closed, or a comma is missing in it", True),
    ("while parsing a flow sequence", "", "the [ that opens here is never closed, or a comma is missing in it", True),
    ("", "mapping values are not allowed", "a second colon; put the value into quotes, or begin a new line", False),
    ("", "undefined alias", "a value that begins with * stands in quotes", False),
    (
        "while parsing a block",
        "expected <block end>",
        "it is indented otherwise than what it belongs to; keys of one level begin in the same column",
        False,
    ),
    ("", "cannot start any token", "a value that begins with @, ` or % stands in quotes", False),
)


def read_text(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """The file's content as plain Python, and the line of every top-level key.

    Raises:
        InputError: there is no such file, it is no text, no YAML, or no mapping.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    text = _text(path)
    try:
        content = YAML(typ="rt").load(text)
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1
        key = text.splitlines()[line - 1].split(":")[0].strip().lstrip("- ")
        raise InputError(f"{path}, line {line}: {key} is given twice; keep one.") from None
    except MarkedYAMLError as error:
        line, words = _in_words(error, text.splitlines())
        raise InputError(f"{path}, line {line}: {words}.") from None
    except YAMLError as error:
        raise InputError(f"{path} is no text that YAML can read: {error}.") from None
    except RecursionError:
        raise InputError(f"The recipe {path} is nested too deeply to be one.") from None
    if content is None:
        raise InputError(f"The recipe {path} is empty: start from a copy of recipes/demo-arithmetic.yaml.")
    if not isinstance(content, CommentedMap):
        raise InputError(f"The recipe {path} is not a mapping: write one `key: value` a line.")
    lines_of = {str(key): content.lc.key(key)[0] + 1 for key in content}
    return _plain(content), lines_of


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"There is no recipe {path}.{_beside(path.parent, path.name)}") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder: name a recipe, a YAML file.{_beside(path)}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: this is no UTF-8 text; save the file as UTF-8.") from None
    except OSError as error:
        raise InputError(f"The recipe {path} can't be read: {error.strerror}.") from error


def _beside(folder: Path, name: str = "") -> str:
    """The recipes of a folder, those with names like this one first, as a sentence; empty where there are none."""
    there = sorted(file.name for file in folder.glob("*.yaml")) if folder.is_dir() else []
    close = schema.nearest(name, there) or there[:5]
    return f" In {folder}/ there is: {', '.join(close)}." if close else ""


def _in_words(error: MarkedYAMLError, lines: list[str]) -> tuple[int, str]:
    """Where the text is no YAML, and why, as half a sentence."""
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    if 0 < line <= len(lines) and "\t" in lines[line - 1]:
        return line, "a tab; YAML is indented with spaces only"
    for context, problem, words, where_it_began in _SAID:
        if context in (error.context or "") and problem in (error.problem or ""):
            began = error.context_mark.line + 1 if error.context_mark and where_it_began else line
            return began, words
    return line, f"not valid YAML: {error.problem or error.context}"


def _plain(value: Any) -> Any:
    """ruamel's round-trip types (which know their lines) as plain Python values."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return str(value)  # dates and the like: no recipe key takes them, so their text is what the user wrote
