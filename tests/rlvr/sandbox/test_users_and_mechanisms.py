"""Confinement for root in a default container, for an ordinary user, and without some of the mechanisms."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr.verifiers.code import judge

REPOSITORY = Path(__file__).resolve().parents[3]
CONTAINER = Path(__file__).parents[2] / "support" / "default_container.py"
# A few attacks and honest programs. test_attacks.py runs the whole suite.
SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from rlvr.verifiers.code import Limits, judge_many, detect_capabilities
from tests.support.sandbox_capabilities import capabilities_without
limits = {"memory_mb": 128, "output_kb": 256}
short = {"spins": {"time_s": 0.2, "wall_s": 20}, "sleeps": {"time_s": 1, "wall_s": 0.5}}
tests = [{"input": "4 5", "output": "9"}]
programs = {
    "honest": ("AC", "python", "print(sum(map(int, input().split())))"),
    "threads": ("AC", "python", "import threading\\nt = threading.Thread(target=print, args=(9,)); t.start(); t.join()"),
    "reads": ("RE", "python", "print(open('/etc/passwd').read())"),
    "connects": ("RE", "python", "import socket\\nsocket.create_connection(('127.0.0.1', 22))"),
    "forks": ("RE", "python", "import os\\nif os.fork(): print(9)"),
    "kills": ("RE", "python", "import os\\nos.kill(os.getppid(), 9)\\nprint(9)"),
    "kills all": ("RE", "python", "import os\\nos.kill(-1, 9)\\nprint(9)"),
    "executes": ("RE", "python", "import os\\nos.execv('/bin/echo', ['echo', '9'])"),
    "environment": ("RE", "python", "import os\\nprint(open('/proc/%d/environ' % os.getppid()).read())"),
    "memory": ("MLE", "python", "x = bytearray(2**31)"),
    "spins": ("TLE", "python", "while True: pass"),
    "sleeps": ("TLE", "python", "import time\\ntime.sleep(60)"),
    "honest C++": ("AC", "cpp", "#include <iostream>\\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"),
    "includes": ("CE", "cpp", "#include </etc/passwd>\\nint main() {}"),
    "embeds": ("CE", "cpp", 'asm(".incbin \\\\"/etc/passwd\\\\"");\\nint main() {}'),
    "opens or forks": ("WA", "cpp", "#include <unistd.h>\\n#include <cstdio>\\nint main() { std::puts(std::fopen(\\"/etc/passwd\\", \\"r\\") || fork() > 0 ? \\"9\\" : \\"0\\"); }"),
}
with capabilities_without(*sys.argv[2].split()) as capabilities:
    used = {k: v for k, v in programs.items() if capabilities.can_compile or v[1] != "cpp"}
    judged = judge_many([
        {"program": program, "language": language, "tests": tests,
         "limits": Limits(**limits, **short.get(name, {"time_s": 1, "wall_s": 20}))}
        for name, (_, language, program) in used.items()
    ])
    wrong = {name: j.verdicts[0] for name, j in zip(used, judged) if j.verdicts[0] != used[name][0]}
    print(json.dumps({"level": capabilities.level, "sandbox": capabilities.describe(), "wrong": wrong, "judged": len(judged)}))
"""  # noqa: E501


def run_as(*command: str, off: str = "", python: str = sys.executable) -> dict:
    process = subprocess.run(
        [*command, python, "-c", SCRIPT, str(REPOSITORY), off],
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8"},
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the container's filter is written for x86-64")


@pytest.mark.slow
@needs_root
@on_x86
@pytest.mark.parametrize("off, level", [("", "strong"), ("landlock", "strong"), ("landlock chroot user", "sealed")])
def test_root_in_a_default_container(off: str, level: str) -> None:
    report = run_as(sys.executable, str(CONTAINER), off=off)
    assert report["wrong"] == {}, report["sandbox"]
    assert report["level"] == level


@needs_root
def test_a_program_of_root_is_not_roots() -> None:
    program = "import os\nprint(0 in [*os.getresuid(), *os.getresgid(), *os.getgroups()])"
    judgement = judge(program, language="python", tests=[{"input": "", "output": "False"}])
    assert list(judgement.verdicts) == ["AC"]


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("off", ["", "landlock"])
def test_an_ordinary_user(off: str) -> None:
    # An interpreter that all users may run. That of a virtual environment may be in root's own folder.
    folders = "/usr/bin:/usr/local/bin"
    interpreters = (shutil.which(name, path=folders) for name in ("python3.13", "python3.12", "python3.11"))
    python = next((path for path in interpreters if path), None)
    setpriv = shutil.which("setpriv")
    if python is None or setpriv is None:
        pytest.skip("no setpriv, or no Python 3.11 or newer that all users may run")
    as_nobody = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run(
        [*as_nobody, python, "-c", "import sys; open(sys.argv[1])", str(REPOSITORY / "README.md")]
    ).returncode:
        pytest.skip("the user nobody can't read this folder")
    cache = Path("/tmp/grpo-recipes-65534")
    cache_existed = cache.exists()
    try:
        report = run_as(*as_nobody, off=off, python=python)
    finally:
        if not cache_existed:
            shutil.rmtree(cache, ignore_errors=True)
    assert report["wrong"] == {}, report["sandbox"]
    assert report["level"] == ("sealed" if off else "strong") or "Landlock" not in report["sandbox"]


@pytest.mark.slow
@pytest.mark.parametrize("off", ["user", "chroot", "landlock", "user chroot", "user landlock", "user chroot landlock"])
def test_programs_stay_confined_without_some_mechanisms(off: str) -> None:
    report = run_as(off=off)
    assert report["wrong"] == {}, report["sandbox"]
