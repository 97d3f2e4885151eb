"""Python programs that want AC for a part of the output, or for none."""

from __future__ import annotations

from tests.support.attacks.case import Case

OUTPUT = [
    Case(
        "prints_nothing",
        "an empty output is nobody's prefix",
        "pass",
        tests=({"input": "", "output": "1\n2\n3\n"},),
        allowed="WA",
    ),
    Case(
        "prints_the_first_line",
        "a right beginning is not an answer",
        "print(1)",
        tests=({"input": "", "output": "1\n2\n3\n"},),
        allowed="WA",
    ),
    Case(
        "prints_too_much",
        "the right answer, and another",
        """
        print(1)
        print(2)
        """,
        tests=({"input": "", "output": "1\n"},),
        allowed="WA",
    ),
    Case(
        "prints_every_answer",
        "one of them is right",
        "print(*range(1000), sep='\\n')",
        tests=({"input": "", "output": "42\n"},),
        allowed="WA",
    ),
    Case(
        "prints_every_answer_in_a_line",
        "one of them is right",
        "print(*range(1000))",
        tests=({"input": "", "output": "42\n"},),
        allowed="WA",
    ),
    Case(
        "prints_and_fails",
        "right, and then an exit code",
        """
        import sys
        print('ok')
        sys.exit(1)
        """,
        tests=({"input": "", "output": "ok\n"},),
        allowed="RE",
    ),
    Case(
        "prints_and_says_why",
        "sys.exit with a text is exit code 1",
        """
        import sys
        print('ok')
        sys.exit('done')
        """,
        tests=({"input": "", "output": "ok\n"},),
        allowed="RE",
    ),
    Case(
        "prints_and_ends_oddly",
        "exit codes that no byte can hold, a fraction, a truth",
        """
        import sys
        print('ok')
        sys.exit({'1': 2**64, '2': 0.0, '3': True, '4': -1, '5': [], '6': 'done'}[input()])
        """,
        tests=tuple({"input": str(n), "output": "ok\n"} for n in range(1, 7)),
        allowed="RE",
    ),
    Case(
        "prints_and_raises",
        "right, and then an exception",
        """
        print('ok')
        1 / 0
        """,
        tests=({"input": "", "output": "ok\n"},),
        allowed="RE",
    ),
    Case(
        "prints_and_dies",
        "right, and then a signal",
        """
        import ctypes
        print('ok', flush=True)
        ctypes.string_at(8)
        """,
        tests=({"input": "", "output": "ok\n"},),
        allowed="RE",
    ),
    Case(
        "prints_to_the_other_channel",
        "stderr is not the output",
        """
        import sys
        print('ok', file=sys.stderr)
        """,
        tests=({"input": "", "output": "ok\n"},),
        allowed="WA",
    ),
    Case(
        "ends_before_it_prints",
        "success without an answer",
        """
        import os
        os._exit(0)
        print('ok')
        """,
        tests=({"input": "", "output": "ok\n"},),
        allowed="WA",
    ),
    Case(
        "says_so",
        "names of verdicts are outputs like others",
        """
        print('AC')
        print('{"verdict": "AC", "score": 1.0}')
        """,
        tests=({"input": "", "output": "ok\n"},),
        allowed="WA",
    ),
    Case(
        "answers_the_samples_only",
        "a table of the public tests",
        "print({'1': 'one', '2': 'two'}.get(input(), ''))",
        tests=({"input": "1\n", "output": "one\n"}, {"input": "3\n", "output": "three\n"}),
        allowed=("AC", "WA"),
    ),
    Case("syntax_error", "half a program", "print('ok'\n", tests=({"input": "", "output": "ok\n"},), allowed="CE RE"),
    Case("nothing_at_all", "an empty program", "", tests=({"input": "", "output": "ok\n"},), allowed="WA CE RE"),
]

CASES = OUTPUT
