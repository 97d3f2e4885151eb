"""Python programs that compare, recurse, compute and import as people do; none may be punished."""

from __future__ import annotations

from tests.support.attacks.case import OK, block, read_cases
from tests.support.honest.case import gives, honest
from tests.support.honest.python_streams import MANY

COMPARING = [
    *read_cases(
        r"""
    == floats_nearly: the seventh digit
    -- output: "0.3 0.3333333\n"
    print(0.1 + 0.2, 1 / 3)

    == any_order: lines in another order
    -- comparison: unordered, output: "a\nb\nb\n"
    print('b', 'a', 'b', sep='\n')
    """,
        make=honest,
        comparison="float",
    ),
    honest(
        "checked",
        "one of several right answers",
        """
        n = int(input())
        print(n - 1, 1)
        """,
        gives("2 2\n", "4\n"),
        checker=block("""
            def check(input, output, expected):
                a, b = map(int, output.split())
                return a + b == int(input) and a > 0 and b > 0
        """),
    ),
    *read_cases(
        """
    == one_fails_alone: an error in one test is an error in one test
    -- allowed: [AC, RE, AC],
    -- tests: [{input: "2", output: "5"}, {input: "0", output: "0"}, {input: "5", output: "2"}]
    n = int(input())
    print(10 // n)

    == one_is_slow_alone: a limit is a test's own
    -- allowed: [AC, TLE, AC], limits: {time_s: 0.5},
    -- tests: [{input: "1", output: "1"}, {input: "0", output: "0"}, {input: "2", output: "2"}]
    n = int(input())
    while n == 0: pass
    print(n)
    """,
        make=honest,
    ),
]

LIMITS = read_cases(
    r"""
    == recurses_deeply: a hundred thousand frames
    -- output: "100000\n"
    import sys
    sys.setrecursionlimit(300_000)
    def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
    print(depth(100_000))

    == recurses_in_a_huge_thread: half a gigabyte of stack, as people write it, little of which is used
    -- output: "20000\n"
    import sys, threading
    sys.setrecursionlimit(10**7)
    threading.stack_size(1 << 29)
    def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
    thread = threading.Thread(target=lambda: print(depth(20_000)))
    thread.start()
    thread.join()

    == raises_its_stack_limit: the idiom with resource
    -- output: "30000\n"
    import resource, sys
    resource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    sys.setrecursionlimit(10**6)
    def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
    print(depth(30_000))

    == has_much_memory: 200 of 256 megabytes
    -- limits: {memory_mb: 256, time_s: 3.0}, output: "ok\n"
    block = bytearray(200 << 20)
    block[::4096] = b'x' * len(block[::4096])
    print('ok')

    == asks_and_does_without: a MemoryError that is caught
    -- output: "ok\n"
    try:
        block = bytearray(8 << 30)
    except MemoryError:
        block = b''
    print('ok')

    == takes_its_time: 0.6 of 1.0 seconds
    -- limits: {time_s: 1.0, wall_s: 10.0}, output: "ok\n"
    import time
    while time.process_time() < 0.6: pass
    print('ok')

    == sleeps_a_little: what sleeps uses no time
    -- limits: {time_s: 0.5, wall_s: 5.0}, output: "ok\n"
    import time
    time.sleep(0.7)
    print('ok')

    == large_numbers: more digits than the interpreter prints by default
    -- output: "16902\n"
    import sys
    sys.set_int_max_str_digits(0)
    print(len(str(7 ** 20_000)))

    == daemon_thread: a thread that may be left alone at the end
    -- output: "ok\n"
    import threading, time
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    print('ok')
    """,
    make=honest,
)

_MODULES = """
    math cmath decimal fractions heapq itertools dataclasses typing re bisect collections functools statistics datetime
    random string struct hashlib operator copy enum abc array queue json time calendar textwrap contextlib io os sys
    threading unicodedata zlib base64 binascii secrets numbers types inspect traceback warnings weakref pprint graphlib
    timeit uuid csv concurrent.futures asyncio multiprocessing subprocess socket signal logging argparse pathlib
    tempfile shutil platform pickle select ctypes gc locale bz2 lzma difflib
"""

MODULES = [
    honest(
        "imports_everything",
        "what solutions begin with, whether they need it or not",
        "".join(f"import {name}\n" for name in _MODULES.split()) + "print('ok')",
        OK,
        limits={"time_s": 3.0},
    ),
    *read_cases(
        r"""
    == imports_by_star: from math import *
    -- output: "6 2 6\n6\n"
    from math import *
    from collections import *
    from itertools import *
    from heapq import *
    from bisect import *
    from functools import *
    from typing import *
    print(gcd(12, 18), Counter('aab')['a'], len(list(permutations(range(3)))))
    print(reduce(lambda a, b: a * b, [1, 2, 3]))

    == random_without_seed: Miller and Rabin need the system's randomness
    -- output: "8 True True\n"
    import os, random, secrets
    print(len(os.urandom(8)), 0 <= random.random() < 1, secrets.randbelow(10) < 10)

    == time_and_date: clocks
    -- output: "2024-03-01 True\nTrue True\n"
    import datetime, time
    start = time.perf_counter()
    print(datetime.date(2024, 2, 29) + datetime.timedelta(days=1), datetime.datetime.now().year > 2000)
    print(time.time() > 0, time.strftime('%Y') > '2000')

    == threads: eight threads and a queue
    -- limits: {processes: 32}, output: "328350\n"
    import queue, threading
    work, done = queue.Queue(), []
    def run():
        while True:
            n = work.get()
            if n is None: return
            done.append(n * n)
    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads: thread.start()
    for n in range(100): work.put(n)
    for _ in threads: work.put(None)
    for thread in threads: thread.join()
    print(sum(done))

    == asynchronous: asyncio, which wants a pair of sockets for itself
    -- output: "328350\n"
    import asyncio
    async def square(n):
        await asyncio.sleep(0.001)
        return n * n
    async def main(): print(sum(await asyncio.gather(*(square(n) for n in range(100)))))
    asyncio.run(main())

    == alarm_of_its_own: a signal handler within the program
    -- output: "ok\n"
    import signal
    def ring(*words): raise TimeoutError
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        while True:
            x = 1
    except TimeoutError:
        print('ok')

    == traceback_of_its_own: prints an exception and goes on
    -- output: "ZeroDivisionError: division by zero\n"
    import traceback
    try: 1 / 0
    except ZeroDivisionError: print(traceback.format_exc().splitlines()[-1])

    == exec_and_eval: the program's own code from text
    -- output: "42 True\n"
    exec('def f(n): return n * 2')
    print(eval('f(21)'), compile('1+1', '', 'eval') is not None)

    == source_encoding: letters of another script in the source, and a comment that says so
    -- output: "été 3\n"
    # -*- coding: utf-8 -*-
    λ = 'été'
    print(λ, len(λ))

    == numpy_sums: arrays
    -- needs: numpy, limits: {memory_mb: 512, time_s: 4.0}, output: "66 366 2\n"
    import numpy as np
    a = np.arange(12).reshape(3, 4)
    print(a.sum(), (a @ a.T)[2, 2], np.linalg.matrix_rank(a))
    """,
        make=honest,
        tests=MANY,
    ),
]

CASES = COMPARING + LIMITS + MODULES
