"""Build the system-call filters of programs and compilers (seccomp-bpf, Linux on x86-64 and aarch64).

Two filters are stacked. The zygote loads the broad one once, since it must fork, wait and kill; that takes most of a
millisecond. Every program's process loads the narrow one before it runs: a dozen instructions that forbid these calls
again. A forbidden call fails with an error number and does not kill, because honest programs probe: the C library tries
clone3, and Python stats paths that may not exist.

Every call that opens, lists or changes a path is refused, so a program has only its standard streams.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Sequence

# System call numbers by name: x86-64 (arch/x86/entry/syscalls/syscall_64.tbl), aarch64 (the generic table).
# None: the architecture has no such call.
_Numbers = dict[str, tuple[int | None, int | None]]
# Allowed with any arguments, to programs and zygotes.
_PLAIN: _Numbers = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "poll": (7, None),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "preadv": (295, 69),
    "pwritev": (296, 70),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "select": (23, None),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "msync": (26, 227),
    "mincore": (27, 232),
    "madvise": (28, 233),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "pause": (34, None),
    "nanosleep": (35, 101),
    "getitimer": (36, 102),
    "alarm": (37, None),
    "setitimer": (38, 103),
    "getpid": (39, 172),
    "recvfrom": (45, 207),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "shutdown": (48, 210),
    "getsockname": (51, 204),
    "getpeername": (52, 205),
    "getsockopt": (55, 209),
    "exit": (60, 93),
    "wait4": (61, 260),
    "waitid": (247, 95),
    "uname": (63, 160),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "ftruncate": (77, 46),
    "fadvise64": (221, 223),
    "getcwd": (79, 17),
    "gettimeofday": (96, 169),
    "getrlimit": (97, 163),
    "setrlimit": (160, 164),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "times": (100, 153),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "getppid": (110, 173),
    "getpgrp": (111, None),
    "getgroups": (115, 158),
    "getresuid": (118, 148),
    "getresgid": (120, 150),
    "getpgid": (121, 155),
    "getsid": (124, 156),
    "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132),
    "getpriority": (140, 141),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126),
    "arch_prctl": (158, None),
    "gettid": (186, 178),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "epoll_create": (213, None),
    "set_tid_address": (218, 96),
    "restart_syscall": (219, 128),
    "timer_create": (222, 107),
    "timer_settime": (223, 110),
    "timer_gettime": (224, 108),
    "timer_getoverrun": (225, 109),
    "timer_delete": (226, 111),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "epoll_wait": (232, None),
    "epoll_ctl": (233, 21),
    "epoll_pwait": (281, 22),
    "epoll_create1": (291, 20),
    "set_robust_list": (273, 99),
    "get_robust_list": (274, 100),
    "timerfd_create": (283, 85),
    "timerfd_settime": (286, 86),
    "timerfd_gettime": (287, 87),
    "eventfd2": (290, 19),
    "getcpu": (309, 168),
    "getrandom": (318, 278),
    "membarrier": (324, 283),
    "rseq": (334, 293),
    "close_range": (436, 436),
}
# Allowed to zygotes; the narrow filter forbids them to programs.
_ZYGOTE: _Numbers = {
    "kill": (62, 129),
    "tgkill": (234, 131),
    "clone": (56, 220),
    "fork": (57, None),
    "vfork": (58, None),
    "pidfd_open": (434, 434),
    "seccomp": (317, 277),
}
# Allowed with some arguments.
_GUARDED: _Numbers = {
    "ioctl": (16, 29),
    "sendto": (44, 206),
    "socketpair": (53, 199),
    "fcntl": (72, 25),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "execveat": (322, 281),
    "clone3": (435, 435),
}
_COMPILER: _Numbers = {
    "open": (2, None),
    "openat": (257, 56),
    "stat": (4, None),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "flock": (73, 32),
    "truncate": (76, 45),
    "getdents64": (217, 61),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "creat": (85, None),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "umask": (95, 166),
    "copy_file_range": (326, 285),
    "sendfile": (40, 71),
    "statfs": (137, 43),
    "fstatfs": (138, 44),
    "utimensat": (280, 88),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "execve": (59, 221),
    "fallocate": (285, 47),
}
_NUMBERS = {**_PLAIN, **_ZYGOTE, **_GUARDED, **_COMPILER}

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7), "arm64": (1, 0xC00000B7)}

_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NR, _ARCH, _ARGS = 0, 4, 16  # offsets in struct seccomp_data; the low halves of its arguments (little endian)

_CLONE_THREAD = 0x00010000
_AF_UNIX, _SOCK_STREAM, _SOCK_SEQPACKET = 1, 1, 5
_AT_EMPTY_PATH = 0x1000
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, locks, F_DUPFD_CLOEXEC, pipe sizes, F_GET_SEALS. Not F_SETOWN and
# F_SETSIG, which make the kernel send signals to other processes, nor locks that outlive their process.
_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1031, 1032, 1034)
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX.
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_GET_TIMERSLACK, PR_SET_NO_NEW_PRIVS, PR_SET_VMA.
_PRCTL = (2, 3, 15, 16, 30, 38, 0x53564D41)
_PR_SET_SECCOMP, _PR_SET_PDEATHSIG = 22, 1
_ANY_BIT = 0xFFFFFFFF
# Files shared or private, and private memory. Shared memory stays allocated after MADV_DONTNEED, while it counts as no
# longer resident. (MAP_SHARED 1, MAP_PRIVATE 2, MAP_SHARED_VALIDATE 3, MAP_ANONYMOUS 0x20)
_MAP_TYPE = 0x2F
_MAP_TYPES = (0x01, 0x02, 0x03, 0x22)
# MADV_NORMAL, RANDOM, SEQUENTIAL, WILLNEED, DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE. Not MADV_PAGEOUT, which hides memory
# in the swap space.
_MADVISE = (0, 1, 2, 3, 4, 8, 14, 15)
PROGRAM_FD = 4  # descriptor of the compiled program in the launcher

# Placeholder in the narrow filter for the program's own process number, which is known only after the fork.
OWN_PID = 0x7E57C0DE


def supported() -> bool:
    """Whether filters exist for this machine's processor."""
    return platform.system() == "Linux" and platform.machine() in _ARCHITECTURES


def zygote_filter() -> bytes:
    """Return the filter of a zygote: what programs need, and fork, wait and kill."""
    return _Filter().allow(*_PLAIN, *_ZYGOTE).guard_arguments().done(errno.EPERM)


def program_filter() -> bytes:
    """Return the filter of a program, stacked on `zygote_filter`: only its own threads, signals only to itself.

    The loader replaces the constant `OWN_PID` by the program's process number.
    """
    rules = _Filter()
    rules.deny("fork", "vfork", "pidfd_open", "seccomp", error=errno.EPERM)
    rules.when("clone", (0, _CLONE_THREAD, [_CLONE_THREAD]), otherwise=errno.EAGAIN)
    for name in ("kill", "tgkill"):
        rules.when(name, (0, _ANY_BIT, [OWN_PID]))
    rules.when("prctl", (0, _ANY_BIT, _PRCTL))
    rules.when("mmap", (3, _MAP_TYPE, _MAP_TYPES), otherwise=errno.ENOMEM)
    rules.when("madvise", (2, _ANY_BIT, _MADVISE), otherwise=errno.EINVAL)
    return rules.done(_ALLOW)


def compiler_filter() -> bytes:
    """Return the filter of compilers, which start processes and use files. Other mechanisms restrict their paths."""
    return _Filter().allow(*_PLAIN, *_ZYGOTE, *_COMPILER).guard_arguments(paths=False).done(errno.EPERM)


class _Filter:
    """BPF instructions, built rule by rule. Each rule returns or falls through to the next."""

    def __init__(self) -> None:
        self.column, architecture = _ARCHITECTURES[platform.machine()]
        self.code: list[tuple[int, int, int, int]] = [
            (_LOAD, 0, 0, _ARCH),
            (_EQUAL, 1, 0, architecture),
            (_RETURN, 0, 0, _KILL),
            (_LOAD, 0, 0, _NR),
        ]
        if self.column == 0:  # the x32 calls share the architecture and have numbers of their own
            self.code += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]

    def allow(self, *names: str) -> _Filter:
        for name in names:
            self._add(name, [(_RETURN, 0, 0, _ALLOW)])
        return self

    def deny(self, *names: str, error: int) -> None:
        for name in names:
            self._add(name, [(_RETURN, 0, 0, _error(error))])

    def when(self, name: str, *conditions: tuple[int, int, Sequence[int]], otherwise: int = errno.EPERM) -> None:
        """Allow a call if every condition holds, else return the error.

        Args:
            conditions: (argument, mask, values): the masked argument is one of the values.
        """
        body = [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _error(otherwise))]
        for argument, mask, values in reversed(conditions):
            *first, last = values
            tests = [(_EQUAL, len(first) - index, 0, value) for index, value in enumerate(first)]
            tests.append((_EQUAL, 0, len(body) - 1, last))
            body = [(_LOAD, 0, 0, _ARGS + 8 * argument), (_AND, 0, 0, mask), *tests, *body]
        self._add(name, body)

    def _add(self, name: str, body: list[tuple[int, int, int, int]]) -> None:
        """Add instructions that are executed for one system call."""
        number = _NUMBERS[name][self.column]
        if number is not None:
            self.code += [(_EQUAL, 0, len(body), number), *body]

    def guard_arguments(self, *, paths: bool = True) -> _Filter:
        """Add the calls that are allowed with some arguments only."""
        # A filter can't see the flags of clone3, which are in memory; libraries fall back to clone.
        self.deny("clone3", error=errno.ENOSYS)
        self.when("fcntl", (1, _ANY_BIT, _FCNTL))
        self.when("ioctl", (1, _ANY_BIT, _IOCTL), otherwise=errno.ENOTTY)
        self.when("prctl", (0, _ANY_BIT, (*_PRCTL, _PR_SET_SECCOMP, _PR_SET_PDEATHSIG)))
        self.when("prlimit64", (0, _ANY_BIT, [0]))
        # These pairs of sockets stay connected; a datagram socket could send to any address. rustc starts its linker
        # with a pair of packet sockets.
        kinds = [_SOCK_STREAM] if paths else [_SOCK_STREAM, _SOCK_SEQPACKET]
        self.when("socketpair", (0, _ANY_BIT, [_AF_UNIX]), (1, 0xF, kinds))
        self.when("sendto", (4, _ANY_BIT, [0]), otherwise=errno.EISCONN)  # no address
        if paths:
            self.when("newfstatat", (3, _AT_EMPTY_PATH, [_AT_EMPTY_PATH]), otherwise=errno.ENOENT)  # fstat, not stat
            self.when("execveat", (0, _ANY_BIT, [PROGRAM_FD]), (4, _ANY_BIT, [_AT_EMPTY_PATH]))
            missing = ("openat", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "open", "stat", "lstat")
            self.deny(*missing, error=errno.ENOENT)
            self.deny("statx", error=errno.ENOSYS)
        return self

    def done(self, default: int) -> bytes:
        action = default if default == _ALLOW else _error(default)
        return b"".join(struct.pack("<HBBI", *line) for line in [*self.code, (_RETURN, 0, 0, action)])


def _error(number: int) -> int:
    return 0x00050000 | number
