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

# System call numbers by name: x86-64 (arch/x86/entry/syscalls/syscall_64.tbl), aarch64 (the generic table).
# None: the architecture has no such call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "poll": (7, None), "lseek": (8, 62),
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "ioctl": (16, 29), "pread64": (17, 67),
    "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66), "access": (21, None), "pipe": (22, None),
    "select": (23, None), "sched_yield": (24, 124), "mremap": (25, 216), "msync": (26, 227), "mincore": (27, 232),
    "madvise": (28, 233), "dup": (32, 23), "dup2": (33, None), "pause": (34, None), "nanosleep": (35, 101),
    "getitimer": (36, 102), "alarm": (37, None), "setitimer": (38, 103), "getpid": (39, 172), "sendto": (44, 206),
    "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212), "shutdown": (48, 210),
    "getsockname": (51, 204), "getpeername": (52, 205), "socketpair": (53, 199),
    "getsockopt": (55, 209), "clone": (56, 220), "fork": (57, None), "vfork": (58, None), "execve": (59, 221),
    "exit": (60, 93), "wait4": (61, 260), "kill": (62, 129), "uname": (63, 160), "fcntl": (72, 25),
    "fsync": (74, 82), "fdatasync": (75, 83), "ftruncate": (77, 46), "getcwd": (79, 17), "readlink": (89, None),
    "gettimeofday": (96, 169), "getrlimit": (97, 163), "getrusage": (98, 165), "sysinfo": (99, 179),
    "times": (100, 153), "getuid": (102, 174), "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177),
    "getppid": (110, 173), "getpgrp": (111, None), "getgroups": (115, 158), "getresuid": (118, 148),
    "getresgid": (120, 150), "getpgid": (121, 155), "getsid": (124, 156), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "getpriority": (140, 141),
    "sched_getparam": (143, 121), "sched_getscheduler": (145, 120), "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126), "prctl": (157, 167), "arch_prctl": (158, None), "setrlimit": (160, 164),
    "gettid": (186, 178), "futex": (202, 98), "sched_getaffinity": (204, 123), "epoll_create": (213, None),
    "set_tid_address": (218, 96), "restart_syscall": (219, 128), "fadvise64": (221, 223), "timer_create": (222, 107),
    "timer_settime": (223, 110), "timer_gettime": (224, 108), "timer_getoverrun": (225, 109),
    "timer_delete": (226, 111), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "exit_group": (231, 94), "epoll_wait": (232, None), "epoll_ctl": (233, 21),
    "tgkill": (234, 131), "waitid": (247, 95), "openat": (257, 56), "newfstatat": (262, 79), "readlinkat": (267, 78),
    "pselect6": (270, 72), "ppoll": (271, 73), "set_robust_list": (273, 99), "get_robust_list": (274, 100),
    "epoll_pwait": (281, 22), "fallocate": (285, 47), "timerfd_create": (283, 85), "timerfd_settime": (286, 86),
    "timerfd_gettime": (287, 87), "eventfd2": (290, 19), "epoll_create1": (291, 20), "dup3": (292, 24),
    "pipe2": (293, 59), "preadv": (295, 69), "pwritev": (296, 70), "prlimit64": (302, 261), "getcpu": (309, 168),
    "seccomp": (317, 277), "getrandom": (318, 278), "execveat": (322, 281), "membarrier": (324, 283),
    "rseq": (334, 293), "pidfd_open": (434, 434), "clone3": (435, 435), "close_range": (436, 436),
    "faccessat2": (439, 439), "statx": (332, 291), "faccessat": (269, 48),
    # For compilers only.
    "open": (2, None), "stat": (4, None), "lstat": (6, None), "flock": (73, 32), "truncate": (76, 45),
    "getdents64": (217, 61), "chdir": (80, 49), "fchdir": (81, 50), "rename": (82, None), "renameat": (264, 38),
    "renameat2": (316, 276), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "creat": (85, None),
    "unlink": (87, None), "unlinkat": (263, 35), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "umask": (95, 166), "copy_file_range": (326, 285), "sendfile": (40, 71), "statfs": (137, 43),
    "fstatfs": (138, 44), "utimensat": (280, 88), "setpgid": (109, 154), "setsid": (112, 157),
}  # fmt: skip

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7), "arm64": (1, 0xC00000B7)}

# Allowed with any arguments, to programs and zygotes.
_PLAIN_CALLS = """
    read write close fstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pread64
    pwrite64 readv writev preadv pwritev pipe pipe2 select pselect6 ppoll sched_yield mremap msync mincore
    madvise dup dup2 dup3 pause nanosleep getitimer alarm setitimer getpid recvfrom sendmsg recvmsg shutdown
    getsockname getpeername getsockopt exit wait4 waitid uname fsync fdatasync ftruncate fadvise64
    getcwd gettimeofday getrlimit setrlimit getrusage sysinfo times getuid getgid geteuid getegid getppid
    getpgrp getgroups getresuid getresgid getpgid getsid rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack
    getpriority sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min arch_prctl
    gettid futex sched_getaffinity epoll_create set_tid_address restart_syscall timer_create timer_settime
    timer_gettime timer_getoverrun timer_delete clock_gettime clock_getres clock_nanosleep exit_group epoll_wait
    epoll_ctl epoll_pwait epoll_create1 set_robust_list get_robust_list timerfd_create timerfd_settime
    timerfd_gettime eventfd2 getcpu getrandom membarrier rseq close_range
"""
# Allowed to zygotes; the narrow filter forbids them to programs.
_ZYGOTE_CALLS = ["kill", "tgkill", "clone", "fork", "vfork", "pidfd_open", "seccomp"]
_COMPILER_CALLS = """
    open openat stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat flock truncate
    getdents64 chdir fchdir rename renameat renameat2 mkdir mkdirat rmdir creat unlink unlinkat chmod fchmod
    fchmodat umask copy_file_range sendfile statfs fstatfs utimensat setpgid setsid execve fallocate
"""

_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_LOAD, _EQUAL, _SET, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06
_NR, _ARCH, _ARGS = 0, 4, 16  # offsets in struct seccomp_data; the low halves of its arguments (little endian)

_CLONE_THREAD = 0x00010000
_AF_UNIX, _SOCK_STREAM = 1, 1
_AT_EMPTY_PATH = 0x1000
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, locks, F_DUPFD_CLOEXEC, pipe sizes, F_GET_SEALS. Not F_SETOWN and
# F_SETSIG, which make the kernel send signals to other processes, nor locks that outlive their process.
_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1031, 1032, 1034)
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX.
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_GET_TIMERSLACK, PR_SET_NO_NEW_PRIVS, PR_SET_VMA.
_PRCTL = (2, 3, 15, 16, 30, 38, 0x53564D41)
_PR_SET_SECCOMP, _PR_SET_PDEATHSIG = 22, 1

# Placeholder in the narrow filter for the program's own process number, which is known only after the fork.
OWN_PID = 0x7E57C0DE


def supported() -> bool:
    """Whether filters exist for this machine's processor."""
    return platform.system() == "Linux" and platform.machine() in _ARCHITECTURES


def zygote_filter() -> bytes:
    """Return the filter of a zygote: what programs need, and fork, wait and kill."""
    return _Filter().allow(*_PLAIN_CALLS.split(), *_ZYGOTE_CALLS).guard_arguments().done(errno.EPERM)


def program_filter() -> bytes:
    """Return the filter of a program, stacked on `zygote_filter`: only its own threads, signals only to itself.

    The loader replaces the constant `OWN_PID` by the program's process number.
    """
    rules = _Filter()
    rules.deny("fork", "vfork", "pidfd_open", "seccomp", error=errno.EPERM)
    rules.when("clone", 0, [(_SET, _CLONE_THREAD)], otherwise=errno.EAGAIN)
    for name in ("kill", "tgkill"):
        rules.when(name, 0, [(_EQUAL, OWN_PID)], otherwise=errno.EPERM)
    rules.when("prctl", 0, [(_EQUAL, option) for option in _PRCTL], otherwise=errno.EPERM)
    return rules.done(_ALLOW)


def compiler_filter() -> bytes:
    """Return the filter of compilers, which start processes and use files. Other mechanisms restrict their paths."""
    return (
        _Filter()
        .allow(*_PLAIN_CALLS.split(), *_ZYGOTE_CALLS, *_COMPILER_CALLS.split())
        .guard_arguments(paths=False)
        .done(errno.EPERM)
    )


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

    def number(self, name: str) -> int | None:
        return _NUMBERS[name][self.column]

    def allow(self, *names: str) -> _Filter:
        for name in names:
            self._return(name, _ALLOW)
        return self

    def deny(self, *names: str, error: int) -> _Filter:
        for name in names:
            self._return(name, _error(error))
        return self

    def _return(self, name: str, action: int) -> None:
        number = self.number(name)
        if number is not None:
            self.code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, action)]

    def when(
        self,
        name: str,
        argument: int,
        tests: list[tuple[int, int]],
        *,
        mask: int | None = None,
        otherwise: int = errno.EPERM,
    ) -> None:
        """Allow a call if its argument passes one of the tests, else return the error.

        Args:
            tests: pairs of an instruction (`_EQUAL` or `_SET`) and its constant.
            mask: applied to the argument before the tests.
        """
        number = self.number(name)
        if number is None:
            return
        body = [(_LOAD, 0, 0, _ARGS + 8 * argument)]
        if mask is not None:
            body.append((_AND, 0, 0, mask))
        for left, (instruction, constant) in zip(range(len(tests), 0, -1), tests, strict=True):
            body.append((instruction, left, 0, constant))
        body += [(_RETURN, 0, 0, _error(otherwise)), (_RETURN, 0, 0, _ALLOW)]
        self.code += [(_EQUAL, 0, len(body), number), *body]

    def guard_arguments(self, *, paths: bool = True) -> _Filter:
        """Add the calls that are allowed with some arguments only."""
        self.deny(
            "clone3", error=errno.ENOSYS
        )  # a filter can't see its flags, which are in memory; libraries fall back to clone
        self.when("fcntl", 1, [(_EQUAL, command) for command in _FCNTL])
        self.when("ioctl", 1, [(_EQUAL, command) for command in _IOCTL], otherwise=errno.ENOTTY)
        options = (*_PRCTL, _PR_SET_SECCOMP, _PR_SET_PDEATHSIG)
        self.when("prctl", 0, [(_EQUAL, option) for option in options])
        self.when("prlimit64", 0, [(_EQUAL, 0)])
        # A pair of stream sockets stays connected; a datagram socket could send to any address.
        self._both("socketpair", [(0, 0xFFFFFFFF, _AF_UNIX), (1, 0xF, _SOCK_STREAM)])
        self.when("sendto", 4, [(_EQUAL, 0)], otherwise=errno.EISCONN)  # no address
        if paths:
            self.when("newfstatat", 3, [(_SET, _AT_EMPTY_PATH)], otherwise=errno.ENOENT)  # fstat, not stat
            self._both("execveat", [(0, 0xFFFFFFFF, PROGRAM_FD), (4, 0xFFFFFFFF, _AT_EMPTY_PATH)])
            missing = ("openat", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "open", "stat", "lstat")
            self.deny(*missing, error=errno.ENOENT)
            self.deny("statx", error=errno.ENOSYS)
        return self

    def _both(self, name: str, conditions: list[tuple[int, int, int]]) -> None:
        """Allow a call if every (argument, mask, value) matches."""
        number = self.number(name)
        if number is None:
            return
        body: list[tuple[int, int, int, int]] = []
        for left, (argument, mask, value) in zip(range(len(conditions), 0, -1), conditions, strict=True):
            over = 3 * (left - 1) + 1
            body += [(_LOAD, 0, 0, _ARGS + 8 * argument), (_AND, 0, 0, mask), (_EQUAL, 0, over, value)]
        body += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _error(errno.EPERM))]
        self.code += [(_EQUAL, 0, len(body), number), *body]

    def done(self, default: int) -> bytes:
        action = default if default == _ALLOW else _error(default)
        return b"".join(struct.pack("<HBBI", *line) for line in [*self.code, (_RETURN, 0, 0, action)])


# Descriptor of the compiled program in the launcher.
PROGRAM_FD = 4


def _error(number: int) -> int:
    return 0x00050000 | number
