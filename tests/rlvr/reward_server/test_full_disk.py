"""A full disk: no row gets a wrong score, and the server recovers."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr.config.specs import RewardSpec
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scored, Scorer
from tests.support.reward_servers import RewardServer

SIZE_MB = 80  # more than the judge wants to be free for a compiler
CPP = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"
WRONG_CPP = CPP.replace("+ b", "- b")
BROKEN_CPP = CPP.replace("a + b;", "a + b")
PYTHON = "print(sum(map(int, input().split())))"
TESTS = [{"input": "1 2", "output": "3"}, {"input": "5 0", "output": "5"}]


class Disk:
    """The disk of a server's temporary files, mounted for the server alone.

    Args:
        folder: where it is mounted, for the server alone.
    """

    def __init__(self, server: RewardServer, folder: str) -> None:
        self.folder = Path(f"/proc/{server.process.pid}/root{folder}")
        self.filler = self.folder / "filler"

    def fill(self, spare: int = 0) -> None:
        """Fill the disk except this many bytes."""
        about = os.statvfs(self.folder)
        line = os.open(self.filler, os.O_CREAT | os.O_WRONLY)
        try:
            with contextlib.suppress(OSError):  # a compiler was faster: then it is as full
                os.posix_fallocate(line, 0, about.f_bavail * about.f_frsize - spare)
        finally:
            os.close(line)

    def empty(self) -> None:
        self.filler.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[RewardServer, Disk]]:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("nothing can be mounted here for one process alone")
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed, and Python programs need no disk")
    # Not below pytest's own folder, which others can't reach: the judge would pass it over.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        mounting = f'mount -t tmpfs -o size={SIZE_MB}m,mode=755 tmpfs {folder} && exec "$@"'
        within = ["unshare", "-m", "sh", "-c", mounting, "sh"]
        with RewardServer("--rewards", "code_execution", env={"TMPDIR": folder}, within=within) as started:
            yield started, Disk(started, folder)


_times = itertools.count()


def score(server: RewardServer, *programs: tuple[str, str]) -> Scored:
    """Score programs. A comment makes each text unique, because the judge caches results."""
    rows, time_of_asking = len(programs), next(_times)
    comments = {"cpp": f"// {time_of_asking}", "python": f"# {time_of_asking}"}
    with Scorer(load_rewards([RewardSpec("code_execution", where=server.url)])) as scoring:
        return scoring.score(
            [f"p{row}" for row in range(rows)],
            [f"```{language}\n{program} {comments[language]}\n```" for language, program in programs],
            {"tests": [TESTS] * rows, "language": [language for language, _ in programs]},
        )


@pytest.mark.slow
def test_a_full_disk_masks_compiled_programs_until_there_is_space(server: tuple[RewardServer, Disk]) -> None:
    started, disk = server
    programs = [("cpp", CPP), ("python", PYTHON), ("cpp", WRONG_CPP), ("cpp", BROKEN_CPP), ("python", "print(3)")]
    quiet = score(started, *programs)
    assert quiet.values == [[1.0], [1.0], [0.5], [0.0], [0.5]] and not quiet.failures
    for spare in (0, 1 << 16):
        disk.fill(spare)
        full = score(started, *programs[:3])
        disk.empty()
        assert full.values == [[None], [1.0], [None]] and not full.failures, f"{spare} bytes are left"
    assert score(started, *programs).values == quiet.values
    judged = {"submissions": [{"program": CPP, "language": "cpp", "tests": TESTS}]}
    disk.fill()
    judgement = started.post("/judge", judged)[1]["judgements"][0]
    assert judgement["verdicts"] == ["SE", "SE"] and "no space left" in judgement["compile_output"].lower()
    disk.empty()
    assert started.post("/judge", judged)[1]["judgements"][0]["verdicts"] == ["AC", "AC"]


@pytest.mark.slow
def test_a_disk_that_is_full_for_moments_makes_no_right_program_wrong(server: tuple[RewardServer, Disk]) -> None:
    started, disk = server
    done = threading.Event()

    def others() -> None:
        while not done.wait(0.03):
            disk.fill()
            done.wait(0.03)
            disk.empty()

    thread = threading.Thread(target=others)
    thread.start()
    try:
        found = {value for (value,) in score(started, *[("cpp", f"{CPP} // {row}") for row in range(4)]).values}
    finally:
        done.set()
        thread.join()
    assert found <= {1.0, None}
    assert score(started, ("cpp", CPP)).values == [[1.0]]
