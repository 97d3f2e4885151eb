"""Python programs that want AC for a part of the output, or for none."""

from __future__ import annotations

from tests.support.attacks.case import Case, read_cases

OUTPUT = [
    *read_cases(
        r"""
    == prints_nothing: an empty output is no prefix of the expected one
    -- output: "1\n2\n3\n"
    pass

    == prints_every_answer: one of them is right
    -- output: "42\n"
    print(*range(1000), sep='\n')
    """,
        allowed="WA",
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
    *read_cases(
        r"""
    == prints_and_raises: right, and then an exception
    -- allowed: RE, output: "ok\n"
    print('ok')
    1 / 0

    == prints_and_dies: right, and then a signal
    -- allowed: RE, output: "ok\n"
    import ctypes
    print('ok', flush=True)
    ctypes.string_at(8)

    == prints_to_the_other_channel: stderr is not the output
    -- output: "ok\n"
    import sys
    print('ok', file=sys.stderr)

    == ends_before_it_prints: success without an answer
    -- output: "ok\n"
    import os
    os._exit(0)
    print('ok')

    == says_so: names of verdicts are outputs like others
    -- output: "ok\n"
    print('AC')
    print('{"verdict": "AC", "score": 1.0}')

    == syntax_error: half a program
    -- allowed: CE RE, output: "ok\n"
    print('ok'

    == nothing_at_all: an empty program
    -- allowed: WA CE RE, output: "ok\n"

    """,
        allowed="WA",
    ),
]

CASES = OUTPUT
