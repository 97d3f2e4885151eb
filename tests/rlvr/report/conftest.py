"""Share charts among the pages of the tests: a page takes a second, nearly all of it to draw charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlvr.report import svg_charts

CHARTS = ("accuracy_chart", "line_chart", "stacked_chart")


@pytest.fixture(scope="package", autouse=True)
def drawn() -> Iterator[dict[str, str]]:
    """Draw each chart once. Its arguments decide every character: `test_the_same_run_gives_the_same_page` tests it."""
    charts: dict[str, str] = {}

    def shared(draw: Callable[..., str]) -> Callable[..., str]:
        def once(*args: Any, **options: Any) -> str:
            key = repr((draw.__name__, args, options))
            if key not in charts:
                charts[key] = draw(*args, **options)
            return charts[key]

        return once

    with pytest.MonkeyPatch.context() as patch:
        for name in CHARTS:
            patch.setattr(svg_charts, name, shared(getattr(svg_charts, name)))
        yield charts
