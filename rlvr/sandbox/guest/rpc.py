"""The connection between a program and the assert runner, for both ends; see assert_runner.py."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from typing import Any

import values  # type: ignore[import-not-found]
from protocol import CHANNEL  # type: ignore[import-not-found]

MAX_MESSAGE_BYTES = 64 << 20


class RemoteError(Exception):
    """The program raised an exception that has no builtin counterpart."""


class ProgramEnded(BaseException):
    """The program ended, tried to end, or sent no valid message. No test may expect this, so it is no Exception."""


class Peer:
    """One end: it sends requests, and answers the other end's requests while it waits."""

    answer: Callable[..., list[Any]]
    export: Callable[[object], object]
    make_proxy: Callable[[Any], object]

    def send(self, message: list[Any]) -> None:
        data = values.encode(message, self.export).encode()
        data = len(data).to_bytes(4, "big") + data
        while data:
            data = data[os.write(CHANNEL, data) :]

    def receive(self) -> Any:
        size = int.from_bytes(_read_exactly(4), "big")
        if size > MAX_MESSAGE_BYTES:
            raise ProgramEnded("a message is too large")
        return values.decode(_read_exactly(size).decode(), self.make_proxy)

    def request(self, *operation: Any) -> Any:
        self.send(["request", *operation])
        while True:
            try:
                message = self.receive()
            except ValueError as error:
                raise ProgramEnded("not a message") from error
            if not isinstance(message, list) or len(message) < 2:
                raise ProgramEnded("not a message")
            if message[0] == "request":
                self.reply(message[1:])
            else:
                return message

    def reply(self, operation: list[Any]) -> None:
        try:
            answer = self.answer(*operation)
        except Exception as error:
            answer = ["raised", type(error).__name__, message_of(error)]
        except BaseException as error:  # SystemExit and the like fail a test, they do not end it
            answer = ["ended", f"{type(error).__name__}: {message_of(error)}"]
        self.send(answer)


def _read_exactly(size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = os.read(CHANNEL, min(size - len(parts), 1 << 16))
        if not part:
            raise ProgramEnded("the program ended")
        parts += part
    return bytes(parts)


def is_known_type(value: type) -> bool:
    """Whether it is a builtin type, which both ends know by name."""
    return vars(builtins).get(value.__name__) is value


def known_type(name: str) -> type:
    known = vars(builtins)[name]
    if not isinstance(known, type):
        raise ValueError(f"{name!r} is no type")
    return known


def message_of(error: BaseException) -> str:
    try:
        return str.__str__(str(error))[:500]
    except Exception:
        return ""


def local_exception(name: str, message: str) -> Exception:
    """Return the builtin exception of that name, or RemoteError if raising it here would have another meaning."""
    kind = getattr(builtins, name, None)
    control_flow = (StopIteration, StopAsyncIteration)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, control_flow):
        try:
            return kind(message)
        except TypeError:  # such as UnicodeDecodeError, which takes five arguments
            pass
    return RemoteError(f"{name}: {message}")
