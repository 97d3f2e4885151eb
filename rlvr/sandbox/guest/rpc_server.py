"""The program's end of the connection: answer the requests of the assert runner; see assert_runner.py."""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any

import values  # type: ignore[import-not-found]
from program import find  # type: ignore[import-not-found]
from rpc import Peer, ProgramEnded, is_known_type, known_type, local_exception  # type: ignore[import-not-found]


def serve(namespace: dict[str, Any]) -> None:
    """Answer the assert runner until it closes the connection."""
    peer = _ProgramPeer(namespace)
    while True:
        try:
            message = values.decode(peer.connection.receive(), peer.make_proxy)
        except ProgramEnded:
            return
        peer.reply(message[1:])


class _ProgramPeer(Peer):
    def __init__(self, namespace: dict[str, Any]) -> None:
        super().__init__()
        self.namespace = namespace

    def answer(self, operation: str, *rest: Any) -> list[Any]:
        if operation == "describe":
            (names,) = rest
            return ["value", {name: _kind(find(self.namespace, name)) for name in names if self.defines(name)}]
        if operation == "name":
            return ["value", find(self.namespace, rest[0])]
        if operation == "call":
            value, arguments, named = rest
            result = value(*arguments, **named)
            return [
                "value",
                result,
                [item if isinstance(item, (list, dict, set, bytearray)) else None for item in arguments],
            ]
        if operation == "attribute":
            return ["value", getattr(rest[0], rest[1])]
        if operation == "assign":
            setattr(*rest)
            return ["value", None]
        if operation == "next":
            for item in rest[0]:
                return ["value", [item]]
            return ["value", []]
        if operation == "iterate":
            return ["value", iter(rest[0])]
        if operation == "await":
            return ["value", sys.modules["asyncio"].run(rest[0])]
        if operation in ("isinstance", "issubclass"):
            return ["value", bool(getattr(builtins, operation)(*rest))]
        if operation == "truth":
            return ["value", bool(rest[0])]
        if operation == "method":
            value, name, arguments = rest
            if not hasattr(type(value), name):
                raise TypeError(f"{type(value).__name__!r} object has no {name}")
            result = getattr(type(value), name)(value, *arguments)
            return ["not implemented", None] if result is NotImplemented else ["value", result]
        raise ValueError(f"unknown operation {operation!r}")

    def defines(self, name: str) -> bool:
        try:
            find(self.namespace, name)
        except (NameError, AttributeError):
            return False
        return True

    def export(self, value: object) -> object:
        if isinstance(value, type) and is_known_type(value):
            return ["type", value.__name__]
        if isinstance(value, types.CoroutineType):
            self.objects[id(value)] = value
            return ["coroutine", id(value)]
        if isinstance(value, _Callback):
            return ["yours", value.number]
        self.objects[id(value)] = value
        return ["mine", id(value)]

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


def _kind(value: object) -> list[str]:
    if isinstance(value, type) and issubclass(value, BaseException):
        return ["exception", next(base.__name__ for base in value.__mro__ if base.__module__ == "builtins")]
    return ["value"]
