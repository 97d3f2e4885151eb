"""Python programs that want more processes, threads, descriptors or priority, or to outlive their judgement."""

from __future__ import annotations

from tests.support.attacks.case import attempt, read_cases

PROCESSES = read_cases(
    r"""
    == thread_bomb: more threads than are allowed
    -- allowed: WA RE TLE MLE
    import threading
    threading.stack_size(1 << 16)
    for _ in range(600): threading.Thread(target=time.sleep, args=(20,), daemon=True).start()

    == fork_bomb: a few hundred children at once
    -- allowed: WA RE TLE MLE
    for _ in range(300):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)

    == raw_clone_bomb: past every wrapper: clone by number
    -- allowed: WA RE TLE MLE, needs: x86_64
    for _ in range(300):
        child = libc("syscall", 56, 17, 0, 0, 0, 0)
        if child == 0: time.sleep(20); os._exit(0)

    == daemon: two forks and a session of its own: nothing of it may be there afterwards
    -- plain: true, allowed: AC WA RE TLE, output: "ok\n"
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

    == daemon_of_many_sessions: a chain of orphans, each in a new session: a sweep that looks once misses some
    -- plain: true, allowed: AC WA RE TLE, output: "ok\n"
    import ctypes, os, time
    ctypes.CDLL(None).prctl(15, b"hostile-chain", 0, 0, 0)
    print("ok", flush=True)
    end = time.time() + 100
    if os.fork() == 0:
        while time.time() < end:
            os.setsid()
            if os.fork(): os._exit(0)
            time.sleep(0.002)

    == child_keeps_the_output_open: who waits for the end of the output waits for ever
    -- plain: true, allowed: AC WA RE TLE, output: "ok\n"
    import ctypes, os, time
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"hostile-output", 0, 0, 0)
        time.sleep(120)
        os._exit(0)
    print("ok")

    == child_writes_later: the output grows after the end of the program
    -- plain: true, allowed: AC WA RE TLE OLE, output: "ok\n"
    import ctypes, os, time
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"hostile-writer", 0, 0, 0)
        for _ in range(400):
            time.sleep(0.005)
            os.write(1, b"later\n")
        os._exit(0)
    print("ok")

    == descriptors: more open files than anybody needs
    -- allowed: WA RE TLE MLE
    import resource
    try: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 16, 1 << 16))
    except (ValueError, OSError): pass
    for _ in range(20_000): os.dup(1)

    == better_priority: ahead of everybody else
    os.nice(-10)

    == real_time_priority: ahead of everybody else, for good
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    """,
    wrap=attempt,
)

CASES = PROCESSES
