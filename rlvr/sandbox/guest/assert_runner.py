"""Run assert statements against a program that runs in another process, at the other end of a connection.

This process holds the asserts and runs no code of the model. The names that the asserts take from the program are
proxies: calling one sends the arguments over and brings plain data back. So results are compared out of the program's
reach. An object of the program with an `__eq__` that always agrees is no plain data, and equals none.

The program may request one value in return: to call a function that it was handed as an argument.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import protocol  # type: ignore[import-not-found]
import rpc  # type: ignore[import-not-found]
from rpc import ProgramEnded, RemoteError

# Between two objects of the program, its own methods decide. Compared with plain data, its object equals nothing.
# Computing with plain data must give an object again: a plain number would be the program's word alone.
_COMPARING = [f"__{name}__" for name in ["lt", "le", "gt", "ge", "eq", "ne"]]
_COMPUTING_NAMES = "add radd sub rsub mul rmul truediv rtruediv floordiv mod pow and or xor matmul neg pos invert abs"
_COMPUTING = [f"__{name}__" for name in _COMPUTING_NAMES.split()]
_DELEGATED_NAMES = "len getitem setitem delitem str repr hash enter exit int float round"
_DELEGATED = [f"__{name}__" for name in _DELEGATED_NAMES.split()]


def run_asserts(entry_point: str | None) -> None:
    """Run the statements in the program file against the program at the other end, and note the result."""
    peer = _RunnerPeer(entry_point)
    try:
        source = os.pread(protocol.PROGRAM, os.fstat(protocol.PROGRAM).st_size, 0).decode()
        tree = ast.parse(source, "test")
        namespace = peer.namespace(tree)
        code = compile(tree, "test", "exec", dont_inherit=True)
    except (NameError, RemoteError, ProgramEnded) as error:
        return _write_note(protocol.NOTE_RAISED, error)
    except (SyntaxError, ValueError) as error:
        return _write_note(protocol.NOTE_INVALID, error)
    try:
        exec(code, namespace)
    except AssertionError as error:
        _write_note(protocol.NOTE_FAILED, error)
    except BaseException as error:
        _write_note(protocol.NOTE_RAISED, error)
    else:
        _write_note(protocol.NOTE_RAISED if peer.ended else protocol.NOTE_PASSED, peer.ended)


def _write_note(note: bytes, error: BaseException | None) -> None:
    text = note + (f"{type(error).__name__}: {rpc.message_of(error)}"[:500].encode(errors="replace") if error else b"")
    os.pwrite(protocol.EXCHANGE, text, 0)


class _RunnerPeer(rpc.Peer):
    def __init__(self, entry_point: str | None) -> None:
        self.entry_point = entry_point
        self.callbacks: dict[int, Callable[..., Any]] = {}
        self.proxies: dict[int, _RemoteObject] = {}  # one per object, so that `is` works
        self.exceptions: dict[str, type[BaseException]] = {}
        self.ended: ProgramEnded | None = None

    def namespace(self, tree: ast.Module) -> dict[str, Any]:
        """Return the globals of the statements.

        Builtins and the standard library's modules are this process's own, even if the program defines the same names:
        an `abs` that is always 0 would make many asserts hold. The function under test is always the program's.
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
        described = self.result(self.request("describe", wanted))
        if self.entry_point in wanted and self.entry_point not in described and hasattr(builtins, self.entry_point):
            raise NameError(f"the program defines no {self.entry_point!r}")  # the builtin would take its place
        for name in wanted:
            if name not in described:  # anything else in the reply is ignored
                continue
            kind = described[name]
            if kind[0] == "exception":
                base = getattr(builtins, kind[1], Exception)
                exception = type(name, (base if issubclass(base, Exception) else Exception,), {})
                self.exceptions[name] = namespace[name] = exception
            else:
                namespace[name] = self.result(self.request("name", name))
        return namespace

    def request(self, *operation: Any) -> Any:
        try:
            return super().request(*operation)
        except ProgramEnded as error:
            self.ended = error  # it counts even if an assert catches it
            raise

    def result(self, answer: list[Any]) -> Any:
        if answer[0] == "ended":
            self.ended = ProgramEnded(str(answer[1]))
            raise self.ended
        if answer[0] == "raised":
            known = self.exceptions.get(answer[1])
            raise known(answer[2]) if known else rpc.local_exception(answer[1], answer[2])
        return answer[1]

    def answer(self, operation: str, *rest: Any) -> list[Any]:
        if operation != "callback":
            raise PermissionError("only functions that were handed over can be called")
        number, arguments, named = rest
        return ["value", self.callbacks[number](*arguments, **named)]

    async def _await_remote(self, coroutine: _RemoteObject) -> Any:
        return self.result(self.request("await", coroutine))

    def export(self, value: object) -> object:
        if isinstance(value, type) and rpc.is_known_type(value):
            return ["type", value.__name__]
        if isinstance(value, _RemoteObject):
            return ["yours", object.__getattribute__(value, "_number")]
        if callable(value):
            self.callbacks[id(value)] = value
            return ["mine", id(value)]
        raise TypeError(f"a {type(value).__name__} cannot be handed to the program")

    def make_proxy(self, content: Any) -> object:
        owner, number = content
        if owner == "type":
            return rpc.known_type(number)
        if owner == "coroutine":
            return self._await_remote(_RemoteObject(self, number))
        return (
            self.callbacks[number] if owner == "yours" else self.proxies.setdefault(number, _RemoteObject(self, number))
        )


def _ask(remote: _RemoteObject, operation: str, *rest: Any) -> Any:
    peer = object.__getattribute__(remote, "_peer")
    return peer.result(peer.request(operation, *rest))


class _RemoteObject:
    """A proxy of an object of the program."""

    def __init__(self, peer: _RunnerPeer, number: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        peer = object.__getattribute__(self, "_peer")
        answer = peer.request("call", self, list(arguments), named)
        result = peer.result(answer)
        for argument, changed in zip(arguments, answer[2], strict=True):
            _overwrite(argument, changed)
        return result

    def __getattr__(self, name: str) -> Any:
        return _ask(self, "attribute", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "assign", self, name, value)

    def __iter__(self) -> Any:
        return _ask(self, "iterate", self)

    def __next__(self) -> Any:
        answer = _ask(self, "next", self)
        if not answer:
            raise StopIteration
        return answer[0]

    def __bool__(self) -> bool:
        return _ask(self, "truth", self) is True

    def __contains__(self, wanted: Any) -> bool:
        return any(item is wanted or item == wanted for item in self)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, _RemoteObject) and _ask(self, "isinstance", instance, self) is True

    def __subclasscheck__(self, kind: Any) -> bool:
        return isinstance(kind, _RemoteObject) and _ask(self, "issubclass", kind, self) is True


def _delegate(name: str) -> Callable[..., Any]:
    def method(self: _RemoteObject, *arguments: Any) -> Any:
        peer = object.__getattribute__(self, "_peer")
        if name == "__exit__":
            arguments = (None, None, None)
        answer = peer.request("method", self, name, list(arguments))
        return NotImplemented if answer[0] == "not implemented" else peer.result(answer)

    return method


def _operator(name: str) -> Callable[..., Any]:
    delegate = _delegate(name)

    def method(self: _RemoteObject, *operands: Any) -> Any:
        if operands and isinstance(operands[0], _RemoteObject):
            return delegate(self, *operands)
        if name in _COMPARING:
            return NotImplemented
        result = delegate(self, *operands)
        if isinstance(result, _RemoteObject):
            return result
        if operands:
            return NotImplemented
        raise TypeError(f"{name} of the program's object gives no object")

    return method


_RemoteObject.__doc__ = property(lambda self: _ask(self, "attribute", self, "__doc__"))  # type: ignore[assignment]
for _name in _DELEGATED:
    setattr(_RemoteObject, _name, _delegate(_name))
for _name in (*_COMPARING, *_COMPUTING):
    setattr(_RemoteObject, _name, _operator(_name))


def _overwrite(argument: Any, changed: Any) -> None:
    """Apply to an argument what the program did to its copy."""
    if type(argument) is not type(changed) or argument == changed:
        return
    if isinstance(argument, (list, bytearray)):
        argument[:] = changed
    elif isinstance(argument, (dict, set)):
        argument.clear()
        argument.update(changed)
