"""Confinement mechanisms that a process applies to itself, irreversibly.

Standard library only: this runs in an interpreter that sees only this folder of the project.
Sources: Linux man pages landlock(7), seccomp(2), prctl(2), setresuid(2), setrlimit(2).
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 1, 38, 22, 2
_PR_SET_THP_DISABLE = 41
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION = 1
_RULE_PATH_BENEATH = 1

# Rights on files by the Landlock version that brought them (linux/landlock.h).
_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_NETWORK = 0b11  # bind and connect over TCP, from version 4
_SCOPES = 0b11  # abstract sockets and signals, from version 6

# Not ctypes.CDLL, which releases the interpreter lock around each call.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def fork() -> int:
    """Fork a process with one thread, without Python's fork hooks.

    The hooks reset locks of other threads, of which there are none, and reseed `random`. They write to some 200 pages,
    each of which is then copied: that costs more than the fork itself.
    """
    return int(_libc.fork())


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; exit if the parent has ended already."""
    _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


class Filter:
    """A seccomp filter that can be loaded many times.

    Args:
        own_pid: a constant in the code, replaced by the process number on every load.
    """

    def __init__(self, code: bytes, own_pid: int | None = None) -> None:
        self._buffer = ctypes.create_string_buffer(code, len(code))
        self._program = _Program(len(code) // 8, ctypes.addressof(self._buffer))
        self._reference = ctypes.byref(self._program)
        self._pid_fields = []
        if own_pid is not None:
            constants = [int.from_bytes(code[at + 4 : at + 8], "little") for at in range(0, len(code), 8)]
            self._pid_fields = [
                ctypes.c_uint32.from_buffer(self._buffer, 8 * line + 4)
                for line, constant in enumerate(constants)
                if constant == own_pid
            ]

    def load(self) -> None:
        """Load it into this process, irreversibly."""
        if self._pid_fields:
            own_pid = os.getpid()
            for field in self._pid_fields:
                field.value = own_pid
        _require(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, self._reference, 0, 0), "prctl(PR_SET_SECCOMP)")


def disable_huge_pages() -> None:
    """Give this process and those it starts memory in small pages: it fills huge ones faster than it can be watched.

    A kernel without huge pages refuses, and has nothing to disable.
    """
    _libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)


def no_new_privileges() -> None:
    """Keep programs executed from now on from gaining rights by their files (set-user-id bits, capabilities)."""
    _require(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def restrict_paths(readable: list[str], writable: list[str]) -> None:
    """Allow only files beneath `readable` (read, list, execute) and `writable` (everything), and no TCP, by Landlock.

    Raises:
        OSError: the kernel refuses.
    """
    version = _libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_LANDLOCK_VERSION))
    if version <= 0:
        raise OSError("the kernel has no Landlock, or it is disabled")
    handled = 0
    for since, rights in _RIGHTS.items():
        if version >= since:
            handled |= rights
    ruleset = struct.pack("<QQQ", handled, _NETWORK if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = ctypes.c_size_t(24 if version >= 6 else 16 if version >= 4 else 8)
    descriptor = _libc.syscall(_LANDLOCK_CREATE, ruleset, size, ctypes.c_uint32(0))
    _require(min(descriptor, 0), "landlock_create_ruleset")
    for paths, rights in ((readable, _EXECUTE | _READ_FILE | _READ_DIR), (writable, handled)):
        for path in paths:
            try:
                folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            allowed = rights if os.path.isdir(path) else rights & (_EXECUTE | _READ_FILE | 1 << 1 | 1 << 14) & handled
            rule = struct.pack("<Qi", allowed, folder)
            added = _libc.syscall(_LANDLOCK_ADD, descriptor, ctypes.c_int(_RULE_PATH_BENEATH), rule, ctypes.c_uint32(0))
            os.close(folder)
            _require(added, f"landlock_add_rule for {path}")
    _require(_libc.syscall(_LANDLOCK_RESTRICT, descriptor, ctypes.c_uint32(0)), "landlock_restrict_self")
    os.close(descriptor)


def change_root(folder: str) -> None:
    """Make `folder` the root (needs CAP_SYS_CHROOT, which root has in a default container)."""
    os.chroot(folder)
    os.chdir("/")


def change_user(user: int) -> None:
    """Become a user and group that own nothing, irreversibly. Root's capabilities go too."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def limit(**limits: int) -> None:
    """Set hard and soft resource limits by the ends of their names: `limit(core=0, nofile=64)`."""
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name.upper()}")
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY and (value == resource.RLIM_INFINITY or value > hard):
            value = hard
        resource.setrlimit(kind, (value, value))


def _require(result: int, call: str) -> None:
    """Raise OSError unless a system call returned 0."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
