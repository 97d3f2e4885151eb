"""The connection between a program and the assert runner, for both ends; see assert_runner.py."""

from __future__ import annotations

import builtins
import os
from typing import Any

import values  # type: ignore[import-not-found]
from protocol import CHANNEL  # type: ignore[import-not-found]

MAX_MESSAGE_BYTES = 64 << 20


class RemoteError(Exception):
    """The program raised an exception that has no builtin counterpart."""


class ProgramEnded(BaseException):
    """The program ended, tried to end, or sent no valid message. No test may expect this, so it is no Exception."""


class _Connection:
    def send(self, text: str) -> None:
        data = text.encode()
        data = len(data).to_bytes(4, "big") + data
        while data:
            data = data[os.write(CHANNEL, data) :]

    def receive(self) -> str:
        size = int.from_bytes(self._exactly(4), "big")
        if size > MAX_MESSAGE_BYTES:
            raise ProgramEnded("a message is too large")
        return self._exactly(size).decode()

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = os.read(CHANNEL, min(size - len(parts), 1 << 16))
            if not part:
                raise ProgramEnded("the program ended")
            parts += part
        return bytes(parts)


class Peer:
    """One end: it sends requests, and answers the other end's requests while it waits."""

    def __init__(self) -> None:
        self.connection = _Connection()
        self.objects: dict[int, Any] = {}

    def request(self, *operation: Any) -> Any:
        self.connection.send(values.encode(["request", *operation], self.export))
        while True:
            try:
                message = values.decode(self.connection.receive(), self.make_proxy)
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
        self.connection.send(values.encode(answer, self.export))

    def answer(self, *operation: Any) -> list[Any]:
        raise NotImplementedError

    def export(self, value: object) -> object:
        raise NotImplementedError

    def make_proxy(self, content: Any) -> object:
        raise NotImplementedError


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
