"""Run a command with the rights of root in a default Docker container.

    python default_container.py COMMAND …

It gets Docker's default capabilities, and a filter that refuses what moby's default seccomp profile refuses to such a
process (namespaces, mounts, keys, bpf, …). Written from moby's documentation: the real profile allows by name.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

CAPABILITIES = 0xA80425FB  # chown … setuid, setgid, kill, net_bind_service, sys_chroot, mknod, audit_write, setfcap
_REFUSED = {  # x86-64
    "unshare": 272,
    "mount": 165,
    "umount2": 166,
    "pivot_root": 155,
    "setns": 308,
    "bpf": 321,
    "keyctl": 250,
    "add_key": 248,
    "request_key": 249,
    "userfaultfd": 323,
    "perf_event_open": 298,
    "io_uring_setup": 425,
    "open_by_handle_at": 304,
    "name_to_handle_at": 303,
    "fsopen": 430,
    "fsmount": 432,
    "move_mount": 429,
    "open_tree": 428,
    "mount_setattr": 442,
    "kexec_load": 246,
    "init_module": 175,
    "swapon": 167,
    "reboot": 169,
    "acct": 163,
    "quotactl": 179,
    "settimeofday": 164,
    "syslog": 103,
    "iopl": 172,
    "ioperm": 173,
    "lookup_dcookie": 212,
}
_NAMESPACES = 0x7E020000


def enter() -> None:
    """Give up the rights that Docker withholds."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):
        if not CAPABILITIES >> capability & 1:
            libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
    header = struct.pack("<Ii", 0x20080522, 0)
    low, high = CAPABILITIES & 0xFFFFFFFF, CAPABILITIES >> 32
    data = struct.pack("<IIIIII", low, low, low, high, high, high)
    if libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    code = [(0x20, 0, 0, 0)]
    for number in _REFUSED.values():
        code += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
    code += [(0x15, 0, 1, 435), (0x06, 0, 0, 0x00050026)]  # clone3: ENOSYS
    code += [(0x15, 0, 4, 56), (0x20, 0, 0, 16), (0x45, 0, 1, _NAMESPACES), (0x06, 0, 0, 0x00050001)]
    code += [(0x06, 0, 0, 0x7FFF0000)] * 2
    text = b"".join(struct.pack("<HBBI", *line) for line in code)
    buffer = ctypes.create_string_buffer(text, len(text))
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(code), ctypes.addressof(buffer)), 16)
    # Docker's runtime loads it with CAP_SYS_ADMIN, which is gone here. So this needs no_new_privs.
    libc.prctl(38, 1, 0, 0, 0)
    if libc.prctl(22, 2, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    enter()
    os.execvp(sys.argv[1], sys.argv[1:])
