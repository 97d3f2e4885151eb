"""C++ that makes the compiler read what is not the program's."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import Case, read_cases

FILE_SECRET = ({"input": "", "output": "@FILE_SECRET@\n"},)

HOME_SECRET = ({"input": "", "output": "@HOME_SECRET@\n"},)

ENVIRONMENT_SECRET = ({"input": "", "output": "@ENV_SECRET@\n"},)

# The right end is no compilation; where the file is read as nothing, the program may run and find nothing.
REFUSED = "CE WA RE"


def _embedded(path: str, head: str, tail: str) -> str:
    """A program that carries a file inside and prints the secret that it finds there."""
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
        """
    == included_file: the file is a C string, so that an #include makes it the program's
    #include <cstdio>
    const char* stolen =
    #include "@CANARY_FILE@"
    ;
    int main() { puts(stolen); }

    == included_by_a_macro: the path is put together
    #include <cstdio>
    #define PATH "@CANARY_FILE@"
    const char* stolen =
    #include PATH
    ;
    int main() { puts(stolen); }

    == included_by_a_way_round: a path that begins in a folder which must be readable
    #include <cstdio>
    const char* stolen =
    #include "/usr/include/../..@CANARY_FILE@"
    ;
    int main() { puts(stolen); }

    == included_from_here: a path without a root, from wherever the compiler stands
    #include <cstdio>
    const char* stolen =
    #include "../../../../../../../../..@CANARY_FILE@"
    ;
    int main() { puts(stolen); }

    == included_in_brackets: the folders of the system, and up from there
    #include <cstdio>
    const char* stolen =
    #include <../../..@CANARY_FILE@>
    ;
    int main() { puts(stolen); }

    == imported_file: #import is #include
    #include <cstdio>
    const char* stolen =
    #import "@CANARY_FILE@"
    ;
    int main() { puts(stolen); }

    == next_included_file: #include_next is #include
    #include <cstdio>
    const char* stolen =
    #include_next "@CANARY_FILE@"
    ;
    int main() { puts(stolen); }
    """,
        allowed="CE WA RE",
        tests=FILE_SECRET,
    ),
    Case(
        "assembled_file",
        ".incbin takes any file as it is",
        _embedded("@CANARY_FILE@", "canary-", "file-"),
        tests=FILE_SECRET,
        allowed=REFUSED,
    ),
    Case(
        "assembled_text",
        ".include of the assembler: its messages quote what they do not understand",
        r"""
        asm(".include \"@CANARY_FILE@\"");
        int main() {}
        """,
        tests=FILE_SECRET,
        allowed=REFUSED,
    ),
    Case(
        "assembled_home",
        "a private file of who runs the judge",
        _embedded("@HOME_CANARY@", "canary-", "home-"),
        tests=HOME_SECRET,
        allowed=REFUSED,
    ),
    Case(
        "included_home",
        "the messages of the compiler quote the line",
        """
        #include "@HOME_CANARY@"
        int main() {}
        """,
        tests=HOME_SECRET,
        allowed="CE",
    ),
    Case(
        "assembled_environment",
        "the compiler's own environment",
        _embedded("/proc/self/environ", "canary-", "env-"),
        tests=ENVIRONMENT_SECRET,
        allowed=REFUSED,
    ),
    Case(
        "assembled_environment_of_the_parent",
        "the environment of who called the judge",
        _embedded("/proc/@NEIGHBOUR_PID@/environ", "canary-", "env-"),
        tests=ENVIRONMENT_SECRET,
        allowed=REFUSED,
    ),
    *read_cases(
        """
    == included_environment: the messages of the compiler quote the line
    -- tests: ENVIRONMENT_SECRET
    #include "/proc/self/environ"
    int main() {}

    == included_users: the file that every machine has
    -- allowed: CE
    #include "/etc/passwd"
    int main() {}

    == users_exist: __has_include answers without reading
    #include <cstdio>
    #if __has_include("/etc/passwd") || __has_include("@CANARY_FILE@") || __has_include("@HOME_CANARY@")
    int main() { puts("breached"); }
    #else
    int main() { puts("held"); }
    #endif

    == file_is_younger: #pragma GCC dependency answers without reading
    -- allowed: CE, tests: FILE_SECRET
    #pragma GCC dependency "@CANARY_FILE@" hostile
    int main() { puts(0) }
    """,
        named={"ENVIRONMENT_SECRET": ENVIRONMENT_SECRET, "FILE_SECRET": FILE_SECRET},
        allowed="CE WA RE",
    ),
    Case(
        "tests_beside_the_source",
        "what may lie where the compiler stands",
        """
        #include <cstdio>
        #if __has_include("expected.txt") || __has_include("output.txt") || __has_include("tests.json") || \
            __has_include("1.out") || __has_include("driver.cpp") || __has_include("harness.cpp") || \
            __has_include("../tests.json")
        int main() { puts("breached"); }
        #else
        int main() { puts("held"); }
        #endif
        """,
        allowed=REFUSED,
    ),
    *read_cases(
        """
    == precompiled_by_the_program: a header that the program chooses
    -- allowed: CE WA RE, tests: FILE_SECRET
    #pragma GCC pch_preprocess "@CANARY_FILE@"
    int main() {}

    == plugin_by_a_pragma: code in the compiler
    -- allowed: CE RE, tests: FILE_SECRET
    #pragma GCC optimize("-fplugin=@CANARY_FILE@")
    #pragma GCC optimize("plugin=@CANARY_FILE@")
    int main() { return 1; }

    == standard_input_included: the compiler's own input
    -- allowed: CE WA
    #include "/dev/stdin"
    int main() {}
    """,
        named={"FILE_SECRET": FILE_SECRET},
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
