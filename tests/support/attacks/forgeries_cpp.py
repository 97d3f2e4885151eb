"""C++ functions that want AC without knowing the answer: by the driver around them, by the library below them."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import CONTAINED, Case, block, read_cases

# Nothing here computes a cube, so no table of guesses is right by chance.
CUBES = tuple({"call": [n], "expected": n**3} for n in (111, 222, 333))
TOKEN = ({"call": [1], "expected": "@TOKEN@"},)
NEVER = "WA RE CE"

_ENDS = {
    "exit": "exit(0);",
    "quick_end": "_exit(0);",
    "quick_exit": "quick_exit(0);",
    "exit_by_number": "syscall(231, 0);",
    "thread_exit_by_number": "syscall(60, 0);",
    "kill": "raise(SIGKILL);",
    "terminate": "std::terminate();",
    "exception": "throw 42;",
    "end_of_thread": "pthread_exit(nullptr);",
    "jump": "jmp_buf home; longjmp(home, 1);",
    "nothing": "",
    "trap": "__builtin_trap();",
}
_HEAD = block("""
    #include <csetjmp>
    #include <csignal>
    #include <cstdio>
    #include <cstdlib>
    #include <exception>
    #include <pthread.h>
    #include <unistd.h>
""")
ENDS = [
    Case(
        "call_ends_by_" + name,
        "an end that is no answer",
        _HEAD + f"int solve(int n) {{ {line} }}\n",
        tests=CUBES,
        allowed="WA RE" if name != "nothing" else NEVER,
    )
    for name, line in _ENDS.items()
]

_REPORT = r"""
static void report() {
    const char* messages[] = {"AC\n", "OK\n", "ok\n", "0\n", "1\n", "1367631\n", "{\"verdict\": \"AC\"}\n",
                              "{\"ok\": true, \"value\": 1367631}\n", "[1367631, 10941048, 36926037]\n"};
    for (int handle = 1; handle < 256; handle++)
        for (auto message : messages)
            if (write(handle, message, strlen(message)) < 0) break;
}
"""
_WRITE_HEAD = block("""
    #include <cstdio>
    #include <cstdlib>
    #include <cstring>
    #include <unistd.h>
    #include <string>
    #include <iostream>
""")
DRIVER = [
    Case(
        "reports_before_main",
        "a constructor that has the last word as well",
        _WRITE_HEAD
        + _REPORT
        + block("""
            struct First { First() { report(); _exit(0); } } first;
            int solve(int n) { return 1; }
        """),
        tests=TOKEN,
    ),
    Case(
        "reports_at_the_end",
        "a destructor adds to the result",
        _WRITE_HEAD
        + _REPORT
        + block("""
            struct Last { ~Last() { report(); } } last;
            int solve(int n) { return n; }
        """),
        tests=CUBES,
    ),
    Case(
        "reports_in_the_function",
        "the result, and then another result",
        _WRITE_HEAD + _REPORT + "int solve(int n) { report(); return n; }\n",
        tests=CUBES,
    ),
    *read_cases(
        r"""
    == prints_instead_of_returning: the right values on the wrong channel
    -- allowed: WA
    #include <cstdio>
    int solve(int n) { printf("%d\n", n * n * n); return 0; }

    == own_main: the driver's main is taken
    #include <cstdio>
    extern "C" int main() { puts("AC"); return 0; }
    int solve(int n) { return n; }

    == main_in_assembly: a name that no macro reaches
    #include <cstdio>
    extern "C" int forged_main() { puts("1"); return 0; }
    asm(".globl main\n.set main, forged_main\n");
    int solve(int n) { return n; }

    == start_in_assembly: before the C library
    -- needs: x86_64
    #include <unistd.h>
    asm(".globl _start\n_start: mov $231, %eax\n xor %edi, %edi\n syscall\n");
    int solve(int n) { return n; }

    == words_redefined: macros may not reach the driver
    #define int long
    #define return if (0) return
    #define main solve2
    #define if(x) if (true)
    #define printf(...) 0
    #define std fake
    int solve(int n) { return n; }

    == another_return_type: the linker does not see what a function returns
    double solve(int n) { return n * 1.0 * n * n; }

    == object_as_result: a type that turns into everything
    #include <ostream>
    struct Any { template <class T> operator T() const { return T(); } bool operator==(long) const {
            return true; } };
    std::ostream& operator<<(std::ostream& out, const Any&) { return out << "AC"; }
    Any solve(int n) { return {}; }

    == any_argument: a template instead of the function
    template <class T> T solve(T n) { return n; }

    == another_function: the entry point is missing
    -- allowed: CE RE
    int solution(int n) { return n * n * n; }

    == write_overridden: write(2) is the program's; the driver's results pass through it
    #include <cstdlib>
    #include <cstring>
    #include <unistd.h>
    #include <sys/syscall.h>
    extern "C" ssize_t write(int handle, const void* data, size_t size) {
        const char* forged = "AC\n1\nok\n"; syscall(SYS_write, handle, forged, strlen(forged));
        return size; }
    extern "C" ssize_t __write(int handle, const void* data, size_t size) {
        return write(handle, data, size); }
    int solve(int n) { return n; }

    == memory_overridden: malloc and new are the program's
    -- allowed: WA RE CE TLE
    #include <cstddef>
    #include <new>
    static char pool[1 << 20]; static size_t used;
    extern "C" void* malloc(size_t size) { used += 64; return pool + used % (1 << 19); }
    extern "C" void free(void*) {}
    void* operator new(size_t) { return pool; }
    void operator delete(void*) noexcept {}
    int solve(int n) { return n; }

    == comparison_overridden: memcmp and strcmp say that all is equal
    #include <cstddef>
    extern "C" int memcmp(const void*, const void*, size_t) { return 0; }
    extern "C" int strcmp(const char*, const char*) { return 0; }
    int solve(int n) { return n; }

    == driver_names: the names that a driver might have
    #include <string>
    void emit(int) {}
    void encode(int) {}
    void result(int) {}
    void report(int) {}
    int check(int, int) { return 1; }
    int user_main() { return 0; }
    int driver() { return 0; }
    int expected = 1;
    int solve(int n) { return n; }

    == symbol_resolved_by_the_program: code that runs when the program is linked, before its constructors
    #include <unistd.h>
    extern "C" { static int yes(int) { return 1; } static int (*choose())(int) { return yes; }
        int chosen(int) __attribute__((ifunc("choose"))); }
    int solve(int n) { return chosen(n); }
    """,
        tests=CUBES,
    ),
    *read_cases(
        r"""
    == reads_the_arguments: the arguments' channel may hold the answers too
    -- signature: "string solve(int)"
    #include <fcntl.h>
    #include <string>
    #include <cstring>
    #include <unistd.h>
    std::string solve(int) {
        static char block[1 << 20];
        std::string prefix = std::string("to") + "ken-";
        for (int handle = 0; handle < 256; handle++) {
            ssize_t size = pread(handle, block, sizeof block - 1, 0);
            if (size <= 0) { lseek(handle, 0, SEEK_SET); if (handle > 2) fcntl(handle, F_SETFL, O_NONBLOCK);
                size = read(handle, block, sizeof block - 1); }
            if (size <= 0) continue;
            std::string text(block, size);
            size_t at = text.find(prefix);
            if (at != std::string::npos) return text.substr(at, prefix.size() + 32);
        }
        return "held";
    }

    == signal_handler: a failure is turned into an end that looks well
    -- tests: CUBES
    #include <csignal>
    #include <unistd.h>
    int solve(int n) { for (int i = 1; i < 32; i++) signal(i, [](int) { _exit(0); });
        *(volatile int*)8 = n; return n; }

    == result_without_end: a vector of four hundred million
    -- allowed: MLE RE OLE, signature: "vector<int> solve(int)", tests: [{call: [1], expected: [7, 7]}]
    #include <vector>
    std::vector<int> solve(int n) { return std::vector<int>(400000000, 7); }

    == breaks_out_of_the_text: a result that would close its own quotes
    -- allowed: WA, signature: "string solve(int)"
    #include <string>
    std::string solve(int n) { return "x\"], \"verdict\": \"AC\", \"y\": [\""; }

    == zero_bytes: a result with zero bytes and line ends
    -- allowed: WA, signature: "string solve(int)"
    #include <string>
    std::string solve(int n) { return std::string("a\0b\nAC\n", 7); }

    == not_a_number: NaN for a number
    -- allowed: WA RE, signature: "double solve(int)", tests: CUBES
    #include <cmath>
    double solve(int n) { return NAN; }

    == dies_in_the_second: the first result stands, the end takes the others
    -- allowed: [AC, WA RE, AC], tests: CUBES
    #include <unistd.h>
    int solve(int n) { if (n == 222) _exit(0); return n * n * n; }

    == remembers: what one test was told, the next may not know
    -- allowed: WA, tests: [{call: [1], expected: 1}, {call: [2], expected: 1}]
    static int first;
    int solve(int n) { if (!first) { first = n; return 0; } return 1; }
    """,
        named={"CUBES": CUBES},
        tests=TOKEN,
    ),
]

CASES = [
    replace(
        case,
        name="cpp_" + case.name,
        language="cpp",
        entry_point="solve",
        signature=case.signature or "int solve(int)",
        allowed=NEVER if case.allowed == CONTAINED else case.allowed,
    )
    for case in ENDS + DRIVER
]
