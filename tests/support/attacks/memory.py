"""Python programs that want more memory than they were given."""

from __future__ import annotations

from tests.support.attacks.case import Case, attempt, block, read_cases

MEMORY = [
    *read_cases(
        """
    == one_large_block: a gigabyte of heap, touched
    -- allowed: MLE WA
    block = bytearray(1 << 30); block[::4096] = b'x' * (1 << 18)

    == memory_file: memory in a file that no path names and no address space counts
    -- allowed: WA RE TLE OLE
    handle = os.memfd_create("hostile-memory")
    for _ in range(400): must(os.write(handle, bytes(1 << 20)) == 1 << 20)

    == memory_in_pipes: memory of the kernel: pipes filled to the brim
    import fcntl
    filled = 0
    kept = []
    while filled < 32 << 20:
        reader, writer = os.pipe()
        kept += reader, writer
        try: fcntl.fcntl(writer, 1031, 1 << 20)
        except OSError: pass
        os.set_blocking(writer, False)
        filled += os.write(writer, bytes(1 << 20))

    == memory_in_socket_pairs: memory of the kernel: sockets filled to the brim
    import socket
    kept, filled = [], 0
    while filled < 64 << 20:
        pair = socket.socketpair()
        kept.append(pair)
        pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
        pair[0].setblocking(False)
        try:
            while True: filled += pair[0].send(bytes(1 << 16))
        except BlockingIOError:
            pass

    == shared_memory_object: memory in /dev/shm that would stay
    -- allowed: WA RE TLE MLE OLE
    from multiprocessing import shared_memory
    area = shared_memory.SharedMemory("hostile-shared", create=True, size=300 << 20)
    for page in range(0, 300 << 20, 4096): area.buf[page] = 1
    area.close()

    == children_share_the_bill: each process keeps its limit, together they do not
    -- limits: {memory_mb: 128, wall_s: 3.0}
    reader, writer = os.pipe()
    for _ in range(12):
        if os.fork() == 0:
            try:
                block = bytearray(80 << 20)
                block[::4096] = b"x" * len(block[::4096])
                os.write(writer, b"x")
                time.sleep(5)
            finally:
                os._exit(0)
    time.sleep(1)
    must(len(os.read(reader, 100)) > 4)

    == recursion_without_end: a million frames
    -- plain: true, allowed: RE MLE TLE
    import sys
    sys.setrecursionlimit(10**9)
    def f(n): return f(n + 1) + 1
    print(f(0))

    == recursion_in_c: the C stack, through the hash of a tuple of tuples
    -- plain: true, allowed: RE MLE TLE, limits: {time_s: 2.0, wall_s: 6.0}
    import gc
    gc.disable()
    nested = ()
    for _ in range(1_500_000):
        nested = (nested,)
    print(hash(nested))

    == raised_address_limit: the limits are lifted by the program itself
    -- allowed: WA RE MLE
    import resource
    for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
        try: resource.setrlimit(which, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except (ValueError, OSError): pass
    block = bytearray(1 << 30)
    block[::4096] = b"x" * (1 << 18)
    """,
        wrap=attempt,
        allowed="WA RE TLE MLE",
    ),
    Case(
        "deep_source",
        "the parser's memory: a hundred thousand brackets",
        "x = " + "(" * 100_000 + "1" + ")" * 100_000,
        allowed="CE RE MLE",
    ),
    Case(
        "wide_expression",
        "the compiler's stack: two hundred thousand signs",
        "x = "
        + "-" * 200_000
        + block("""
            1
            print('breached')
        """),
        allowed="CE RE MLE TLE",
    ),
]

CASES = MEMORY
