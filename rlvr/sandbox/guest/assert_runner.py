"""Python statements that test a program, run in a process of their own: the program's is at the end of a line.

The tester's process holds the asserts and runs nothing that a model wrote. The names that the asserts take from the
program stand for it there: calling one sends the arguments over and brings plain data back. So a result is compared in
a process in which the program has no say, and an object of the program with an `__eq__` that always agrees is no plain
data and equals none.

What the program's side may ask in return is one thing: to call a function that it was handed as an argument.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from protocol import EXCHANGE, PROGRAM  # type: ignore[import-not-found]
from rpc import (  # type: ignore[import-not-found]
    Ended,
    Party,
    RemoteError,
    counterpart,
    is_known_type,
    known_type,
    words_of,
)

# What the tester notes in the exchange: all held; one did not; the program raised; the test itself is at fault.
PASSED, FAILED, RAISED, BROKEN = b"P", b"F", b"R", b"B"

# Between two objects of the program, its own methods decide. With plain data, its object is compared with nothing, and
# computing with it gives objects again: a plain number that comes of it would be the program's word alone.
_COMPARING = [f"__{name}__" for name in ("lt", "le", "gt", "ge", "eq", "ne")]
_ARITHMETIC = "add radd sub rsub mul rmul truediv rtruediv floordiv mod pow and or xor matmul"
_BINARY = [*_COMPARING, *(f"__{name}__" for name in _ARITHMETIC.split())]
_UNARY = ["__neg__", "__pos__", "__invert__", "__abs__"]
_OWN_NAMES = "len getitem setitem delitem str repr hash enter exit int float round"
_OWN = [f"__{name}__" for name in _OWN_NAMES.split()]


def examine(entry_point: str | None) -> None:
    """Runs the statements in the descriptor PROGRAM against the program at the other end, and notes how it went."""
    party = _Tester(entry_point)
    try:
        source = os.pread(PROGRAM, os.fstat(PROGRAM).st_size, 0).decode()
        tree = ast.parse(source, "test")
        namespace = party.namespace(tree)
        code = compile(tree, "test", "exec", dont_inherit=True)
    except (RemoteError, Ended) as error:
        return _conclude(RAISED, error)
    except (SyntaxError, ValueError) as error:
        return _conclude(BROKEN, error)
    try:
        exec(code, namespace)
    except AssertionError as error:
        _conclude(FAILED, error)
    except BaseException as error:
        _conclude(RAISED, error)
    else:
        _conclude(RAISED if party.ended else PASSED, party.ended)


def _conclude(note: bytes, error: BaseException | None) -> None:
    text = note + (f"{type(error).__name__}: {words_of(error)}"[:500].encode(errors="replace") if error else b"")
    os.pwrite(EXCHANGE, text, 0)


class _Tester(Party):
    def __init__(self, entry_point: str | None) -> None:
        super().__init__()
        self.entry_point = entry_point
        self.callbacks: dict[int, Callable[..., Any]] = {}
        self.exceptions: dict[str, type[BaseException]] = {}
        self.ended: Ended | None = None

    def namespace(self, tree: ast.Module) -> dict[str, Any]:
        """What the statements find under the names that they don't define themselves.

        Builtins and the standard library's modules are the tester's own, whatever the program calls by their names:
        an `abs` that is always 0 would make many a test hold. The function under test is the program's in any case.
        """
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        modules = {
            node.value.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if node.value.id in sys.stdlib_module_names
        }
        namespace: dict[str, Any] = {"__name__": "test", "__builtins__": builtins}
        for name in modules:
            namespace[name] = importlib.import_module(name)
        own = {name for name in used if name in namespace or hasattr(builtins, name)} - {self.entry_point}
        wanted = sorted(used - own)
        described = self.said(self.ask("describe", wanted))
        for name in wanted:
            if name not in described:  # and what else it may hold is nobody's business
                continue
            kind = described[name]
            if kind[0] == "exception":
                base = getattr(builtins, kind[1], Exception)
                kind_here = type(name, (base if issubclass(base, Exception) else Exception,), {})
                self.exceptions[name] = namespace[name] = kind_here
            else:
                namespace[name] = self.said(self.ask("name", name))
        return namespace

    def ask(self, *question: Any) -> Any:
        try:
            return super().ask(*question)
        except Ended as error:
            self.ended = error  # for good, even if the test catches it
            raise

    def said(self, answer: list[Any]) -> Any:
        if answer[0] == "ended":
            self.ended = Ended(str(answer[1]))
            raise self.ended
        if answer[0] == "raised":
            known = self.exceptions.get(answer[1])
            raise known(answer[2]) if known else counterpart(answer[1], answer[2])
        return answer[1]

    def answer(self, operation: str, *rest: Any) -> list[Any]:
        if operation != "callback":
            raise PermissionError("only functions that were handed over can be called")
        number, arguments, named = rest
        return ["value", self.callbacks[number](*arguments, **named)]

    async def _awaited(self, coroutine: _Thing) -> Any:
        return self.said(self.ask("await", coroutine))

    def export(self, thing: object) -> object:
        if isinstance(thing, type) and is_known_type(thing):
            return ["type", thing.__name__]
        if isinstance(thing, _Thing):
            return ["yours", object.__getattribute__(thing, "_number")]
        if callable(thing):
            self.callbacks[id(thing)] = thing
            return ["mine", id(thing)]
        raise TypeError(f"a {type(thing).__name__} cannot be handed to the program")

    def stand_in(self, content: Any) -> object:
        whose, number = content
        if whose == "type":
            return known_type(number)
        if whose == "coroutine":
            return self._awaited(_Thing(self, number))
        return self.callbacks[number] if whose == "yours" else _Thing(self, number)


class _Thing:
    """On the tester's side: an object of the program."""

    def __init__(self, party: _Tester, number: int) -> None:
        object.__setattr__(self, "_party", party)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        party = object.__getattribute__(self, "_party")
        answer = party.ask("call", self, list(arguments), named)
        result = party.said(answer)
        for given, now in zip(arguments, answer[2], strict=True):
            _overwrite(given, now)
        return result

    def __getattr__(self, name: str) -> Any:
        party = object.__getattribute__(self, "_party")
        return party.said(party.ask("attribute", self, name))

    def __setattr__(self, name: str, value: Any) -> None:
        party = object.__getattribute__(self, "_party")
        party.said(party.ask("assign", self, name, value))

    def __iter__(self) -> Any:
        party = object.__getattribute__(self, "_party")
        return party.said(party.ask("iterate", self))

    def __next__(self) -> Any:
        party = object.__getattribute__(self, "_party")
        answer = party.said(party.ask("next", self))
        if not answer:
            raise StopIteration
        return answer[0]

    def __bool__(self) -> bool:
        party = object.__getattribute__(self, "_party")
        return party.said(party.ask("truth", self)) is True

    def __contains__(self, wanted: Any) -> bool:
        return any(item is wanted or item == wanted for item in self)

    def __instancecheck__(self, instance: Any) -> bool:
        party = object.__getattribute__(self, "_party")
        return isinstance(instance, _Thing) and party.said(party.ask("isinstance", instance, self)) is True

    def __subclasscheck__(self, kind: Any) -> bool:
        party = object.__getattribute__(self, "_party")
        return isinstance(kind, _Thing) and party.said(party.ask("issubclass", kind, self)) is True


def _own(name: str) -> Callable[..., Any]:
    def method(self: _Thing, *arguments: Any) -> Any:
        party = object.__getattribute__(self, "_party")
        if name == "__exit__":
            arguments = (None, None, None)
        answer = party.ask("method", self, name, list(arguments))
        return NotImplemented if answer[0] == "not implemented" else party.said(answer)

    return method


def _unary(name: str) -> Callable[..., Any]:
    delegate = _own(name)

    def method(self: _Thing) -> Any:
        result = delegate(self)
        if not isinstance(result, _Thing):
            raise TypeError(f"{name} of the program's object gives no object")
        return result

    return method


def _binary(name: str) -> Callable[..., Any]:
    delegate = _own(name)

    def method(self: _Thing, other: Any) -> Any:
        if isinstance(other, _Thing):
            return delegate(self, other)
        if name in _COMPARING:
            return NotImplemented
        return _only_a_thing(delegate(self, other))

    return method


def _only_a_thing(result: Any) -> Any:
    """Of the program's object and plain data another object may come, but no number that the test then trusts."""
    return result if isinstance(result, _Thing) else NotImplemented


for _name in _OWN:
    setattr(_Thing, _name, _own(_name))
for _name in _UNARY:
    setattr(_Thing, _name, _unary(_name))
for _name in _BINARY:
    setattr(_Thing, _name, _binary(_name))


def _overwrite(given: Any, now: Any) -> None:
    """What the program did to an argument, done to the tester's."""
    if type(given) is not type(now) or given == now:
        return
    if isinstance(given, (list, bytearray)):
        given[:] = now
    elif isinstance(given, (dict, set)):
        given.clear()
        given.update(now)
