"""Python programs that fill the output, the messages or the disk."""

from __future__ import annotations

from tests.support.attacks.case import attempt, read_cases

OUTPUT_AND_DISK = [
    *read_cases(
        r"""
    == one_large_write: 64 megabytes in one print
    -- limits: {memory_mb: 256}
    print('x' * (64 << 20))

    == unbuffered_flood: never ends, and ignores what write says
    -- allowed: OLE TLE
    import os
    while True:
        try: os.write(1, b"x" * 65536)
        except OSError: pass

    == error_flood: never ends, on the other channel
    -- allowed: OLE TLE RE
    import sys
    while True: sys.stderr.write('x' * 1000)

    == answer_then_error_flood: the answer is right; what is kept of the rest must be small
    -- allowed: AC OLE RE, limits: {time_s: 1.0}, output: "ok\n"
    import sys
    print('ok', flush=True)
    for _ in range(64): sys.stderr.write('x' * (1 << 20))

    == answer_then_flood: the beginning is right
    -- output: "ok\n"
    print('ok')
    for _ in range(64): print('x' * (1 << 20))

    == sparse_output: an output of a terabyte that costs nothing to write
    -- allowed: OLE RE WA
    import os
    os.ftruncate(1, 1 << 40)
    print('breached')

    == seek_in_output: a hole of a terabyte before the answer
    -- allowed: OLE RE WA AC
    import os
    os.lseek(1, 1 << 40, 0)
    os.write(1, b'breached\n')
    """,
        allowed="OLE",
    ),
    *read_cases(
        """
    == file_by_name: 300 megabytes where it stands, for everybody, or of everybody's memory
    -- allowed: WA RE TLE OLE
    for path in ("hostile-file", "/tmp/hostile-file", "/dev/shm/hostile-file", "/var/tmp/hostile-file"):
        try:
            with open(path, "wb", buffering=0) as file:
                for _ in range(300): must(file.write(bytes(1 << 20)) == 1 << 20)
            return
        except OSError: continue
    must(False)

    == unnamed_file: O_TMPFILE: a file without a name, gone from every listing
    -- allowed: WA RE TLE OLE
    for folder in (".", "/tmp", "/var/tmp", "/dev/shm"):
        try: handle = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        except OSError: continue
        for _ in range(300): must(os.write(handle, bytes(1 << 20)) == 1 << 20)
        return
    must(False)

    == many_tiny_files: inodes run out too
    for folder in (".", "/tmp", "/dev/shm"):
        try:
            for number in range(5_000):
                os.close(os.open(f"{folder}/hostile-{number}", os.O_CREAT | os.O_WRONLY))
            return
        except OSError: continue
    must(False)

    == many_folders: a tree so deep that no path reaches its end
    for start in (os.getcwd(), "/tmp"):
        try:
            os.chdir(start)
            for _ in range(300): os.mkdir("hostile-" + "d" * 60); os.chdir("hostile-" + "d" * 60)
            return
        except OSError: continue
    must(False)
    """,
        wrap=attempt,
        allowed="WA RE TLE",
    ),
]

CASES = OUTPUT_AND_DISK
