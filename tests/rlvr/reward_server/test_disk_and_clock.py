"""A full disk and a clock that jumps: no row gets a wrong score, and the server recovers."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr.config.specs import RewardSpec
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scored, Scorer
from tests.support.reward_servers import REPOSITORY, RewardServer, recipe_of

# ----------------------------------------------------------------------------------------------------------------------
# A full disk

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


# ----------------------------------------------------------------------------------------------------------------------
# A clock that jumps

# Shifts the wall clock by the number of seconds in the file $CLOCK_OFFSET.
JUMPING_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long offset(void) {
    long seconds = 0;
    const char *name = getenv("CLOCK_OFFSET");
    FILE *file = name ? fopen(name, "r") : NULL;
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    static int (*own)(clockid_t, struct timespec *);
    if (!own) own = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = own(clock, found);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) found->tv_sec += offset();
    return failed;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
"""
REWARD = '''
import os, time

def slow(completions, **kwargs):
    """Log the start of each row."""
    values = []
    for completion in completions:
        name, _, folder = completion.partition(" ")
        with open(os.path.join(folder, "begun"), "a") as file:
            file.write(f"{name} {time.time():.0f}\\n")
        time.sleep(0.3)
        values.append(float(name))
    return values
'''
CLIENT = """
import json, sys, time
from rlvr.scoring.registry import load_rewards
from rlvr.config.specs import RewardSpec
from rlvr.scoring.scorer import Scorer
name, where, folder = sys.argv[1:]
with Scorer(load_rewards([RewardSpec(name, where=where)]), timeout_s=20.0, batch_timeout_s=60.0) as scoring:
    clock, begun = time.time(), time.monotonic()
    scored = scoring.score([f"p{row}" for row in range(6)], [f"{row} {folder}" for row in range(6)], {})
    took_s = time.monotonic() - begun
    print(json.dumps([scored.values, len(scored.failures), scored.outage_s, took_s, time.time() - clock - took_s]))
"""
HOURS = 3 * 3600


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of processes with a clock that tests can set."""
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text(JUMPING_CLOCK, encoding="utf-8")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make a clock with")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / "clock.so"), str(folder / "clock.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return {"LD_PRELOAD": str(folder / "clock.so"), "CLOCK_OFFSET": str(folder / "offset")}


def set_clock(clock: dict[str, str], seconds: int) -> None:
    file = Path(clock["CLOCK_OFFSET"])
    file.with_suffix(".new").write_text(str(seconds))
    file.with_suffix(".new").rename(file)


def begun(folder: Path) -> list[list[str]]:
    file = folder / "begun"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.slow
def test_a_clock_that_jumps_during_a_batch_changes_nothing(clock: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "slowly.py").write_text(REWARD, encoding="utf-8")
    name = f"{tmp_path}/slowly.py:slow"
    set_clock(clock, 0)
    with RewardServer("--config", recipe_of(tmp_path / "recipe.yaml", [name]), env=clock) as server:
        words = [sys.executable, "-c", CLIENT, name, server.url, str(tmp_path)]
        with subprocess.Popen(
            words, cwd=REPOSITORY, env={**os.environ, **clock}, stdout=subprocess.PIPE, text=True
        ) as client:
            for rows, offset in ((2, HOURS), (4, -HOURS)):  # once forwards, and once back
                end = time.monotonic() + 60
                while len(begun(tmp_path)) < rows and time.monotonic() < end:
                    time.sleep(0.01)
                set_clock(clock, offset)
            said = client.communicate(timeout=300)[0]
        assert server.get("/readyz")[0] == 200
    values, faults, silent_s, took_s, jumped_s = json.loads(said)
    assert values == [[float(row)] for row in range(6)] and not faults and not silent_s and took_s < 60
    noted = begun(tmp_path)
    times = [int(time_then) for _, time_then in noted]
    assert [row for row, _ in noted] == [str(row) for row in range(6)], "each row once"
    assert max(times) - min(times) > HOURS and abs(jumped_s + HOURS) < 60, "it did jump"
