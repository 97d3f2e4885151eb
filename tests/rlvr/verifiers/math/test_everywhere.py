"""Algebra works from wherever a reward may be called: threads, process pools, the ranks of a launch."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from rlvr.verifiers.math import check_answer, check_answers
from tests.support.launching import accelerated, prefork_command

PROJECT = Path(__file__).resolve().parents[4]
ROWS = [(r"\boxed{\sqrt{12}}", r"2\sqrt{3}", True), (r"\boxed{(x+1)^2}", "x^2+1", False), (r"\boxed{5}", "5", True)]


def _verdict(number: int) -> bool | None:
    completion, gold, _ = ROWS[number % 3]
    return check_answer(completion, gold).correct


EXPECTED = [ROWS[number % 3][2] for number in range(12)]


@pytest.mark.slow
def test_in_threads() -> None:
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(_verdict, range(12))) == EXPECTED


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_in_a_process_pool(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_answers([ROWS[0][0]], [ROWS[0][1]])  # the parent has workers of its own
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as processes:
        assert list(processes.map(_verdict, range(12))) == EXPECTED


@pytest.mark.slow
def test_on_the_ranks_of_a_launch(prefork: Path, tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(
        "import json, sys\n"
        f"sys.path.insert(0, {str(PROJECT)!r})\n"
        "from accelerate import PartialState\n"
        "from rlvr.verifiers.math import check_answers\n"
        "state = PartialState(cpu=True)\n"
        f"rows = {ROWS!r}\n"
        "verdicts = check_answers([row[0] for row in rows], [row[1] for row in rows])\n"
        f"path = {str(tmp_path)!r} + f'/rank{{state.process_index}}.json'\n"
        "json.dump([state.num_processes, *[verdict.correct for verdict in verdicts]], open(path, 'w'))\n"
        "state.destroy_process_group()\n"
    )
    command = prefork_command(prefork, *accelerated("cpu", script=script))
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    for rank in range(2):
        assert json.loads((tmp_path / f"rank{rank}.json").read_text()) == [2, True, False, True]
