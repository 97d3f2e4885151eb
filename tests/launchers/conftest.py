"""One nest (tests/launchers/nest.py) for all tests of launchers."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launchers import launching


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[launching.Start]:
    """`launching.start` with a nest that is there for the session."""
    socket = tmp_path_factory.mktemp("nest") / "socket"
    nest = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("nest.py")), str(socket)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the tests.
    )
    assert nest.stdin is not None and nest.stdout is not None
    said = nest.stdout.readlines(1)
    while said and "ready" not in said[-1]:
        said = nest.stdout.readlines(1)
    assert said, "the nest did not come up"
    yield functools.partial(launching.start, socket)
    nest.stdin.close()
    nest.wait(30)
