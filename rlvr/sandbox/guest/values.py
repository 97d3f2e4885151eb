"""Encode plain values as JSON: the arguments that go into a program's process and the results that come out.

Decoding executes nothing, even of a hostile text, and returns exact builtin types. Beyond JSON's own types: tuples,
sets, bytes, complex numbers, ranges, big integers, dictionaries with any plain key, and the standard library's
fractions, decimals, dates and deques. Anything else arrives as `Foreign`, which equals nothing.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

_SMALL = 1 << 63  # larger integers are written in hex, since Python limits the digits of decimal integers in text
_MAX_DEPTH = 200
_MAX_EQUAL_HASHES = 64
_CLASSES = {
    "Fraction": "fractions",
    "Decimal": "decimal",
    "deque": "collections",
    "date": "datetime",
    "datetime": "datetime",
    "timedelta": "datetime",
}
_LIBRARY = frozenset(_CLASSES.values())


class Foreign:
    """Placeholder for a value that is not plain data. It equals nothing, not even itself."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<{self.kind}>"

    def __eq__(self, other: object) -> bool:
        return False


_CONTAINERS: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_DECODERS: dict[str, Callable[[Any], object]] = {
    "int": lambda digits: int(digits, 16),
    "bytes": bytes.fromhex,
    "complex": lambda parts: complex(*parts),
    "range": lambda bounds: range(*bounds),
    "foreign": lambda kind: Foreign(str(kind)[:100]),
}


def encode(value: object, export: Callable[[object], object] | None = None) -> str:
    """Return the JSON text of a value.

    Subclasses are written as the builtin type that they extend; numpy numbers and arrays as Python's.

    Args:
        export: turns a value that is not plain data into JSON data, from which `decode` makes a proxy. Without it such
            a value arrives as `Foreign`.
    """
    return json.dumps(_plain(value, 0, export), separators=(",", ":"))


def decode(text: str, make_proxy: Callable[[object], object] | None = None) -> object:
    """Return the value of a text that `encode` wrote.

    Raises:
        ValueError: it is no such text.
    """
    try:
        return _value(json.loads(text), make_proxy)
    except (RecursionError, TypeError, AttributeError, KeyError, ArithmeticError) as error:
        raise ValueError(f"not an encoded value ({type(error).__name__})") from error


def _plain(value: object, depth: int, export: Callable[[object], object] | None) -> object:
    if depth > _MAX_DEPTH:
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
    if isinstance(value, dict):
        return {"dict": [[_plain(key, deeper, export), _plain(item, deeper, export)] for key, item in value.items()]}
    for name, container in _CONTAINERS.items():
        if isinstance(value, container):
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
    return {"foreign": kind.__name__} if export is None else {"proxy": export(value)}


def _from_library(value: Any, kind: type, depth: int, export: Callable[[object], object] | None) -> object:
    """Encode a value of a class in `_CLASSES`; return None for other classes."""
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


def _to_library(name: str, content: Any, make_proxy: Callable[[object], object] | None) -> object:
    kind = getattr(importlib.import_module(_CLASSES[name]), name)
    if name in ("date", "datetime"):
        return kind.fromisoformat(content)
    if name == "deque":
        return kind([_value(item, make_proxy) for item in content])
    if name == "Decimal":
        decimal = kind(str(content)[:1000])
        if decimal.is_snan():
            raise ValueError("a signaling NaN, which raises an exception when it is compared")
        return decimal
    if name == "Fraction" and max(map(abs, content)) >= _SMALL:
        raise ValueError("a fraction of large numbers")
    return kind(*content)


def _value(data: object, make_proxy: Callable[[object], object] | None) -> object:
    if isinstance(data, list):
        return [_value(item, make_proxy) for item in data]
    if not isinstance(data, dict):
        return data
    ((name, content),) = data.items()
    if name == "dict":
        keys = _require_spread_hashes([_value(key, make_proxy) for key, _ in content])
        return {key: _value(item, make_proxy) for key, (_, item) in zip(keys, content, strict=True)}
    if name in _CONTAINERS:
        items = [_value(item, make_proxy) for item in content]
        return _CONTAINERS[name](items if name == "tuple" else _require_spread_hashes(items))
    if name in _DECODERS:
        return _DECODERS[name](content)
    if name in _CLASSES:
        return _to_library(name, content, make_proxy)
    if name == "proxy" and make_proxy is not None:
        return make_proxy(content)
    raise ValueError(f"not an encoded value: {str(name)[:40]!r}")


def _require_spread_hashes(items: list[object]) -> list[object]:
    """Return the items if their hashes are spread. Items with one hash make a set or dictionary quadratic.

    Raises:
        ValueError: too many items have the same hash.
    """
    hashes: dict[str, int] = {}
    for item in items:
        # Counted by text: hashes of text are randomised, so this table itself stays fast.
        text = str(hash(item))
        hashes[text] = hashes.get(text, 0) + 1
    if hashes and max(hashes.values()) > _MAX_EQUAL_HASHES:
        raise ValueError("a set or dictionary whose items have the same hash")
    return items
