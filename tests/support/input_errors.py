"""What an input error must name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import ANY

import pytest

from rlvr.errors import InputError


@contextmanager
def input_error(
    kind: str, key: str | None = ANY, row: int | None = ANY, *, match: str | None = None, why: str = ""
) -> Iterator[Any]:
    """Expect an input error of this kind, at this key and row. Yields what `pytest.raises` does."""
    with pytest.raises(InputError, match=match) as error:
        yield error
    found, expected = (error.value.kind, error.value.key, error.value.row), (kind, key, row)
    assert found == expected, f"{found} instead of {expected}; {why}; {error.value}"
