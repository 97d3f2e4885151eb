"""Outputs that are nearly right: what each way of comparing may not let pass."""

from __future__ import annotations

from tests.support.attacks.case import Case, block


def _prints(
    name: str,
    why: str,
    printed: str,
    expected: str,
    comparison: str | None = None,
    allowed: str = "WA",
    language: str = "python",
) -> Case:
    """A program that writes these bytes as they are, against this expected output."""
    program = f"import sys\nsys.stdout.buffer.write({printed.encode('utf-8', 'surrogateescape')!r})\n"
    return Case(
        name,
        why,
        program,
        tests=({"input": "", "output": expected},),
        allowed=allowed,
        comparison=comparison,
        language=language,
    )


_NEARLY = [
    # name, why, printed, expected, comparison
    ("missing_last_line", "a prefix", "1\n2\n", "1\n2\n3\n", None),
    ("extra_line", "the answer and more", "1\n2\n3\n", "1\n2\n", None),
    ("leading_blank", "indentation counts, line by line", " 1\n", "1\n", None),
    ("blank_line_between", "a line that is not in the answer", "1\n\n2\n", "1\n2\n", None),
    ("leading_line", "an empty line before the answer", "\n1\n", "1\n", None),
    ("two_blanks", "inner blanks count, line by line", "1  2\n", "1 2\n", None),
    ("lines_joined", "the same tokens in one line", "1 2\n", "1\n2\n", None),
    ("case", "capitals count, line by line", "YES\n", "Yes\n", None),
    ("digits_of_another_script", "a digit is a digit of ASCII", "４２\n", "42\n", None),
    ("vertical_tab_as_line_end", "what some call a line end", "1\x0b2\n", "1\n2\n", None),
    ("form_feed_as_line_end", "what some call a line end", "1\x0c2\n", "1\n2\n", None),
    ("unicode_line_end", "what some call a line end", "1\u20282\n", "1\n2\n", None),
    ("next_line_as_line_end", "what some call a line end", "1\x852\n", "1\n2\n", None),
    ("separators_as_line_end", "what some call a line end", "1\x1c2\x1e3\n", "1\n2\n3\n", None),
    ("overwritten", "a terminal would show only the right answer", "wrong\rok\n", "ok\n", None),
    ("erased", "a terminal would show only the right answer", "x\bok\n", "ok\n", None),
    ("escape_codes", "a terminal would show only the right answer", "\x1b[2J\x1b[Hok\n", "ok\n", None),
    ("zero_byte", "some stop reading here", "ok\0wrong\n", "ok\n", None),
    ("byte_order_mark", "an invisible character", "\ufeffok\n", "ok\n", None),
    ("invisible_blank", "an invisible character", "ok\u200b\n", "ok\n", None),
    ("no_break_space", "looks like a blank at the end of a line, and is a character", "ok\u00a0x\n", "ok x\n", None),
    ("broken_bytes", "bytes that a lenient decoder would drop", "o\udcffk\n", "ok\n", None),
    ("something_for_nothing", "an output where none is expected", "0\n", "", None),
    ("nothing_for_something", "none where an output is expected", "", "0\n", None),
    ("blanks_for_something", "no output but blanks", "\n  \n", "0\n", None),
    ("tokens_glued", "the same characters, other tokens", "12\n", "1 2\n", "tokens"),
    ("tokens_prefix", "some of the tokens", "1 2\n", "1 2 3\n", "tokens"),
    ("tokens_more", "all of the tokens, and one more", "1 2 3 4\n", "1 2 3\n", "tokens"),
    ("tokens_order", "the same tokens in another order", "2 1\n", "1 2\n", "tokens"),
    ("tokens_set", "a set of tokens has no repetition", "1 2\n", "1 2 2\n", "tokens"),
    ("tokens_case", "capitals count", "yes\n", "YES\n", "tokens"),
    ("tokens_number_form", "another way of writing a number is another token", "1.0\n", "1\n", "tokens"),
    ("tokens_none", "no token at all", "", "1\n", "tokens"),
    ("value_next_digit", "a digit more of another number", "1.01\n", "1.0\n", None),
    ("value_rounded", "the value of fewer digits", "0.33\n", "0.333\n", None),
    ("value_truncated", "a decimal without what follows the point", "1\n", "1.5\n", None),
    ("value_sign", "the other sign", "-1.50\n", "1.5\n", None),
    ("value_point_moved", "another exponent", "1.5e2\n", "15.0\n", None),
    ("value_of_an_integer", "a decimal for an integer", "2.0\n", "2\n", None),
    ("value_integer_next", "off by less than a float shows", "9007199254740993\n", "9007199254740992.0\n", None),
    ("value_comma", "a decimal comma", "1,5\n", "1.5\n", None),
    ("value_underscore", "Python's notation", "1_0.0\n", "10.0\n", None),
    ("value_fraction", "a fraction", "3/2\n", "1.5\n", None),
    ("value_product", "an expression", "3*0.5\n", "1.5\n", None),
    ("value_hexadecimal", "another notation", "0x1.8p0\n", "1.5\n", None),
    ("value_of_words", "a number and its unit", "1.5m\n", "1.5\n", None),
    ("value_other_script", "a digit is a digit of ASCII", "１.50\n", "1.5\n", None),
    ("value_not_a_number", "NaN equals nothing", "nan\n", "1.5\n", None),
    ("value_infinite", "infinity equals nothing", "inf\n", "1.5\n", None),
    ("value_twice", "the number and again", "1.5 1.50\n", "1.5\n", None),
    ("value_zero", "a number close to nothing", "1e-9999\n", "0.0\n", None),
    ("value_digits", "more digits than any float has", "1." + "0" * 5000 + "1\n", "1.0\n", None),
    ("value_in_any_order", "the lines of two decimals, mixed", "1.0 2.50\n", "2.5 1.0\n", "unordered"),
    ("value_or_word", "a decimal for a word", "1.0\n", "1.o\n", "yes_no"),
    ("exact_value", "every byte counts", "1.50\n", "1.5\n", "exact"),
    ("exact_last_line_end", "every byte counts", "ok", "ok\n", "exact"),
    ("exact_blank", "every byte counts", "ok \n", "ok\n", "exact"),
    ("exact_windows", "every byte counts", "ok\r\n", "ok\n", "exact"),
    ("exact_extra_line_end", "every byte counts", "ok\n\n", "ok\n", "exact"),
    (
        "float_large_whole_number",
        "off by one, where a relative tolerance would hide it",
        "1000001\n",
        "1000000\n",
        "float",
    ),
    (
        "float_larger_than_a_float",
        "off by one, where a float is too coarse to see it",
        "9007199254740993\n",
        "9007199254740992\n",
        "float",
    ),
    ("float_thirty_digits", "off by one in thirty digits", "1" + "0" * 28 + "1\n", "1" + "0" * 29 + "\n", "float"),
    ("float_not_a_number", "NaN is near to nothing", "nan\n", "1.5\n", "float"),
    ("float_against_not_a_number", "a NaN in the expected output is not near to everything", "0.5\n", "nan\n", "float"),
    ("float_infinite", "infinity is near to nothing", "inf\n", "1.5\n", "float"),
    ("float_overflow", "a number beyond all floats", "1e400\n", "1.5\n", "float"),
    ("float_both_overflow", "two different numbers beyond all floats", "2e400\n", "1e400\n", "float"),
    ("float_too_far", "ten times the tolerance", "1.50002\n", "1.5\n", "float"),
    ("float_underscore", "Python's notation is no number elsewhere", "1_0.5\n", "10.5\n", "float"),
    ("float_other_script", "a digit is a digit of ASCII", "１.5\n", "1.5\n", "float"),
    ("float_hexadecimal", "another notation", "0x1.8p0\n", "1.5\n", "float"),
    ("float_count", "one number fewer", "1.5\n", "1.5 2.5\n", "float"),
    ("float_sign", "the wrong sign, near zero to no one", "-0.5\n", "0.5\n", "float"),
    ("float_word", "a word between numbers is compared as a word", "no 1.5\n", "yes 1.5\n", "float"),
    ("float_everything", "an interval is not a number", "1.4..1.6\n", "1.5\n", "float"),
    ("unordered_set", "lines have a multiplicity", "1\n2\n2\n", "1\n1\n2\n", "unordered"),
    ("unordered_fewer", "lines have a multiplicity", "1\n2\n", "1\n2\n2\n", "unordered"),
    ("unordered_more", "all lines, and some", "3\n2\n1\n", "1\n2\n", "unordered"),
    ("unordered_other", "another line", "1\n3\n", "1\n2\n", "unordered"),
    ("unordered_none", "no lines", "", "1\n", "unordered"),
    ("yes_no_both", "both answers", "yes\nno\n", "yes\n", "yes_no"),
    ("yes_no_glued", "both answers in one word", "yesno\n", "yes\n", "yes_no"),
    ("yes_no_other", "the other answer", "No\n", "yes\n", "yes_no"),
    ("yes_no_none", "no answer", "", "no\n", "yes_no"),
    ("yes_no_count", "fewer answers than questions", "yes\n", "yes\nyes\n", "yes_no"),
    ("yes_no_maybe", "a word that begins like it", "yesterday\n", "yes\n", "yes_no"),
]
STDIO = [
    _prints("compared_" + name, why, printed, expected, comparison)
    for name, why, printed, expected, comparison in _NEARLY
]

_SUM = "def check(input, output, expected):\n    a, b = map(int, output.split())\n    return a + b == int(input)\n"
CHECKERS = [
    Case(
        "checker_wrong_answer",
        "the checker says no",
        "print(1, 2)",
        tests=({"input": "4\n", "output": "2 2\n"},),
        allowed="WA",
        checker=_SUM,
    ),
    Case(
        "checker_falls_over_words",
        "an output that the checker cannot read is a wrong one, and the program's fault",
        "print('one two')",
        tests=({"input": "4\n", "output": "2 2\n"},),
        allowed="WA",
        checker=_SUM,
    ),
    Case(
        "checker_falls_over_nothing",
        "so is none at all",
        "pass",
        tests=({"input": "4\n", "output": "2 2\n"},),
        allowed="WA",
        checker=_SUM,
    ),
    Case(
        "checker_is_kept_busy",
        "an output that the checker works on for ever",
        "print(10**12)",
        tests=({"input": "", "output": "1\n"},),
        allowed="WA TLE",
        checker=block("""
            def check(input, output, expected):
                total = 0
                for n in range(int(output)):
                    total += n
                return True
        """),
    ),
    Case(
        "checker_is_filled",
        "an output that costs the checker its memory",
        "print(10**10)",
        tests=({"input": "", "output": "1\n"},),
        allowed="WA MLE",
        checker=block("""
            def check(input, output, expected):
                return len('x' * int(output)) > 0
        """),
    ),
    Case(
        "checker_runs_the_output",
        "a checker that trusts its input too much runs in a sandbox as well",
        "print(\"open('@PUBLIC@/hostile-checker', 'w').close() or __import__('os')._exit(0)\")",
        tests=({"input": "", "output": "1\n"},),
        allowed="WA",
        checker=block("""
            def check(input, output, expected):
                return eval(output) == 1
        """),
    ),
    Case(
        "checker_is_told_to_exit",
        "an end of the checker that looks like success",
        "print('raise SystemExit(0)')",
        tests=({"input": "", "output": "1\n"},),
        allowed="WA",
        checker=block("""
            def check(input, output, expected):
                exec(output)
                return False
        """),
    ),
    Case(
        "checker_prints",
        "what a checker prints is not its word",
        "print('True')",
        tests=({"input": "", "output": "1\n"},),
        allowed="WA",
        checker=block("""
            def check(input, output, expected):
                print(output)
                return output == expected
        """),
    ),
    Case(
        "checker_after_a_crash",
        "no checker is asked about a program that failed",
        """
        print('2 2')
        raise SystemExit(2)
        """,
        tests=({"input": "4\n", "output": "2 2\n"},),
        allowed="RE",
        checker=_SUM,
    ),
]

CASES = STDIO + CHECKERS
