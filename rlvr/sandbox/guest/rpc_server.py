"""The program's end of the line: answers what the statements that test it ask; see examining.py."""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any

import values  # type: ignore[import-not-found]
from program import find  # type: ignore[import-not-found]
from rpc import Ended, Party, counterpart, is_known_type, known_type  # type: ignore[import-not-found]


def serve(namespace: dict[str, Any]) -> None:
    """Answers the tester until it is done."""
    party = _Program(namespace)
    while True:
        try:
            message = values.decode(party.line.receive(), party.stand_in)
        except Ended:
            return
        party.reply(message[1:])


class _Program(Party):
    def __init__(self, namespace: dict[str, Any]) -> None:
        super().__init__()
        self.namespace = namespace

    def answer(self, operation: str, *rest: Any) -> list[Any]:
        if operation == "describe":
            (names,) = rest
            return ["value", {name: _kind(find(self.namespace, name)) for name in names if self.knows(name)}]
        if operation == "name":
            return ["value", find(self.namespace, rest[0])]
        if operation == "call":
            thing, arguments, named = rest
            result = thing(*arguments, **named)
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
            thing, name, arguments = rest
            if not hasattr(type(thing), name):
                raise TypeError(f"{type(thing).__name__!r} object has no {name}")
            result = getattr(type(thing), name)(thing, *arguments)
            return ["not implemented", None] if result is NotImplemented else ["value", result]
        raise ValueError(f"unknown operation {operation!r}")

    def knows(self, name: str) -> bool:
        try:
            find(self.namespace, name)
        except (NameError, AttributeError):
            return False
        return True

    def export(self, thing: object) -> object:
        if isinstance(thing, type) and is_known_type(thing):
            return ["type", thing.__name__]
        if isinstance(thing, types.CoroutineType):
            self.objects[id(thing)] = thing
            return ["coroutine", id(thing)]
        if isinstance(thing, _Callback):
            return ["yours", thing.number]
        self.objects[id(thing)] = thing
        return ["mine", id(thing)]

    def stand_in(self, content: Any) -> object:
        whose, number = content
        if whose == "type":
            return known_type(number)
        return self.objects[number] if whose == "yours" else _Callback(self, number)


class _Callback:
    """On the program's side: a function that the test handed over."""

    def __init__(self, party: Party, number: int) -> None:
        self.party = party
        self.number = number

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        answer = self.party.ask("callback", self.number, list(arguments), named)
        if answer[0] == "raised":
            raise counterpart(answer[1], answer[2])
        return answer[1]


def _kind(thing: object) -> list[str]:
    if isinstance(thing, type) and issubclass(thing, BaseException):
        return ["exception", next(base.__name__ for base in thing.__mro__ if base.__module__ == "builtins")]
    return ["thing"]
