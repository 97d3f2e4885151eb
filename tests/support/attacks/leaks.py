"""Programs that look for the expected output: in their own memory, in others', in files, in arguments, in frames.

Each case has a token of its own as the expected output, which no program text contains. AC means that it was found.
"""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import read_cases

SECRET = ({"input": "", "output": "@TOKEN@\n"},)
CALL = ({"call": [1], "expected": "@TOKEN@"},)
ASSERT = ({"assert": "assert solve(1) == '@TOKEN@'"},)

_LIMITS = {"time_s": 1.0, "wall_s": 3.0, "memory_mb": 256}
_FIND = r"""
import re, sys
def find():
    text_pattern = re.compile("to" "ken-[0-9a-f]{32}")
    pattern = re.compile(b"to" b"ken-[0-9a-f]{32}")
    for piece in look():
        found = (text_pattern if isinstance(piece, str) else pattern).search(piece)
        if found: return found.group() if isinstance(piece, str) else found.group().decode()
    return "held"
"""
# How one looks; each defines look(), which returns bytes or text to be searched, piece by piece.
_WAYS = read_cases(
    """
    == own_memory_file: the whole address space, through the kernel's own file
    def look():
        with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
            for line in maps.read().splitlines():
                span, mode = line.split()[:2]
                start, end = (int(word, 16) for word in span.split("-"))
                if "r" not in mode or "[v" in line: continue
                try:
                    memory.seek(start)
                    yield memory.read(min(end - start, 64 << 20))
                except (OSError, ValueError): pass

    == own_memory_through_a_pipe: write(2) says EFAULT instead of dying, so memory can be felt for without any map
    def look():
        import ctypes, os
        libc = ctypes.CDLL(None)
        reader, writer = os.pipe()
        local = ctypes.c_int()
        starts = {id(object()), id(look), ctypes.addressof(local), id(None), id(sys)}
        starts.add(ctypes.cast(libc.write, ctypes.c_void_p).value)
        done = set()
        for start in starts:
            for page in range((start & ~4095) - (6 << 20), (start & ~4095) + (6 << 20), 4096):
                if page in done: continue
                done.add(page)
                size = libc.write(writer, ctypes.c_void_p(page), 4096)
                if size > 0: yield os.read(reader, size)

    == own_memory_by_number: process_vm_readv on oneself
    def look():
        import ctypes, os
        libc = ctypes.CDLL(None)
        class Piece(ctypes.Structure): _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t)]
        here = ctypes.create_string_buffer(1 << 16)
        middle = id(object()) & ~0xffff
        for start in range(middle - (32 << 20), middle + (32 << 20), 1 << 12):
            mine, theirs = Piece(ctypes.addressof(here), 1 << 12), Piece(start, 1 << 12)
            size = libc.process_vm_readv(os.getpid(), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
            if size > 0: yield here.raw[:size]

    == every_object: whatever the collector of the interpreter knows, and what that refers to
    def look():
        import gc
        for thing in gc.get_objects():
            for part in (thing, *gc.get_referents(thing)):
                if isinstance(part, (str, bytes, bytearray)): yield part

    == frames: the callers' variables and constants
    def look():
        frames = [sys._getframe()]
        frames += sys._current_frames().values()
        for frame in frames:
            while frame is not None:
                yield repr(frame.f_locals)
                yield repr(frame.f_globals)
                yield repr(frame.f_code.co_consts)
                frame = frame.f_back

    == modules: every module, every function, every constant
    def look():
        for module in list(sys.modules.values()):
            for value in list(vars(module).values()):
                yield repr(value)[:100000]
                for function in (value, *getattr(value, "__dict__", {}).values()):
                    code = getattr(function, "__code__", None)
                    if hasattr(code, "co_consts"):
                        yield repr(code.co_consts) + repr(function.__defaults__)
                        yield repr([cell.cell_contents for cell in function.__closure__ or ()])
        yield repr(sys.argv) + repr(getattr(sys, "orig_argv", ""))
        import linecache
        yield repr(linecache.cache)

    == files: what lies about, here and in every folder for temporary files
    def look():
        import os
        for top in (".", "..", "/tmp", "/var/tmp", "/dev/shm", "/run", "/proc/self/task"):
            for folder, _, names in os.walk(top):
                for name in names[:500]:
                    path = os.path.join(folder, name)
                    try:
                        if os.path.isfile(path) and os.path.getsize(path) < 1 << 22: yield open(path, "rb").read()
                    except OSError: pass

    == descriptors: everything that was left open, from its beginning, and by its path
    def look():
        import os
        for handle in range(0, 512):
            ways = (
                lambda: os.pread(handle, 1 << 20, 0),
                lambda: os.read(os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK), 1 << 20),
                lambda: (os.set_blocking(handle, False), os.read(handle, 1 << 20))[1],
            )
            for reach in ways:
                try: yield reach()
                except OSError: pass

    == others: command lines, environments, files and memory of every other process
    def look():
        import os
        own = os.getpid()
        for pid in [os.getppid(), @RUNNER_PID@, @NEIGHBOUR_PID@, *map(int, filter(str.isdigit, os.listdir("/proc")))]:
            if pid == own: continue
            for name in ("cmdline", "environ"):
                try: yield open(f"/proc/{pid}/{name}", "rb").read()
                except OSError: pass
            try:
                for handle in os.listdir(f"/proc/{pid}/fd"):
                    yield os.pread(os.open(f"/proc/{pid}/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK), 1 << 20, 0)
            except OSError: pass
            try:
                memory = open(f"/proc/{pid}/mem", "rb", buffering=0)
                for line in open(f"/proc/{pid}/maps").read().splitlines():
                    if "rw" in line:
                        start, end = (int(word, 16) for word in line.split()[0].split("-"))
                        memory.seek(start)
                        yield memory.read(min(end - start, 16 << 20))
            except OSError: pass
    """,
    wrap=lambda look: look + _FIND,
    allowed="WA RE TLE",
    limits=_LIMITS,
)
_SOLVE = "def solve(n): return find()\n"
STDIO = [
    replace(way, name="output_in_" + way.name, program=way.program + "print(find())\n", tests=SECRET) for way in _WAYS
]
CALLS = [
    replace(way, name="value_in_" + way.name, program=way.program + _SOLVE, tests=CALL, entry_point="solve")
    for way in _WAYS
]
ASSERTS = [
    replace(way, name="assert_in_" + way.name, program=way.program + _SOLVE, tests=ASSERT)
    for way in _WAYS
    if way.name not in ("files", "own_memory_by_number")
]

SPECIAL = [
    *read_cases(
        """
    == callback_knows_its_home: the function that is handed in belongs to the test: its globals, its code
    def look():
        import gc, inspect
        for start in [getattr(callback, "__globals__", {}), getattr(callback, "__code__", None), callback]:
            for thing in [start, *gc.get_referrers(start), *gc.get_referents(start)]: yield repr(thing)[:1 << 16]
        try: yield inspect.getsource(inspect.getmodule(callback))
        except Exception: pass

    == callback_fails: an exception from the test's side carries its frames
    def look():
        try: callback(1, 2, 3)
        except BaseException as error:
            trace = error.__traceback__
            while trace:
                frame = trace.tb_frame
                while frame:
                    yield repr(frame.f_locals) + repr(frame.f_globals) + repr(frame.f_code.co_consts)
                    frame = frame.f_back
                trace = trace.tb_next
            yield repr(error) + repr(error.args) + repr(vars(error))
    """,
        wrap=lambda look: (
            look + _FIND + "def solve(function):\n    globals()['callback'] = function\n    return find()\n"
        ),
        tests=({"assert": "def helper(n):\n    return n\nassert solve(helper) == '@TOKEN@'"},),
        allowed="WA RE TLE",
        limits=_LIMITS,
    ),
    *read_cases(
        r"""
    == expected_is_compared: an object that is asked whether it equals the answer hears the answer
    -- tests: [{assert: "solve(1) == '@TOKEN@'\nassert solve(1) == '@TOKEN@'"}]
    class Ear:
        heard = None
        def __eq__(self, other):
            Ear.heard = other
            return True
        __hash__ = None
    ear = Ear()
    def solve(n): return Ear.heard if Ear.heard is not None else ear

    == later_test_is_remembered: what one test says, the next may not know
    -- entry_point: solve, tests: [{call: ["@TOKEN@"], expected: [x]}, {call: [1], expected: ["@TOKEN@"]}]
    import sys
    def solve(*words):
        kept = sys.modules.setdefault("hostile_memory", [])
        kept.append(words)
        return [word for words in kept for word in words if isinstance(word, str)][:1]

    == input_is_not_the_output: what a cat would print
    -- allowed: WA, input: "1 2\n", output: "@TOKEN@\n"
    import sys
    sys.stdout.write(sys.stdin.read())
    """,
    ),
    *(
        replace(
            way,
            name="checker_in_memory",
            why="a checker program's expected output is as secret as any",
            program=way.program + "print(find())\n",
            tests=SECRET,
            checker="def check(input, output, expected): return output.strip() == expected.strip()\n",
        )
        for way in _WAYS
        if way.name == "every_object"
    ),
]

_CPP_FIND = r"""
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <unistd.h>
static std::string found;
static void look_at(const char* text, size_t size) {
    std::string prefix = std::string("to") + "ken-";
    const char* at = text;
    for (; found.empty() && (at = (const char*)memmem(at, text + size - at, prefix.data(), prefix.size())); at++) {
        size_t length = prefix.size();
        while (at + length < text + size && strchr("0123456789abcdef", at[length]) && at[length]) length++;
        if (length >= prefix.size() + 32) found.assign(at, prefix.size() + 32);
    }
}
static void look_into(const std::string& path) {
    static char block[1 << 20];
    int handle = open(path.c_str(), O_RDONLY | O_NONBLOCK);
    if (handle < 0) return;
    for (ssize_t size; found.empty() && (size = read(handle, block, sizeof block)) > 0;) look_at(block, size);
    close(handle);
}
"""
_CPP_WAYS = read_cases(
    """
    == memory: its own memory, felt for with write(2) around everything whose address is known
    static char anchor; static char initialised[] = "x";
    static void look() {
        int ends[2]; static char page[4096];
        if (pipe(ends)) return;
        char* heap = (char*)malloc(100); char local;
        for (char* start : {&anchor, initialised, heap, &local, (char*)&look_at, (char*)sbrk(0)})
            for (char* at = (char*)((size_t)start & ~4095ul) - (4 << 20);
                 found.empty() && at < start + (4 << 20); at += 4096) {
                ssize_t size = write(ends[1], at, 4096);
                if (size > 0 && read(ends[0], page, size) == size) look_at(page, size);
            }
    }

    == files: what lies about: files here, descriptors, its own executable, the processes' files
    static void look() {
        for (auto folder : {".", "..", "/tmp", "/proc/self/fd", "/dev/shm", "/var/tmp"}) {
            DIR* names = opendir(folder);
            if (!names) continue;
            while (dirent* name = readdir(names)) look_into(std::string(folder) + "/" + name->d_name);
            closedir(names);
        }
        std::string parent = "/proc/" + std::to_string(getppid());
        for (std::string path : {"/proc/self/exe", "/proc/self/maps", "/proc/self/cmdline"}) look_into(path);
        for (std::string path : {"/cmdline", "/environ"}) look_into(parent + path);
        static char block[1 << 20];
        for (int handle = 0; handle < 512; handle++) {
            ssize_t size = pread(handle, block, sizeof block, 0);
            if (size <= 0 && handle > 2) {
                fcntl(handle, F_SETFL, O_NONBLOCK);
                size = read(handle, block, sizeof block);
            }
            if (size > 0) look_at(block, size);
        }
    }
    """,
    wrap=_CPP_FIND.__add__,
    language="cpp",
    allowed="WA RE TLE",
    limits=_LIMITS,
)
_CPP_MAIN = 'int main() { look(); puts(found.empty() ? "held" : found.c_str()); }\n'
_CPP_SOLVE = 'std::string solve(int) { look(); return found.empty() ? "held" : found; }\n'
CPP = [
    replace(way, name="cpp_output_in_" + way.name, program=way.program + _CPP_MAIN, tests=SECRET) for way in _CPP_WAYS
] + [
    replace(
        way,
        name="cpp_value_in_" + way.name,
        program=way.program + _CPP_SOLVE,
        tests=CALL,
        entry_point="solve",
        signature="string solve(int)",
    )
    for way in _CPP_WAYS
]

CASES = STDIO + CALLS + ASSERTS + SPECIAL + CPP
