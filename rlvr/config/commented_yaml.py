"""YAML with comments: read those at the ends of lines, and write the sections of a recipe with comments."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

_COLUMN = 40  # of comments behind values
_WIDTH = 120


def read_commented(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the top-level values as they are written (`1.84e-4`), and the comments at the ends of their lines."""
    loaded = YAML().load(path.read_text(encoding="utf-8"))
    behind = {key: tokens[2].value.partition("\n")[0] for key, tokens in loaded.ca.items.items() if tokens[2]}
    comments = {str(key): text.strip(" #") for key, text in behind.items() if text.strip(" #")}
    return {str(key): value for key, value in loaded.items()}, comments


def heading(title: str) -> str:
    """A line that begins a section."""
    return f"# ── {title} ".ljust(_WIDTH, "─") + "\n"


def section_text(title: str, values: Mapping[str, Any], comments: Mapping[str, Any] | None = None) -> str:
    """Write keys under a heading. A list of mappings gets a line for each key, any other list one line.

    Args:
        comments: by key: text behind the value; for a list, a mapping of numbers of its items to text above them.
    """
    section = CommentedMap({key: _block(value) for key, value in values.items()})
    for key, text in (comments or {}).items():
        if key in section and isinstance(text, Mapping):
            for number, above in text.items():
                lines = "\n".join(textwrap.fill(line, _WIDTH - 4) for line in above.splitlines())
                section[key].yaml_set_comment_before_after_key(number, before=lines, indent=2)
        elif key in section:
            section.yaml_add_eol_comment(text, key, column=_COLUMN)
    yaml = YAML()
    yaml.width = 10**6
    yaml.indent(mapping=2, sequence=4, offset=2)
    buffer = io.StringIO()
    yaml.dump(section, buffer)
    return heading(title) + buffer.getvalue()


def _block(value: Any) -> Any:
    """A mapping, or a list of mappings, in several lines; what it contains in one."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return CommentedSeq(_block(item) for item in value)
    if isinstance(value, Mapping) and len(value) > 1:
        return CommentedMap({key: _inline(item) for key, item in value.items()})
    return _inline(value)


def _inline(value: Any) -> Any:
    """Lists and mappings in one line, without the comments of the file that they come from."""
    if isinstance(value, list):
        sequence = CommentedSeq(_inline(item) for item in value)
        sequence.fa.set_flow_style()
        return sequence
    if isinstance(value, Mapping):
        mapping = CommentedMap({key: _inline(item) for key, item in value.items()})
        mapping.fa.set_flow_style()
        return mapping
    return value
