"""What holds while a worker calls a reward function: seeded random numbers, and shortened output."""

from __future__ import annotations

import contextlib
import hashlib
import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Literal

MAX_OUTPUT = 1000  # characters of each stream that a call may print for each completion
TRIAL_STEP = -1  # `trainer_state.global_step` outside of training (rlvr/scoring/prober.py)


@contextlib.contextmanager
def call_conditions(seed: tuple[Any, ...], state: Mapping[str, Any], rows: int) -> Iterator[None]:
    """Seed random numbers, and shorten what a call with so many rows prints.

    Args:
        state: what the function sees as `trainer_state`.
    """
    seed_random_numbers(seed)
    # The trial makes many calls, some of them with every row.
    limit = MAX_OUTPUT if state.get("global_step") == TRIAL_STEP else MAX_OUTPUT * rows
    with _ShortenedStream("stdout", limit), _ShortenedStream("stderr", limit):
        yield


def seed_random_numbers(parts: tuple[Any, ...]) -> None:
    number = int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "big")
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number)


class _ShortenedStream:
    """Print the start of what a call prints. Whatever does not write text gets the stream itself."""

    def __init__(self, name: Literal["stdout", "stderr"], limit: int) -> None:
        self._name = name
        self._stream: Any = getattr(sys, name)
        self._left = limit

    def __enter__(self) -> None:
        if self._stream is not None:
            setattr(sys, self._name, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._stream.write(text[: max(self._left, 0)])
        self._left -= len(text)
        return len(text)

    def __exit__(self, *_: object) -> None:
        setattr(sys, self._name, self._stream)
        with contextlib.suppress(AttributeError, OSError, ValueError):  # None, or closed by the function
            if self._left < 0:
                self._stream.write(f"\n[{-self._left:,} more characters of this call are not shown]\n")
            self._stream.flush()
