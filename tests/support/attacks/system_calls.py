"""Python programs that ask the kernel for what no program needs, or become another program."""

from __future__ import annotations

from tests.support.attacks.case import Case, attempt, read_cases

# name, number on x86_64, words, what it is good for
_SYSTEM_CALLS = [
    ("io_uring", 425, "8, ctypes.create_string_buffer(120)", "does its work where no filter looks"),
    ("new_user_namespace", 272, "0x10000000", "a fresh set of privileges"),
    ("new_network_namespace", 272, "0x40000000", "a network of its own, if privileged"),
    ("new_mount_namespace", 272, "0x00020000", "a file system of its own, if privileged"),
    ("keyring", 248, "b'user', b'hostile', b'data', 4, -4", "memory in the kernel that outlives the process"),
    ("page_faults", 323, "1", "stops the kernel in the middle of a copy"),
    (
        "bpf",
        321,
        "0, ctypes.create_string_buffer(b'\\1\\0\\0\\0\\4\\0\\0\\0\\4\\0\\0\\0\\1' + bytes(100)), 72",
        "code in the kernel",
    ),
    (
        "performance_events",
        298,
        "ctypes.create_string_buffer(b'\\1\\0\\0\\0\\x70' + bytes(200)), 0, -1, -1, 0",
        "side channels and kernel bugs",
    ),
    ("root_again", 105, "0", "setuid(0)"),
    ("kernel_log", 103, "10, 0, 0", "addresses and names of the host"),
    ("ports", 173, "0x80, 1, 1", "the machine's hardware"),
    ("host_name", 170, "os.uname().nodename.encode(), len(os.uname().nodename)", "a name that all processes share"),
    ("personality", 135, "0x0040000", "switches address randomisation off for what is executed next"),
    ("file_events", 300, "0, 0", "sees every open of the machine"),
    ("shared_memory_segment", 29, "0x68780001, 4096, 0o1666", "stays until the machine restarts"),
    ("semaphores", 64, "0x68780002, 1, 0o1666", "stay until the machine restarts"),
    ("message_queue", 68, "0x68780003, 0o1666", "stays until the machine restarts"),
    ("posix_queue", 240, "b'hostile-queue', 0o102, 0o600, 0", "stays until the machine restarts"),
    ("secret_memory", 447, "0", "memory that no limit counts"),
]

SYSTEM_CALLS = [
    Case("system_call_" + name, why, attempt(f"libc('syscall', {number}, {words})"), needs="x86_64")
    for name, number, words, why in _SYSTEM_CALLS
] + [
    Case(
        "mounts",
        "a file system over the one that is there",
        attempt("libc('mount', b'none', b'/tmp', b'tmpfs', 0, b'size=4k')"),
    ),
    Case("device_file", "a disk under a new name", attempt("os.mknod('hostile-device', 0o020666, os.makedev(1, 5))")),
]

PROGRAMS = read_cases(
    r"""
    == shell: system(3)
    must(os.system('exit 0') == 0)

    == replaced_by_a_shell: the program becomes another
    -- plain: true
    import os
    os.execv('/bin/sh', ['sh', '-c', 'echo breached'])

    == spawned: posix_spawn
    must(os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 0'], {}), 0)[1] == 0)

    == program_from_memory: a program that no path names
    handle = os.memfd_create("hostile")
    os.write(handle, open("/bin/true", "rb").read())
    if os.fork() == 0: os.execve(handle, ["true"], {})
    must(os.wait()[1] == 0)
    """,
    wrap=attempt,
)

CASES = SYSTEM_CALLS + PROGRAMS
