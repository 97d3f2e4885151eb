"""Processes behind /judge are killed during a batch: verdicts are the same, and counted once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.processes import children, command_line
from tests.support.reward_servers import RewardServer, recipe_of

SLOWLY = "import time; time.sleep(0.1)\n"
PROGRAMS = {
    "print(int(input()) * 2)": ["AC", "AC"],
    "print(2)": ["AC", "WA"],
    "print(": ["CE", "CE"],
    "raise SystemExit(3)": ["RE", "RE"],
    "import sys\nprint(sys.stdin.read() * 2)": ["WA", "WA"],
    "n = int(input())\nwhile n == 5: pass\nprint(n * 2)": ["AC", "TLE"],
    "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)": ["RE", "RE"],
}
TESTS = [{"input": "1\n", "output": "2\n"}, {"input": "5\n", "output": "10\n"}]
NATIVE = "#include <iostream>\nint main() { int n; std::cin >> n; std::cout << n * 2; }"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RewardServer]:
    recipe = recipe_of(tmp_path_factory.mktemp("killed") / "recipe.yaml", ["answer_format"])
    with RewardServer("--config", recipe, "--workers", "1") as started:
        judged(started)  # so that all that is started once is there
        yield started


def judged(server: RewardServer) -> list[list[str]]:
    limits = {"time_s": 0.5, "wall_s": 20, "compile_time_s": 60}
    native = {"program": f"{NATIVE}  // {time.time()}", "language": "cpp", "tests": TESTS, "limits": limits}
    slowly = [{"program": SLOWLY + program, "tests": TESTS, "limits": limits} for program in PROGRAMS]
    status, reply = server.post("/judge", {"submissions": [native, *slowly], "deadline_s": 100})
    assert status == 200, reply
    return [judgement["verdicts"] for judgement in reply["judgements"]]


def counted(server: RewardServer) -> Counter[str]:
    names = {
        verdict: f'grpo_verdicts_total{{verdict="{verdict}"}}' for verdict in ("AC", "WA", "CE", "RE", "TLE", "SE")
    }
    return Counter({verdict: int(server.figure(name)) for verdict, name in names.items()})


def at_work(server: RewardServer, what: str) -> dict[str, int] | None:
    """The server's processes by their role, once `what` is running."""
    for fork_server in children(server.process.pid):
        for worker in children(fork_server):
            for zygote in children(worker):
                if "zygote.py" not in command_line(zygote):
                    continue
                found = {"fork server": fork_server, "worker": worker, "zygote": zygote}
                for program in children(zygote):
                    compiler = next((part for part in children(program) if "cc1plus" in command_line(part)), None)
                    found["program" if compiler is None else "compiler"] = compiler or program
                if what in found and len(found) == 4:
                    return found
    return None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whose", "why"),
    [
        ("fork server", "it forks the workers"),
        ("worker", "the worker that judges the request"),
        ("zygote", "it makes the sandbox of a program"),
        ("program", "the program did not cause it"),
        ("compiler", "a compiler's death says nothing about the program"),
    ],
)
def test_a_killed_process_changes_no_verdict(server: RewardServer, whose: str, why: str) -> None:
    before = counted(server)
    answers: list[list[list[str]]] = []
    asking = threading.Thread(target=lambda: answers.append(judged(server)))
    asking.start()
    while (found := at_work(server, whose)) is None and asking.is_alive():
        time.sleep(0.002)
    assert found is not None
    os.kill(found[whose], signal.SIGKILL)
    asking.join()
    assert answers == [[["AC", "AC"], *PROGRAMS.values()]], why
    expected = Counter(verdict for verdicts in answers[0] for verdict in verdicts)
    assert counted(server) - before == expected, "each once"
