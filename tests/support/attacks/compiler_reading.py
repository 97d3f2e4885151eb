"""C++ that makes the compiler read what is not the program's."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import Case, read_cases

# The right end is no compilation; where the file is read as nothing, the program may run and find nothing.
REFUSED = "CE WA RE"


def _embedded(text: str) -> str:
    """A program that carries a file inside and prints the secret that it finds there, by the halves of its prefix."""
    path, head, tail = text.split()
    return f"""
#include <cstdio>
#include <cstring>
asm(".section .rodata\\n.globl stolen, stolen_end\\nstolen: .incbin \\"{path}\\"\\nstolen_end: .byte 0\\n.text\\n");
extern "C" const char stolen[], stolen_end[];
int main() {{
    char prefix[32] = "{head}"; strcat(prefix, "{tail}");
    const char* at = (const char*)memmem(stolen, stolen_end - stolen, prefix, strlen(prefix));
    if (at) printf("%.*s\\n", (int)strlen(prefix) + 32, at); else puts("held");
}}
"""


READING = [
    *read_cases(
        r"""
    == included_file: the file is a C string, so that an #include makes it the program's
    #include <cstdio>
    const char* stolen =
    #include "@CANARY_FILE@"
    ;
    int main() { puts(stolen); }

    == included_by_a_way_round: a path that begins in a folder which must be readable
    #include <cstdio>
    const char* stolen =
    #include "/usr/include/../..@CANARY_FILE@"
    ;
    int main() { puts(stolen); }

    == imported_file: #import is #include
    #include <cstdio>
    const char* stolen =
    #import "@CANARY_FILE@"
    ;
    int main() { puts(stolen); }

    == assembled_text: .include of the assembler: its messages quote what they do not understand
    asm(".include \"@CANARY_FILE@\"");
    int main() {}

    == included_home: the messages of the compiler quote the line
    -- allowed: CE, output: "@HOME_SECRET@\n"
    #include "@HOME_CANARY@"
    int main() {}

    == users_exist: __has_include answers without reading
    -- output: "breached\n"
    #include <cstdio>
    #if __has_include("/etc/passwd") || __has_include("@CANARY_FILE@") || __has_include("@HOME_CANARY@")
    int main() { puts("breached"); }
    #else
    int main() { puts("held"); }
    #endif

    == tests_beside_the_source: what may lie where the compiler stands
    -- output: "breached\n"
    #include <cstdio>
    #if __has_include("expected.txt") || __has_include("output.txt") || __has_include("tests.json") || \
        __has_include("1.out") || __has_include("driver.cpp") || __has_include("harness.cpp") || \
        __has_include("../tests.json")
    int main() { puts("breached"); }
    #else
    int main() { puts("held"); }
    #endif

    == precompiled_by_the_program: a header that the program chooses
    #pragma GCC pch_preprocess "@CANARY_FILE@"
    int main() {}

    == plugin_by_a_pragma: code in the compiler
    -- allowed: CE RE
    #pragma GCC optimize("-fplugin=@CANARY_FILE@")
    #pragma GCC optimize("plugin=@CANARY_FILE@")
    int main() { return 1; }

    == standard_input_included: the compiler's own input
    -- allowed: CE WA, output: "breached\n"
    #include "/dev/stdin"
    int main() {}
    """,
        allowed=REFUSED,
        tests=({"input": "", "output": "@FILE_SECRET@\n"},),
    ),
    *read_cases(
        r"""
    == assembled_file: .incbin takes any file as it is
    -- output: "@FILE_SECRET@\n"
    @CANARY_FILE@ canary- file-

    == assembled_environment: the compiler's own environment
    /proc/self/environ canary- env-

    == assembled_environment_of_the_parent: the environment of who called the judge
    /proc/@NEIGHBOUR_PID@/environ canary- env-
    """,
        wrap=_embedded,
        allowed=REFUSED,
        tests=({"input": "", "output": "@ENV_SECRET@\n"},),
    ),
    Case(
        "descriptors_included",
        "what the compiler inherited",
        "".join(f'#if __has_include("/proc/self/fd/{n}")\n#include "/proc/self/fd/{n}"\n#endif\n' for n in range(10))
        + "int main() {}\n",
        limits={"compile_time_s": 1.0},
        allowed="CE WA",
    ),
]

CASES = [replace(case, name="cpp_" + case.name, language="cpp") for case in READING]
