"""The program's end of the connection: answer the requests of the assert runner; see assert_runner.py."""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable
from typing import Any

from program import find  # type: ignore[import-not-found]
from rpc import Peer, ProgramEnded, is_known_type, known_type, local_exception  # type: ignore[import-not-found]


def serve(namespace: dict[str, Any]) -> None:
    """Answer the assert runner until it closes the connection."""
    peer = _ProgramPeer(namespace)
    while True:
        try:
            message = peer.receive()
        except ProgramEnded:
            return
        peer.reply(message[1:])


class _ProgramPeer(Peer):
    def __init__(self, namespace: dict[str, Any]) -> None:
        self.objects: dict[int, Any] = {}
        self.operations: dict[str, Callable[..., Any]] = {
            "describe": lambda names: {name: kind for name in names if (kind := _kind(namespace, name))},
            "name": lambda name: find(namespace, name),
            "attribute": getattr,
            "assign": setattr,
            "iterate": iter,
            "next": lambda iterator: list(itertools.islice(iterator, 1)),
            "await": lambda coroutine: sys.modules["asyncio"].run(coroutine),
            "isinstance": isinstance,
            "issubclass": issubclass,
            "truth": bool,
        }

    def answer(self, operation: str, *rest: Any) -> list[Any]:
        if operation == "call":
            value, arguments, named = rest
            result = value(*arguments, **named)
            mutable = [item if isinstance(item, (list, dict, set, bytearray)) else None for item in arguments]
            return ["value", result, mutable]
        if operation == "method":
            value, name, arguments = rest
            if not hasattr(type(value), name):
                raise TypeError(f"{type(value).__name__!r} object has no {name}")
            result = getattr(type(value), name)(value, *arguments)
            return ["not implemented", None] if result is NotImplemented else ["value", result]
        return ["value", self.operations[operation](*rest)]

    def export(self, value: object) -> object:
        if isinstance(value, type) and is_known_type(value):
            return ["type", value.__name__]
        if isinstance(value, _Callback):
            return ["yours", value.number]
        self.objects[id(value)] = value
        return ["coroutine" if isinstance(value, types.CoroutineType) else "mine", id(value)]

    def make_proxy(self, content: Any) -> object:
        owner, number = content
        if owner == "type":
            return known_type(number)
        return self.objects[number] if owner == "yours" else _Callback(self, number)


class _Callback:
    """A function that the assert runner handed over, as the program sees it."""

    def __init__(self, peer: Peer, number: int) -> None:
        self.peer = peer
        self.number = number

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        answer = self.peer.request("callback", self.number, list(arguments), named)
        if answer[0] == "raised":
            raise local_exception(answer[1], answer[2])
        return answer[1]


def _kind(namespace: dict[str, Any], name: str) -> list[str] | None:
    """Return whether a name is an exception, and of which builtin class; None if the program does not define it."""
    try:
        value = find(namespace, name)
    except (NameError, AttributeError):
        return None
    if isinstance(value, type) and issubclass(value, BaseException):
        return ["exception", next(base.__name__ for base in value.__mro__ if base.__module__ == "builtins")]
    return ["value"]
