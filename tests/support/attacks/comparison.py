"""Outputs that are nearly right: what each way of comparing may not let pass."""

from __future__ import annotations

from tests.support.attacks.case import Case


def _prints(name: str, why: str, printed: str, expected: str, comparison: str | None) -> Case:
    """A program that writes these bytes as they are, against this expected output."""
    program = f"import sys\nsys.stdout.buffer.write({printed.encode('utf-8', 'surrogateescape')!r})\n"
    return Case(name, why, program, ({"input": "", "output": expected},), "WA", comparison=comparison)


# The rules are those of tests/rlvr/verifiers/code/test_compare_output.py: one program for each comparison, and bytes
# that a report could pass on.
_NEARLY = [
    # name, why, printed, expected, comparison
    ("leading_blank", "indentation counts, line by line", " 1\n", "1\n", None),
    ("value_next_digit", "a digit more of another number", "1.01\n", "1.0\n", None),
    ("tokens_order", "the same tokens in another order", "2 1\n", "1 2\n", "tokens"),
    ("float_too_far", "ten times the tolerance", "1.50002\n", "1.5\n", "float"),
    ("unordered_set", "lines have a multiplicity", "1\n2\n2\n", "1\n1\n2\n", "unordered"),
    ("yes_no_other", "the other answer", "No\n", "yes\n", "yes_no"),
    ("exact_blank", "every byte counts", "ok \n", "ok\n", "exact"),
    ("escape_codes", "a terminal would show only the right answer", "\x1b[2J\x1b[Hok\n", "ok\n", None),
    ("zero_byte", "some stop reading here", "ok\0wrong\n", "ok\n", None),
    ("unicode_line_end", "what some call a line end", "1\u20282\n", "1\n2\n", None),
    ("broken_bytes", "bytes that a lenient decoder would drop", "o\udcffk\n", "ok\n", None),
]
STDIO = [
    _prints("compared_" + name, why, printed, expected, comparison)
    for name, why, printed, expected, comparison in _NEARLY
]

_SUM = "def check(input, output, expected):\n    a, b = map(int, output.split())\n    return a + b == int(input)\n"

CHECKERS = [
    Case("checker_" + name, why, program, ({"input": given, "output": "1\n"},), allowed, checker=checker)
    for name, why, program, given, allowed, checker in [
        ("wrong_answer", "the checker says no", "print(1, 2)", "4\n", "WA", _SUM),
        ("falls_over_words", "an output that the checker cannot read is wrong", "print('one two')", "4\n", "WA", _SUM),
        ("falls_over_nothing", "so is none at all", "pass", "4\n", "WA", _SUM),
        ("after_a_crash", "no checker is asked about a crash", "print('2 2')\nraise SystemExit(2)", "4\n", "RE", _SUM),
        (
            "is_kept_busy",
            "an output that the checker works on for ever",
            "print(10**12)",
            "",
            "WA TLE",
            "def check(input, output, expected):\n    for n in range(int(output)): pass\n    return True\n",
        ),
        (
            "is_filled",
            "an output that costs the checker its memory",
            "print(10**10)",
            "",
            "WA MLE",
            "def check(input, output, expected): return len('x' * int(output)) > 0\n",
        ),
        (
            "runs_the_output",
            "a checker that trusts its input too much runs in a sandbox as well",
            "print(\"open('@PUBLIC@/hostile-checker', 'w').close() or __import__('os')._exit(0)\")",
            "",
            "WA",
            "def check(input, output, expected): return eval(output) == 1\n",
        ),
        (
            "is_told_to_exit",
            "an end of the checker that looks like success",
            "print('raise SystemExit(0)')",
            "",
            "WA",
            "def check(input, output, expected):\n    exec(output)\n    return False\n",
        ),
        (
            "prints",
            "what a checker prints is not its word",
            "print('True')",
            "",
            "WA",
            "def check(input, output, expected):\n    print(output)\n    return output == expected\n",
        ),
    ]
]

CASES = STDIO + CHECKERS
