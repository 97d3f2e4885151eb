"""Python programs that read what is not theirs: files, folders, devices, the environment."""

from __future__ import annotations

from tests.support.attacks.case import attempt, read_cases

ENVIRONMENT_SECRET = ({"input": "", "output": "@ENV_SECRET@\n"},)

FILE_SECRET = ({"input": "", "output": "@FILE_SECRET@\n"},)

HOME_SECRET = ({"input": "", "output": "@HOME_SECRET@\n"},)

READING = read_cases(
    r"""
    == users_of_the_machine: a file that anybody may read is still not the program's
    must('root:' in open('/etc/passwd').read())

    == users_through_a_link: the path is innocent, where it leads is not
    os.symlink('/etc/passwd', 'innocent'); must('root:' in open('innocent').read())

    == users_through_a_hard_link: a second name for the same file
    os.link('/etc/passwd', 'innocent'); must('root:' in open('innocent').read())

    == users_through_proc: roots and working folders of other processes
    parent = f"/proc/{os.getppid()}"
    for start in ("/proc/self/root", "/proc/1/root", parent + "/root", parent + "/cwd/../../../../../.."):
        try: text = open(start + "/etc/passwd").read()
        except OSError: continue
        must("root:" in text)
        return
    must(False)

    == users_by_descriptor: a folder that was open before the door was shut
    for handle in range(1024):
        try: found = os.open("etc/passwd", os.O_RDONLY, dir_fd=handle)
        except OSError: continue
        must(b"root:" in os.read(found, 4096))
        return
    must(False)

    == users_by_openat2: the newer system call for the same thing
    how = (ctypes.c_uint64 * 3)(0, 0, 0)
    must(b"root:" in os.read(libc("syscall", 437, -100, b"/etc/passwd", how, 24), 4096))

    == users_by_file_handle: a file by its number instead of its name
    handle = ctypes.create_string_buffer(b"\x80\0\0\0" + bytes(200))
    mount = ctypes.c_int()
    libc("name_to_handle_at", -100, b"/etc/passwd", handle, ctypes.byref(mount), 0)
    for folder in (b"/", b"/etc", b"/tmp", b"."):
        at = libc("open", folder, 0)
        must(b"root:" in os.read(libc("open_by_handle_at", at, handle, 0), 4096))

    == users_out_of_the_root: the old way out of a chroot
    os.makedirs("hostile-root", exist_ok=True)
    os.chroot("hostile-root")
    for _ in range(40): os.chdir("..")
    os.chroot(".")
    must("root:" in open("/etc/passwd").read())

    == file_of_the_user: a file like a data set's, which every user may read
    -- plain: true, tests: FILE_SECRET
    print(open('@CANARY_FILE@').read().strip().strip('"'))

    == file_at_home: a private file of who runs the judge
    -- plain: true, tests: HOME_SECRET
    print(open('@HOME_CANARY@').read().strip())

    == repository: the code that judges, with its tests
    must(os.listdir('@REPOSITORY@')); must('rlvr' in open('@REPOSITORY@/pyproject.toml').read())

    == folders: the names alone say much
    must(set(os.listdir('/')) & {'home', 'etc', 'root'} and os.listdir('/etc'))

    == devices: disks, memory, consoles, virtual machines
    names = "mem kmem port kmsg vda sda nvme0n1 xvda kvm fuse net/tun loop-control tty tty0 console uinput"
    for name in names.split():
        try: os.close(os.open("/dev/" + name, os.O_RDWR))
        except OSError: continue
        return
    must(False)
    """,
    wrap=attempt,
    named={"FILE_SECRET": FILE_SECRET, "HOME_SECRET": HOME_SECRET},
)

ENVIRONMENT = read_cases(
    r"""
    == environment: keys and tokens of who runs the judge
    import os
    for value in os.environ.values():
        if value.startswith('canary-' 'env-'): print(value)

    == environment_below_python: what os.environ has forgotten, the C library may remember
    import ctypes
    environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    number = 0
    while environ and environ[number]:
        name, _, value = environ[number].partition(b"=")
        if value.startswith(b"canary-" b"env-"): print(value.decode())
        number += 1

    == environment_as_started: what the kernel remembers, of this process and of its ancestors
    import os, re
    for pid in ("self", "thread-self", os.getppid(), @NEIGHBOUR_PID@, 1):
        try: text = open(f"/proc/{pid}/environ", "rb").read()
        except OSError: continue
        found = re.search(rb"canary-" rb"env-[0-9a-f]+", text)
        if found:
            print(found.group().decode())
            break

    == environment_on_the_stack: the strings lie above the stack, whatever os.environ says
    import ctypes, os, re
    libc = ctypes.CDLL(None)
    libc.secure_getenv.restype = ctypes.c_void_p
    start = ctypes.c_void_p.in_dll(libc, "environ").value or ctypes.addressof(ctypes.c_int())
    reader, writer = os.pipe()
    page, found, misses = start & ~4095, None, 0
    while misses < 4 and not found:
        if libc.write(writer, ctypes.c_void_p(page), 4096) != 4096: misses += 1
        else: found = re.search(rb"canary-" rb"env-[0-9a-f]{32}", os.read(reader, 4096))
        page += 4096
    print(found.group().decode() if found else "held")
    """,
    tests=ENVIRONMENT_SECRET,
)

CASES = READING + ENVIRONMENT
