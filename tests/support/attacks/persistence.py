"""Python programs that leave something behind: for the user, for the judge, for the next run."""

from __future__ import annotations

from tests.support.attacks.case import REPEATED_RUNS, Case, attempt, read_cases

_TRACE = """
    path = os.path.expanduser({path!r})
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    open(path, "w").write("# hostile\\n")
    must(os.path.getsize(path) > 0)
"""

# name, path, why. The suite looks for these files afterwards.
_PLACES = [
    ("start_up_file", "@USER_SITE@/hostile.pth", "code for the next Python of this user"),
    ("shell_start_up", "@HOME@/.hostile-profile", "code for the next shell of this user"),
    ("repository", "@REPOSITORY@/hostile.txt", "the project itself"),
    ("package", "@SITE_PACKAGES@/hostile.pth", "code for the next Python of this environment"),
    ("public_folder", "@PUBLIC@/hostile.txt", "a folder that everybody may write"),
    ("cron", "/etc/cron.d/hostile", "code that the machine will run"),
]

_STATE = """
import os, sys
run = sys.stdin.read().strip()
{look}
found = look()
print("again" if found else "first")
"""

LEFT_BEHIND = [Case("writes_" + name, why, attempt(_TRACE.format(path=path))) for name, path, why in _PLACES]
LEFT_BEHIND += read_cases(
    r"""
    == state_in_a_module: a warm interpreter remembers what one run did to it
    def look():
        import json
        before = hasattr(json, 'hostile')
        json.hostile = True
        return before

    == state_in_a_file: the working folder of the next run, and folders that all share
    def look():
        before = False
        for path in ('hostile-state', '/tmp/hostile-state', '/dev/shm/hostile-state'):
            before = before or os.path.exists(path)
            try: open(path, 'w').close()
            except OSError: pass
        return before

    == state_in_the_environment: what is exported to the next run
    def look():
        before = 'HOSTILE' in os.environ
        os.environ['HOSTILE'] = '1'
        return before

    == state_in_a_segment: System V shared memory outlives its maker
    -- needs: x86_64
    def look():
        import ctypes
        call = ctypes.CDLL(None).syscall
        before = call(29, 0x68780009, 4096, 0) >= 0
        if call(29, 0x68780009, 4096, 0o1666) < 0: raise OSError
        return before

    == state_in_the_input: the input of the next run, rewritten
    def look():
        before = run == 'hostile'
        for handle in (0, *range(3, 64)):
            try: os.pwrite(handle, b'hostile\n', 0)
            except OSError: pass
        return before or run not in list('12345678')

    == state_in_the_descriptors: flags of descriptors that all runs share: append, do not wait
    def look():
        import ctypes
        call, before = ctypes.CDLL(None).fcntl, False
        for handle in range(8):
            flags = call(handle, 3)
            if flags >= 0:
                before = before or bool(flags & (os.O_APPEND | os.O_NONBLOCK))
                call(handle, 4, flags | os.O_APPEND | os.O_NONBLOCK)
        return before

    == state_in_the_files_times: times and rights of descriptors that all runs share
    def look():
        before = False
        for handle in range(8):
            try:
                about = os.fstat(handle)
                before = before or about.st_mtime == 77 or about.st_mode & 0o777 == 0o705
                os.fchmod(handle, 0o705)
            except OSError: pass
            try: os.utime(handle, (77, 77))
            except OSError: pass
        return before

    == state_in_the_output: what an earlier run has written, read back
    def look():
        try: handle = os.open('/proc/self/fd/1', os.O_RDWR)
        except OSError: handle = 1
        return bool(os.pread(handle, 100, 0))
    """,
    tests=REPEATED_RUNS,
    wrap=lambda look: _STATE.format(look=look),
)

LEFT_BEHIND += read_cases(
    """
    == result_with_a_command: a result that is a command to who unpickles it
    -- entry_point: solve, tests: [{call: [1], expected: 1}]
    import os
    class Command:
        def __reduce__(self): return (os.system, ("touch @PUBLIC@/hostile-pickle",))
    def solve(n): return Command()

    == pickles_everywhere: the same, written to every descriptor
    import os, pickle, struct
    class Command:
        def __reduce__(self): return (os.system, ("touch @PUBLIC@/hostile-pickle",))
    data = pickle.dumps(Command())
    for handle in range(3, 256):
        size = len(data)
        for head in (b"", struct.pack("<I", size), struct.pack("!i", size), struct.pack("<Q", size)):
            message = head + data
            try: os.write(handle, message)
            except OSError: pass
    print("held")

    == core_dump: an image of the program on the disk
    -- allowed: RE
    import ctypes, resource
    try: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError): pass
    ctypes.string_at(8)

    == closes_everything: no descriptor is left, and the end looks like success
    import os
    for handle in range(1024):
        try: os.close(handle)
        except OSError: pass
    os._exit(0)

    == locks_everything: a lock that the next one waits for
    import fcntl, os, time
    for handle in range(256):
        try: fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError: pass
        try: os.set_blocking(handle, False)
        except OSError: pass
    print("held")

    == drains_everything: reads from every descriptor what is meant for others
    import os
    for handle in (0, *range(3, 256)):
        try: os.set_blocking(handle, False); print(os.read(handle, 1 << 16)[:50])
        except OSError: pass
    print("held")
    """,
)

CASES = LEFT_BEHIND
