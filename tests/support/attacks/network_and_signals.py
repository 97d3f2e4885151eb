"""Python programs that reach out: to the network, and to other processes."""

from __future__ import annotations

from tests.support.attacks.case import attempt, read_cases

NETWORK = read_cases(
    r"""
    == tcp: a service on this machine
    import socket; server = socket.socket(); server.connect((b'127.0.0.1', @PORT@)); server.send(b'hostile')

    == tcp6: the same by its other address
    import socket
    server = socket.socket(socket.AF_INET6)
    server.connect((b'::ffff:127.0.0.1', @PORT@))
    server.send(b'hostile')

    == udp: a datagram needs no connection
    import socket
    must(socket.socket(type=socket.SOCK_DGRAM).sendto(b'hostile', (b'127.0.0.1', @UDP_PORT@)) == 7)

    == unix_socket: a service with a path, as Docker's is
    import socket; socket.socket(socket.AF_UNIX).connect('@UNIX_PATH@')

    == abstract_socket: a service without a path
    import socket; socket.socket(socket.AF_UNIX).connect('\0@ABSTRACT@')

    == tcp_fast_open: data before any connect
    import socket; must(socket.socket().sendto(b'hostile', socket.MSG_FASTOPEN, (b'127.0.0.1', @PORT@)) > 0)

    == tcp_by_number: past the socket module
    -- needs: x86_64
    handle = libc("syscall", 41, 2, 1, 0)
    libc("syscall", 42, handle, b"\2\0" + (@PORT@).to_bytes(2, "big") + b"\x7f\0\0\1" + bytes(8), 16)
    os.write(handle, b"hostile")

    == listener: a door for others
    import socket; server = socket.socket(); server.bind((b'0.0.0.0', 0)); server.listen()

    == abstract_listener: a meeting point of two programs
    import socket; server = socket.socket(socket.AF_UNIX); server.bind('\0hostile-meeting'); server.listen()

    == names: a question to the name server carries data out
    import socket; must(socket.gethostbyname(b'example.com'))

    == interfaces: what network there is
    import socket; must(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).bind((0, 0)) is None)

    == raw_packets: below every protocol
    import socket; must(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3).fileno() >= 0)

    == host_of_the_machine: the hypervisor's own socket family
    import socket; must(socket.socket(socket.AF_VSOCK).fileno() >= 0)

    == kernel_crypto: a socket family full of kernel code
    import socket; must(socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET).fileno() >= 0)
    """,
    wrap=attempt,
)

OTHERS = [
    # SIGURG is ignored by who does not ask for it; a parent that dies would give SE, which is never right.
    *read_cases(
        r"""
    == kill_the_parent: who started the program
    os.kill(os.getppid(), signal.SIGKILL); time.sleep(0.1)

    == signal_everybody: kill(-1)
    os.kill(-1, signal.SIGURG)

    == kill_the_group: the process group may be the judge's
    -- plain: true, allowed: RE WA
    import os, signal
    os.killpg(0, signal.SIGKILL)
    print('breached')

    == signal_neighbours: signals to processes with nearby process IDs
    for pid in range(2, 40_000):
        if pid == os.getpid(): continue
        try: os.kill(pid, signal.SIGURG)
        except OSError: continue
        return
    must(False)

    == signal_a_thread: tgkill instead of kill
    -- needs: x86_64
    libc('syscall', 234, os.getppid(), os.getppid(), signal.SIGKILL); time.sleep(0.1)

    == signal_by_handle: pidfd_send_signal instead of kill
    signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGKILL); time.sleep(0.1)

    == queue_a_signal: rt_sigqueueinfo instead of kill
    libc('sigqueue', os.getppid(), signal.SIGKILL, 0); time.sleep(0.1)

    == signal_by_descriptor: the kernel sends it when a pipe has data
    -- plain: true
    import fcntl, os, signal, socket, struct, time
    pairs = []
    for owner in (os.getppid(), -os.getpgid(os.getppid()), @RUNNER_PID@):
        for kind in ("pipe", "pair"):
            try:
                reader, writer = os.pipe() if kind == "pipe" else (end.detach() for end in socket.socketpair())
                fcntl.fcntl(reader, fcntl.F_SETOWN, owner)
                fcntl.fcntl(reader, 10, signal.SIGURG if owner == @RUNNER_PID@ else signal.SIGKILL)
                fcntl.fcntl(reader, fcntl.F_SETFL, fcntl.fcntl(reader, fcntl.F_GETFL) | os.O_ASYNC)
                os.write(writer, b"x")
            except (OSError, ValueError): pass
    time.sleep(0.2)
    print("held")

    == signal_by_child_end: a child's end sends its parent any signal that clone was told
    -- plain: true, needs: x86_64
    import ctypes, os, signal, time
    libc = ctypes.CDLL(None)
    # CLONE_PARENT: the new process is a child of the judge's, and its end is reported there.
    child = libc.syscall(56, 0x8000 | signal.SIGKILL, 0, 0, 0, 0)
    if child == 0: libc._exit(7)
    time.sleep(0.2)
    print("held")

    == sibling_of_itself: a second child for the judge, with an exit code of its choice
    -- plain: true, needs: x86_64
    import ctypes, os, time
    libc = ctypes.CDLL(None)
    child = libc.syscall(56, 0x8000 | 17, 0, 0, 0, 0)
    if child == 0:
        print("breached", flush=True)
        os._exit(0)
    time.sleep(0.3)
    os._exit(1)

    == trace_the_parent: a debugger sees all
    libc('ptrace', 16, os.getppid(), 0, 0)

    == memory_of_the_parent: read from outside
    start = int(next(line for line in open(f"/proc/{os.getppid()}/maps")).split("-")[0], 16)
    with open(f"/proc/{os.getppid()}/mem", "rb", buffering=0) as memory:
        memory.seek(start)
        must(memory.read(4) == b"\x7fELF")

    == memory_of_the_parent_by_number: process_vm_readv needs no file: the parent's interpreter lies where this one does
    here = ctypes.create_string_buffer(64)
    class Piece(ctypes.Structure): _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t)]
    mine, theirs = Piece(ctypes.addressof(here), 64), Piece(id(None) & ~63, 64)
    must(libc("process_vm_readv", os.getppid(), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) == 64)

    == descriptors_of_the_parent: pidfd_getfd takes them out of another process
    libc('syscall', 438, os.pidfd_open(os.getppid()), 0, 0)

    == descriptors_of_the_parent_by_path: /proc/PID/fd opens them again
    must(os.listdir(f'/proc/{os.getppid()}/fd')); must(os.open(f'/proc/{os.getppid()}/fd/0', os.O_RDONLY))

    == limits_of_the_parent: a judge without file descriptors could judge no further program
    import resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (3, 3))

    == priority_of_the_parent: a judge that waits behind all others
    os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)

    == cores_of_the_parent: a judge on one core
    os.sched_setaffinity(os.getppid(), {0})

    == who_else_is_there: the processes of the machine by name
    must(len([pid for pid in os.listdir('/proc') if pid.isdigit() and open(f'/proc/{pid}/comm').read()]) > 3)
    """,
        wrap=attempt,
    ),
]

CASES = NETWORK + OTHERS
