"""Plain values as JSON: how arguments go into a program's process and results come out of it.

Nothing is executed when a text is read back, whoever wrote it, and what is read back has exact builtin types. Beyond
JSON's own types there are tuples, sets, bytes, complex numbers, ranges, big integers, dictionaries with any plain key,
and the standard library's fractions, decimals, dates and deques; what is none of these arrives as `Foreign`, which
equals nothing.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

_SMALL = 1 << 63  # beyond, Python's limit on the digits of integers in text would be met
_DEEPEST = 200
_MOST_OF_A_HASH = 64
_CLASSES = {
    "Fraction": "fractions", "Decimal": "decimal", "deque": "collections", "date": "datetime", "datetime": "datetime",
    "timedelta": "datetime",
}  # fmt: skip
_LIBRARY = frozenset(_CLASSES.values())


class Foreign:
    """Stands for a value that is not plain data; equal to nothing, itself included."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<{self.kind}>"

    def __eq__(self, other: object) -> bool:
        return False


def encode(value: object, export: Callable[[object], object] | None = None) -> str:
    """The JSON text of a value.

    Subclasses are written as the builtin type that they extend, numbers and arrays of numpy as Python's.

    Args:
        export: gives for anything that is not plain data something that JSON can carry, from which `decode` will make
            a stand-in. Without it such a thing arrives as `Foreign`.
    """
    return json.dumps(_plain(value, 0, export), separators=(",", ":"))


def decode(text: str, stand_in: Callable[[object], object] | None = None) -> object:
    """The value of a text that `encode` wrote.

    Raises:
        ValueError: it is not such a text.
    """
    try:
        return _value(json.loads(text), stand_in)
    except (RecursionError, TypeError, AttributeError, KeyError, ArithmeticError) as error:
        raise ValueError(f"not an encoded value ({type(error).__name__})") from error


def _plain(value: object, depth: int, export: Callable[[object], object] | None) -> object:
    if depth > _DEEPEST:
        return {"foreign": "a value nested too deeply"}
    kind = type(value)
    if kind.__module__ == "numpy":
        value = value.tolist() if kind.__name__ == "ndarray" else value.item()  # type: ignore[attr-defined]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int(value)
        return number if -_SMALL < number < _SMALL else {"int": hex(number)}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    deeper = depth + 1
    if isinstance(value, list):
        return [_plain(item, deeper, export) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_plain(item, deeper, export) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_plain(key, deeper, export), _plain(item, deeper, export)] for key, item in value.items()]}
    if isinstance(value, (set, frozenset)):
        name = "set" if isinstance(value, set) else "frozenset"
        return {name: [_plain(item, deeper, export) for item in value]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if kind.__module__ in _LIBRARY:
        library = _from_library(value, kind, deeper, export)
        if library is not None:
            return library
    return {"foreign": kind.__name__} if export is None else {"stand_in": export(value)}


def _from_library(value: Any, kind: type, depth: int, export: Callable[[object], object] | None) -> object:
    """The standard library's classes of values; None for its others."""
    if kind.__name__ == "Fraction" and max(abs(value.numerator), value.denominator) < _SMALL:
        return {"Fraction": [value.numerator, value.denominator]}
    if kind.__name__ == "Decimal":
        return {"Decimal": str(value)}
    if kind.__name__ == "deque":
        return {"deque": [_plain(item, depth, export) for item in value]}
    if kind.__name__ in ("date", "datetime") and getattr(value, "tzinfo", None) is None:
        return {kind.__name__: value.isoformat()}
    if kind.__name__ == "timedelta":
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    return None


def _to_library(name: str, content: Any, stand_in: Callable[[object], object] | None) -> object:
    kind = getattr(importlib.import_module(_CLASSES[name]), name)
    if name in ("date", "datetime"):
        return kind.fromisoformat(content)
    if name == "deque":
        return kind([_value(item, stand_in) for item in content])
    if name == "Decimal":
        return kind(str(content)[:1000])
    if name == "Fraction" and max(map(abs, content)) >= _SMALL:
        raise ValueError("a fraction of large numbers")
    return kind(*content)


def _value(data: object, stand_in: Callable[[object], object] | None) -> object:
    if isinstance(data, list):
        return [_value(item, stand_in) for item in data]
    if not isinstance(data, dict):
        return data
    ((name, content),) = data.items()
    if name == "dict":
        keys = _spread([_value(key, stand_in) for key, _ in content])
        return {key: _value(item, stand_in) for key, (_, item) in zip(keys, content, strict=True)}
    if name == "tuple":
        return tuple(_value(item, stand_in) for item in content)
    if name in ("set", "frozenset"):
        items = _spread([_value(item, stand_in) for item in content])
        return set(items) if name == "set" else frozenset(items)
    if name == "int":
        return int(content, 16)
    if name == "bytes":
        return bytes.fromhex(content)
    if name == "complex":
        return complex(*content)
    if name == "range":
        return range(*content)
    if name in _CLASSES:
        return _to_library(name, content, stand_in)
    if name == "foreign":
        return Foreign(str(content)[:100])
    if name == "stand_in" and stand_in is not None:
        return stand_in(content)
    raise ValueError(f"not an encoded value: {str(name)[:40]!r}")


def _spread(items: list[object]) -> list[object]:
    """Items for a table, unless they were made to have one hash: each would be compared with all of the others.

    Raises:
        ValueError: they were.
    """
    hashes: dict[str, int] = {}
    for item in items:
        # Their texts' hashes nobody can choose; of how many items each hash is.
        text = str(hash(item))
        hashes[text] = hashes.get(text, 0) + 1
    if hashes and max(hashes.values()) > _MOST_OF_A_HASH:
        raise ValueError("a set or dictionary whose items have the same hash")
    return items
