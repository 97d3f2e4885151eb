"""Python programs that want more time than they were given, or that never end."""

from __future__ import annotations

from tests.support.attacks.case import OK, Case, read_cases

TIME = [
    *read_cases(
        """
    == spin: plain
    while True: pass

    == spin_in_sum: C code that looks at no signal
    print(sum(range(10**13)))

    == huge_power: a number of a gigabyte
    -- allowed: TLE MLE, limits: {time_s: 0.2}
    print(len(str(7 ** (10 ** 9))))

    == sleep: no CPU time at all
    import time
    time.sleep(60)
    print('breached')
    """,
        allowed="TLE",
    ),
    Case(
        "ignore_input_and_sleep",
        "eight megabytes of input that the program does not read",
        """
        import time
        time.sleep(60)
        """,
        tests=({"input": "7\n" * 4_000_000, "output": "ok\n"},),
        allowed="TLE",
    ),
    *read_cases(
        r"""
    == deaf_spin: every signal that can be ignored is ignored
    import signal
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    while True: pass

    == masked_sleep: every signal that can be blocked is blocked
    import signal, time
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(60)

    == raised_time_limit: the CPU limit is lifted by the program itself
    import resource
    try: resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError): pass
    while True: pass

    == interrupted_and_goes_on: a timer's exception is caught, again and again
    while True:
        try:
            while True: pass
        except BaseException:
            pass

    == work_in_threads: four threads that share the work, but not the bill
    -- limits: {memory_mb: 256, wall_s: 6.0}, output: "ok\n"
    import hashlib, threading
    def work():
        for _ in range(12): hashlib.sha512(bytes(24 << 20)).digest()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print("ok")

    == work_in_children: CPU time of children that are not waited for
    -- allowed: RE TLE WA
    import ctypes, os, time
    ctypes.CDLL(None).prctl(15, b"hostile", 0, 0, 0)
    for _ in range(6):
        if os.fork() == 0:
            end = time.process_time() + 3
            while time.process_time() < end: pass
            os._exit(0)
    time.sleep(0.8)
    print("breached")

    == thread_outlives_main: the answer stands, but the program never ends
    -- output: "ok\n"
    import threading, time
    threading.Thread(target=time.sleep, args=(60,)).start()
    print('ok', flush=True)

    == exit_handler_spins: the answer stands, but the program never ends
    -- output: "ok\n"
    import atexit
    @atexit.register
    def spin():
        while True: pass
    print('ok', flush=True)

    == finaliser_spins: the program ends in the interpreter's own clean-up
    -- allowed: TLE AC, output: "ok\n"
    class Last:
        def __del__(self):
            while True: pass
    last = Last()
    print('ok', flush=True)

    == leader_is_gone: the main thread ends alone; another one spins in a process that looks dead
    -- tests: OK, allowed: TLE RE, limits: {time_s: 0.2}, needs: x86_64
    import ctypes, threading
    def spin():
        while True: pass
    print("ok", flush=True)
    threading.Thread(target=spin, daemon=True).start()
    ctypes.CDLL(None).syscall(60, 0)

    == stops_itself: a stopped process uses no CPU time and does not answer
    -- allowed: TLE RE WA
    import os, signal
    os.kill(os.getpid(), signal.SIGSTOP)
    print('held')

    == slow_exception: the text of an exception takes for ever
    -- allowed: TLE RE, limits: {time_s: 0.2}
    class Slow(Exception):
        def __str__(self):
            while True: pass
        __repr__ = __str__
    raise Slow

    == large_exception: the text of an exception is sixty megabytes
    -- allowed: RE OLE MLE TLE
    raise ValueError('x' * (60 << 20))
    """,
        named={"OK": OK},
        allowed="TLE",
    ),
]

CASES = TIME
