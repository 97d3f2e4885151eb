"""C++ that takes the compiler's time and memory, or breaks it."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import Case, read_cases

# Compilations without end are cut here; none of them may compile, so it can be soon.
BOMB = {"compile_time_s": 0.5}

BOMBS = [
    *read_cases(
        r"""
    == endless_file: /dev/zero never ends
    #include "/dev/zero"
    int main() {}

    == endless_binary: .incbin of /dev/zero
    asm(".incbin \"/dev/zero\"");
    int main() {}

    == includes_itself_twice: two to the power of two hundred
    #if __INCLUDE_LEVEL__ < 190
    #include __FILE__
    #include __FILE__
    #endif

    == macro_bomb: a hundred characters become ten to the power of ten
    #define A x x x x x x x x x x
    #define B A A A A A A A A A A
    #define C B B B B B B B B B B
    #define D C C C C C C C C C C
    #define E D D D D D D D D D D
    #define F E E E E E E E E E E
    #define G F F F F F F F F F F
    #define H G G G G G G G G G G
    #define I H H H H H H H H H H
    #define J I I I I I I I I I I
    J
    int main() {}

    == template_doubling: a type that needs two others, to a depth of eight hundred
    template <int n, int m> struct T {
        static const long value = T<n - 1, 2 * m % 1000003>::value + T<n - 1, (2 * m + 1) % 1000003>::value;
    };
    template <int m> struct T<0, m> { static const long value = 1; };
    int main() { return T<40, 1>::value; }

    == pair_of_pairs: an object of four terabytes
    -- allowed: CE RE MLE
    #include <utility>
    template <class T, int n> struct D { using type = typename D<std::pair<T, T>, n - 1>::type; };
    template <class T> struct D<T, 0> { using type = T; };
    typename D<int, 40>::type value;
    int main() { return sizeof value > 99; }

    == constant_recursion: many loops that each stay below the compiler's own bound
    constexpr unsigned long f(int k) { unsigned long s = k;
        for (unsigned long i = 0; i < 6000000; i++) s += i * k; return s; }
    template <int k> struct V { static constexpr unsigned long value = f(k) + V<k - 1>::value; };
    template <> struct V<0> { static constexpr unsigned long value = 0; };
    int main() { return V<500>::value % 7; }

    == initialised_array: four gigabytes of program
    int a[1 << 30] = {1};
    int main() { return a[1]; }

    == filled_section: the assembler fills eight gigabytes
    asm(".data\n.fill 1 << 30, 8, 1\n.text");
    int main() {}

    == growing_assembly: an assembler macro that calls itself twice
    asm(".macro grow n\n.if \\n\ngrow \\n-1\ngrow \\n-1\n.endif\n.endm\ngrow 60");
    int main() {}

    == many_errors: sixty thousand mistakes and their stories
    #include <map>
    #include <string>
    #define A std::map<int, std::map<int, std::string>>() << std::map<std::string, int>();
    #define B A A A A A A A A A A
    #define C B B B B B B B B B B
    #define D C C C C C C C C C C
    #define E D D D D D D D D D D
    int main() { E }
    """,
        allowed="CE",
    ),
    Case(
        "deep_expression",
        "a hundred thousand brackets",
        "int main() { return " + "(" * 100_000 + "1" + ")" * 100_000 + "; }\n",
        allowed="CE RE WA",
    ),
    *read_cases(
        """
    == overloads_without_end: an overload set whose resolution needs itself
    -- allowed: CE
    struct A {}; template <class T> auto f(T t) -> decltype(f(t + t));
    template <class T> T operator+(T, T); int main() { f(A{}); }
    """,
    ),
]

RUNNING = [
    *read_cases(
        r"""
    == section_of_the_linker: a note that asks for an executable stack is no attack, but may not help
    -- allowed: CE RE
    asm(".section .note.GNU-stack,\"x\",@progbits\n.text");
    int main() { return 1; }

    == undefined_symbol: fails in the linker, not in the compiler
    int nowhere(int);
    int main() { return nowhere(1); }

    == no_main: there is nothing to start
    int solve(int n) { return n; }

    == interpreter_of_the_program: a program header that names another loader
    -- allowed: CE WA RE
    #include <cstdio>
    extern "C" const char loader[] __attribute__((section(".interp"))) = "/bin/sh";
    int main() { puts("held"); }

    == error_directive: a message of the program's choice
    #error AC score=1.0
    int main() {}
    """,
        allowed="CE",
    ),
    Case(
        "zero_bytes_in_the_source",
        "bytes that no editor writes",
        "int main() { return 1; }\n\0\0\0// \x01\x02\n",
        allowed="CE RE",
    ),
    *read_cases(
        r"""
    == printed_by_the_assembler: the assembler's .print is not the program's output
    -- allowed: WA CE
    asm(".print \"breached\"");
    int main() {}
    """,
    ),
]

CASES = [
    replace(case, name="cpp_" + case.name, language="cpp", limits=BOMB if case in BOMBS else case.limits)
    for case in BOMBS + RUNNING
]
