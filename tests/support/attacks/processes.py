"""Python programs that want more processes, threads, descriptors or priority, or to outlive their judgement."""

from __future__ import annotations

from tests.support.attacks.case import OK, Case, attempt

# A program may not get what it asked for (WA, RE), or be stopped while it asks.
NOT_GIVEN = "WA RE TLE MLE"

PROCESSES = [
    Case(
        "thread_bomb",
        "more threads than are allowed",
        attempt("""
            import threading
            threading.stack_size(1 << 16)
            for _ in range(600): threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
        """),
        allowed=NOT_GIVEN,
    ),
    Case(
        "fork_bomb",
        "a few hundred children at once",
        attempt("""
            for _ in range(300):
                if os.fork() == 0:
                    time.sleep(20)
                    os._exit(0)
        """),
        allowed=NOT_GIVEN,
    ),
    Case(
        "doubling_fork_bomb",
        "every child forks as well: 512 of them",
        """
        import ctypes, os, time
        ctypes.CDLL(None).prctl(15, b"hostile", 0, 0, 0)
        first = os.getpid()
        for _ in range(9): os.fork()
        time.sleep(1)
        if os.getpid() == first: print("breached")
        else: time.sleep(20)
        """,
        allowed=NOT_GIVEN,
    ),
    Case(
        "raw_clone_bomb",
        "past every wrapper: clone by number",
        attempt("""
            for _ in range(300):
                child = libc("syscall", 56, 17, 0, 0, 0, 0)
                if child == 0: time.sleep(20); os._exit(0)
        """),
        allowed=NOT_GIVEN,
        needs="x86_64",
    ),
    Case(
        "process_pool",
        "multiprocessing, two hundred at once",
        attempt("""
            import multiprocessing
            context = multiprocessing.get_context("fork")
            for _ in range(200): context.Process(target=time.sleep, args=(20,), daemon=True).start()
        """),
        allowed=NOT_GIVEN,
    ),
    Case(
        "shell_bomb",
        "subprocess, two hundred at once",
        attempt("""
            import subprocess
            for _ in range(200): subprocess.Popen(["/bin/sleep", "20.7183"])
        """),
        allowed=NOT_GIVEN,
    ),
    Case(
        "daemon",
        "two forks and a session of its own: nothing of it may be there afterwards",
        """
        import ctypes, os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                ctypes.CDLL(None).prctl(15, b"hostile-daemon", 0, 0, 0)
                for handle in range(256):
                    try: os.close(handle)
                    except OSError: pass
                time.sleep(120)
            os._exit(0)
        time.sleep(0.2)
        print("ok")
        """,
        tests=OK,
        allowed="AC WA RE TLE",
    ),
    Case(
        "daemon_of_many_sessions",
        "a chain of orphans, each in a new session: a sweep that looks once misses some",
        """
        import ctypes, os, time
        ctypes.CDLL(None).prctl(15, b"hostile-chain", 0, 0, 0)
        print("ok", flush=True)
        end = time.time() + 100
        if os.fork() == 0:
            while time.time() < end:
                os.setsid()
                if os.fork(): os._exit(0)
                time.sleep(0.002)
        """,
        tests=OK,
        allowed="AC WA RE TLE",
    ),
    Case(
        "child_keeps_the_output_open",
        "who waits for the end of the output waits for ever",
        """
        import ctypes, os, time
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, b"hostile-output", 0, 0, 0)
            time.sleep(120)
            os._exit(0)
        print("ok")
        """,
        tests=OK,
        allowed="AC WA RE TLE",
    ),
    Case(
        "child_writes_later",
        "the output grows after the end of the program",
        """
        import ctypes, os, time
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, b"hostile-writer", 0, 0, 0)
            for _ in range(400):
                time.sleep(0.005)
                os.write(1, b"later\\n")
            os._exit(0)
        print("ok")
        """,
        tests=OK,
        allowed="AC WA RE TLE OLE",
    ),
    Case(
        "descriptors",
        "more open files than anybody needs",
        attempt("""
            import resource
            try: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 16, 1 << 16))
            except (ValueError, OSError): pass
            for _ in range(20_000): os.dup(1)
        """),
        allowed=NOT_GIVEN,
    ),
    Case("better_priority", "ahead of everybody else", attempt("os.nice(-10)")),
    Case(
        "real_time_priority",
        "ahead of everybody else, for good",
        attempt("os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))"),
    ),
]

CASES = PROCESSES
