"""The memory limit: what a program may reach before it is killed, and what programs within it may do."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rlvr.sandbox import compiler
from rlvr.sandbox.capabilities import detect_capabilities
from rlvr.sandbox.zygote_client import Zygote, ZygoteSpec
from rlvr.verifiers.code import Limits, Submission, judge, judge_many
from tests.support.attacks.case import block
from tests.support.judged_programs import ONE, verdicts

LIMIT_MB = 256
ALLOWED_MB = 1.25 * LIMIT_MB + 32
LIMITS = Limits(time_s=4.0, memory_mb=LIMIT_MB)

PYTHON_ATTACKS = {
    "one block": "x = bytearray(600 << 20)\nx[::4096] = b'x' * len(x[::4096])",
    "one block, refused": "x = bytearray(1 << 31)",
    "one text": "x = 'x' * (500 << 20)",
    "medium blocks": "x = []\nwhile True: x.append(b'x' * 1_000_000)",
    "one integer": "x = 1 << (1 << 33)",
    "one mapping": "import mmap\nx = mmap.mmap(-1, 600 << 20)\nfor i in range(0, 600 << 20, 4096): x[i] = 1",
    "many mappings": """
        import mmap
        x = []
        while True:
            x.append(mmap.mmap(-1, 1 << 22))
            x[-1].write(bytes(b'x' * (1 << 22)))
    """,
    "eight threads": """
        import threading
        def grow():
            x = []
            while True: x.append(b'x' * 300_000)
        for _ in range(8): threading.Thread(target=grow).start()
    """,
    "the break": """
        import ctypes
        libc = ctypes.CDLL(None)
        libc.sbrk.restype = ctypes.c_void_p
        ctypes.memset(libc.sbrk(ctypes.c_ssize_t(500 << 20)), 1, 500 << 20)
    """,
    "a thread whose main thread has ended": """
        import ctypes, threading
        def grow():
            x = []
            while True: x.append(b'x' * 300_000)
        threading.Thread(target=grow).start()
        ctypes.CDLL(None).syscall(60, 0)
    """,
    "the stack": "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(lambda: f) + 1\nf(0)",
}
CPP_ATTACKS = {
    "one vector": "std::vector<char> v(600 << 20, 1); return v[5] - 1;",
    "a growing vector": "std::vector<long> v; for (;;) v.push_back(1);",
    "malloc": "for (;;) memset(malloc(1 << 20), 1, 1 << 20);",
    "a static array": "static char a[600 << 20]; for (size_t i = 0; i < sizeof a; i += 4096) a[i] = 1;",
    "one mapping, refused": "char *p = (char *)mmap(0, 1ul << 30, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(p, 1, 1ul << 30);",  # noqa: E501
    "mappings filled by the kernel": "for (;;) mmap(0, 8 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);",
    "huge pages": """
        char *p = (char *)mmap(0, 600 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(p, 600 << 20, MADV_HUGEPAGE);
        memset(p, 1, 600 << 20);
    """,
    "a mapping that grows": """
        size_t n = 1 << 20;
        char *p = (char *)mmap(0, n, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (;; n += 1 << 20) { p = (char *)mremap(p, n, n + (1 << 20), MREMAP_MAYMOVE); memset(p + n, 1, 1 << 20); }
    """,
    "the stack": "std::function<int(int)> f = [&](int n) { volatile char b[50000]; memset((char *)b, 1, 50000); return f(n + 1) + b[5]; }; return f(0);",  # noqa: E501
    "the break": "for (;;) memset(sbrk(1 << 20), 1, 1 << 20);",
    "eight threads": """
        std::vector<std::thread> t;
        for (int i = 0; i < 8; i++) t.emplace_back([] { for (;;) memset(malloc(1 << 18), 1, 1 << 18); });
        for (auto &one : t) one.join();
    """,
    "threads whose main thread has ended": """
        static pthread_t t;
        pthread_create(&t, 0, [](void *) -> void * { for (;;) memset(malloc(1 << 18), 1, 1 << 18); }, 0);
        pthread_exit(0);
    """,
    "a little, then a sleep, then much": """
        usleep(200000);
        memset(malloc(500 << 20), 1, 500 << 20);
        sleep(5);
    """,
}
C_HEADERS = ("pthread.h", "stdio.h", "stdlib.h", "string.h", "sys/mman.h", "unistd.h")
CPP_HEADERS = ("functional", "map", "string", "thread", "vector")


def cpp_program(body: str) -> str:
    """A program with the headers that it needs: to compile all of C++'s takes a second."""
    headers = C_HEADERS + (CPP_HEADERS if "std::" in body else ())
    lines = "".join(f"#include <{name}>\n" for name in headers)
    return f"{lines}#pragma GCC optimize(0)\nint main() {{\n{body}\n}}\n"


ATTACKS = [
    pytest.param(language, program, id=f"{language}-{name}", marks=[] if name == "one block" else [pytest.mark.slow])
    for language, table in (("python", PYTHON_ATTACKS), ("cpp", CPP_ATTACKS))
    for name, program in table.items()
]


@pytest.mark.parametrize("language, program", ATTACKS)
def test_a_program_that_exceeds_its_memory_is_killed_near_the_limit(language: str, program: str) -> None:
    program = cpp_program(program) if language == "cpp" else block(program)
    judgement = judge(program, language=language, tests=ONE, limits=LIMITS)
    assert judgement.verdicts == ["MLE"], judgement.reasons
    assert judgement.memory_mb[0] <= ALLOWED_MB


HONEST = {
    "python": {
        "nothing": "",
        "the whole standard library": "import asyncio, sqlite3, unittest, decimal",
        "215 MB of text, and the interpreter": "x = b'x' * (215 << 20)",
        "memory that is freed": "for _ in range(9): x = None; x = b'x' * (150 << 20)",
        "a reservation": "x = bytes(500 << 20)",
        "threads": "import threading\nfor _ in range(16): threading.Thread(target=lambda: [0] * 1000).start()",
    },
    "cpp": {
        "nothing": "",
        "230 MB of an array": "static char a[230 << 20]; memset(a, 1, sizeof a);",
        "230 MB of a vector": "std::vector<char> v(230 << 20, 1);",
        "memory that is freed": "for (int i = 0; i < 9; i++) std::vector<char> v(200 << 20, 1);",
        "a large static array": "static char a[600 << 20]; a[5] = 1;",
        "a static array of 2 GB": "static char a[2000u << 20]; a[5] = 1;",
        "a reservation": "auto p = new char[500 << 20]; p[5] = 1;",
        "threads": "std::thread t[31]; for (auto &one : t) one = std::thread([] { free(malloc(9)); });"
        "for (auto &one : t) one.join();",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("language, name", [(language, name) for language, table in HONEST.items() for name in table])
def test_a_program_within_its_memory_is_not_stopped(language: str, name: str) -> None:
    program = HONEST[language][name]
    program = cpp_program(f'{program}\nputs("1");') if language == "cpp" else f"{program}\nprint(1)"
    assert verdicts(program, language=language, tests=ONE, limits=LIMITS) == ["AC"]


@pytest.mark.slow
def test_the_limit_holds_beside_busy_processes_while_a_thread_of_the_judge_holds_the_interpreter_lock() -> None:
    programs = [
        Submission(block(PYTHON_ATTACKS[name]), "python", ONE, LIMITS) for name in ("one text", "eight threads")
    ]
    programs += [Submission(cpp_program(CPP_ATTACKS[name]), "cpp", ONE, LIMITS) for name in ("malloc", "eight threads")]
    done = threading.Event()

    def hold() -> None:
        libc = ctypes.PyDLL(None)  # unlike CDLL, it keeps the lock during a call
        while not done.is_set():
            libc.usleep(200_000)

    thread = threading.Thread(target=hold)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        thread.start()
        judgements = judge_many(programs)
    finally:
        done.set()
        thread.join()
        for process in busy:
            process.kill()
            process.wait()
    assert [judgement.verdicts for judgement in judgements] == [["MLE"]] * len(programs)
    assert max(judgement.memory_mb[0] for judgement in judgements) <= ALLOWED_MB


def test_a_program_has_no_huge_pages_and_its_watchdog_real_time_priority_where_allowed() -> None:
    zygote = Zygote(ZygoteSpec("python"), detect_capabilities().confinement)
    try:
        status = Path(f"/proc/{zygote.process}/status").read_text()
        policy = os.sched_getscheduler(zygote._watchdog)
    finally:
        zygote.close()
    assert "THP_enabled:\t1" not in status
    try:
        os.sched_setscheduler(thread := threading.get_native_id(), os.SCHED_FIFO, os.sched_param(1))
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        allowed = os.SCHED_FIFO
    except OSError:
        allowed = os.SCHED_OTHER
    assert policy == allowed


HIDDEN_PYTHON = """
import mmap
x = mmap.mmap(-1, 400 << 20, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
for i in range(0, 400 << 20, 4096):
    x[i] = 1
    if i % (8 << 20) == 0: x.madvise(mmap.MADV_DONTNEED)
print(1)
"""
HIDDEN_CPP = """
char *p = (char *)mmap(0, 400 << 20, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
for (long i = 0; i < 400 << 20; i += 4096) {
    p[i] = 1;
    if (i % (8 << 20) == 0) madvise(p, i + 4096, MADV_DONTNEED);
}
puts("1");
"""


@pytest.mark.parametrize("language, program", [("python", HIDDEN_PYTHON), ("cpp", cpp_program(HIDDEN_CPP))])
def test_a_program_can_hide_no_shared_memory(language: str, program: str) -> None:
    # Pages of shared memory stay allocated when the program gives back its view of them.
    assert verdicts(program, language=language, tests=ONE, limits=LIMITS) != ["AC"]


@pytest.mark.slow
def test_the_processes_of_a_compiler_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_MEMORY_MB", 40)
    judgement = judge(cpp_program("std::map<std::string, int> m; m[{}] = 1;"), language="cpp", tests=ONE)
    assert judgement.verdicts == ["CE"] and "stopped at 40 MB" in judgement.compile_output
