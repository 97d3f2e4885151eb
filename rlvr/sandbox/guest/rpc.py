"""The line between a program and the statements that test it, and what both of its ends know; see examining.py."""

from __future__ import annotations

import builtins
import os
from typing import Any

import values  # type: ignore[import-not-found]
from protocol import CHANNEL  # type: ignore[import-not-found]

LARGEST = 64 << 20


class RemoteError(Exception):
    """The program raised something that has no counterpart here."""


class Ended(BaseException):
    """The program is gone, tried to end, or says nothing sensible: nothing that a test may expect of it."""


class _Line:
    def send(self, text: str) -> None:
        data = text.encode()
        data = len(data).to_bytes(4, "big") + data
        while data:
            data = data[os.write(CHANNEL, data) :]

    def receive(self) -> str:
        size = int.from_bytes(self._exactly(4), "big")
        if size > LARGEST:
            raise Ended("a message is too large")
        return self._exactly(size).decode()

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = os.read(CHANNEL, min(size - len(parts), 1 << 16))
            if not part:
                raise Ended("the program ended")
            parts += part
        return bytes(parts)


class Party:
    """Either end: asks the other, and answers what the other asks while it waits."""

    def __init__(self) -> None:
        self.line = _Line()
        self.objects: dict[int, Any] = {}

    def ask(self, *question: Any) -> Any:
        self.line.send(values.encode(["ask", *question], self.export))
        while True:
            try:
                message = values.decode(self.line.receive(), self.stand_in)
            except ValueError as error:
                raise Ended("not a message") from error
            if not isinstance(message, list) or len(message) < 2:
                raise Ended("not a message")
            if message[0] == "ask":
                self.reply(message[1:])
            else:
                return message

    def reply(self, question: list[Any]) -> None:
        try:
            answer = self.answer(*question)
        except Exception as error:
            answer = ["raised", type(error).__name__, words_of(error)]
        except BaseException as error:  # SystemExit and its like end no test, they fail it
            answer = ["ended", f"{type(error).__name__}: {words_of(error)}"]
        self.line.send(values.encode(answer, self.export))

    def answer(self, *question: Any) -> list[Any]:
        raise NotImplementedError

    def export(self, thing: object) -> object:
        raise NotImplementedError

    def stand_in(self, content: Any) -> object:
        raise NotImplementedError


def is_known_type(thing: type) -> bool:
    """Whether it is a builtin type, which both ends know by its name."""
    return vars(builtins).get(thing.__name__) is thing


def known_type(name: str) -> type:
    found = vars(builtins)[name]
    if not isinstance(found, type):
        raise ValueError(f"{name!r} is no type")
    return found


def words_of(error: BaseException) -> str:
    try:
        return str.__str__(str(error))[:500]
    except Exception:
        return ""


def counterpart(name: str, words: str) -> Exception:
    """The builtin exception of that name, if raising it can't be mistaken for something else."""
    kind = getattr(builtins, name, None)
    steers = (StopIteration, StopAsyncIteration)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, steers):
        try:
            return kind(words)
        except TypeError:  # such as UnicodeDecodeError, which wants five arguments
            pass
    return RemoteError(f"{name}: {words}")
