"""Messages between a worker pool, its fork server and its workers.

A message is a length, a flag and data: JSON, or raw bytes. Raw bytes travel towards workers only, so that nothing that
a worker sends is ever unpickled by the caller.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

MAX_MESSAGE = 64 * 1024 * 1024  # bytes that a worker may send

_HEADER = struct.Struct("!?Q")  # raw, length
_SMALL = 1 << 16  # bytes that are copied to travel with their header


def encode(value: Any) -> list[bytes]:
    """The parts of a message, to be sent one after the other: bytes as they are, anything else as JSON."""
    raw = isinstance(value, bytes)
    data = value if raw else json.dumps(value).encode()
    header = _HEADER.pack(raw, len(data))
    return [header + data] if len(data) < _SMALL else [header, data]


def send(channel: socket.socket, value: Any) -> None:
    for part in encode(value):
        channel.sendall(part)


def receive(channel: socket.socket, *, trusted: bool = False) -> Any:
    """Receive one message; None if the other side is gone or sends something invalid.

    Args:
        trusted: accept raw bytes, and any size.
    """
    try:
        header = receive_exactly(channel, _HEADER.size)
        if header is None:
            return None
        raw, size = _HEADER.unpack(header)
        if not trusted and (raw or size > MAX_MESSAGE):
            return None
        data = receive_exactly(channel, size)
        if raw or not data:
            return data
        return json.loads(data)
    except (OSError, ValueError):
        return None


def receive_exactly(channel: socket.socket, size: int) -> bytes | None:
    data = bytearray(size)
    view, position = memoryview(data), 0
    while position < size:
        count = channel.recv_into(view[position:])
        if not count:
            return None
        position += count
    return bytes(data)
