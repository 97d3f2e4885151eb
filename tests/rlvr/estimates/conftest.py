"""Each model is counted once: it takes most of an estimate's time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rlvr.estimates import parameters


@pytest.fixture(scope="module", autouse=True)
def counted_once() -> Iterator[None]:
    counts: dict[str, parameters.Parameters] = {}
    count = parameters.count

    def cached(config: Any) -> parameters.Parameters:
        key = config.to_json_string(use_diff=False)
        if key not in counts:
            counts[key] = count(config)
        return counts[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parameters, "count", cached)
        yield
