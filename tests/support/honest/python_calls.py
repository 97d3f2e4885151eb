"""Python functions that are called with values of every usual type; none may be punished."""

from __future__ import annotations

from tests.support.attacks.case import read_cases
from tests.support.honest.case import honest


def call(*words: object, expected: object) -> dict[str, object]:
    return {"call": list(words), "expected": expected}


CALLS = [
    honest(
        "call_whole_number",
        "one argument",
        """
        def square(n):
            return n * n
        """,
        [call(3, expected=9), call(-4, expected=16)],
        entry_point="square",
    ),
    honest(
        "call_number_of_many_digits",
        "beyond 64 bits, and beyond what the interpreter prints by default",
        "def power(n): return 7 ** n\n",
        [call(100, expected=7**100), call(20_000, expected=7**20_000)],
        entry_point="power",
    ),
    honest(
        "call_float",
        "a float comes back as it was",
        "def third(n): return n / 3\n",
        [call(1, expected=1 / 3), call(0.1 + 0.2, expected=(0.1 + 0.2) / 3)],
        entry_point="third",
    ),
    *read_cases(
        """
    == call_float_nearly: where a tolerance was asked for
    -- entry_point: root, tests: [{call: [2], expected: 1.41421356, comparison: float, tolerance: 0.000001}]
    def root(n):
        x = n
        for _ in range(60): x = (x + n / x) / 2
        return x
    """,
        make=honest,
    ),
    honest(
        "call_infinite",
        "infinity is a value",
        "def f(n): return float('inf') * n\n",
        [call(1, expected=float("inf")), call(-1, expected=float("-inf"))],
        entry_point="f",
    ),
    *read_cases(
        r"""
    == call_text: quotes, line ends, other scripts
    -- tests: [{call: ["a\"b\n'λ🙂"], expected: "🙂λ'\nb\"a"}, {call: [""], expected: ""}]
    def f(s): return s[::-1]

    == call_truth: True, False and None
    -- tests: [{call: [1], expected: true}, {call: [-1], expected: false}, {call: [0], expected: null}]
    def f(n): return None if n == 0 else n > 0

    == call_dictionary: keys that are text, keys that are numbers
    -- tests: [{call: [[a, b, a]], expected: {a: 2, b: 1}}, {call: [[1, 1]], expected: {1: 2}}]
    def f(words):
        counts = {}
        for word in words: counts[word] = counts.get(word, 0) + 1
        return counts

    == call_deep_recursion: a stack like a program's
    -- tests: [{call: [50000], expected: 50000}]
    import sys
    sys.setrecursionlimit(200_000)
    def f(n): return 0 if n == 0 else 1 + f(n - 1)

    == call_prints_too: printed output of a call is ignored
    -- tests: [{call: [1], expected: 2}]
    def f(n):
        print('working on', n)
        return n + 1

    == call_guarded_main: the part for the command line is left alone
    -- tests: [{call: [1], expected: 2}]
    def f(n): return n + 1
    if __name__ == '__main__':
        print(f(int(input())))

    == call_changes_its_argument: in place, and returned
    -- tests: [{call: [[3, 1, 2]], expected: [1, 2, 3, 0]}]
    def f(items):
        items.sort()
        items.append(0)
        return items

    == call_module_state: a global that a test changes is fresh for the next
    -- tests: [{call: [5], expected: 1}, {call: [6], expected: 1}]
    seen = []
    def f(n):
        seen.append(n)
        return len(seen)

    == call_raises_once: an exception in one test
    -- allowed: [AC, RE], tests: [{call: [2], expected: 5}, {call: [0], expected: 0}]
    def f(n): return 10 // n

    == call_decorated: a cache around it
    -- tests: [{call: [90], expected: 2880067194370816120}]
    from functools import cache
    @cache
    def f(n): return n if n < 2 else f(n - 1) + f(n - 2)

    == call_fraction: numbers of the library that equal the expected ones
    -- tests: [{call: [3], expected: 1.5}, {call: [4], expected: 2}, {call: [1], expected: 0.5, comparison: float}]
    from fractions import Fraction
    def f(n): return Fraction(n, 2)

    == call_lambda: a function without a def
    -- tests: [{call: [6, 7], expected: 42}]
    f = lambda a, b: a * b
    """,
        make=honest,
        entry_point="f",
    ),
    honest(
        "call_large_list",
        "two hundred thousand numbers, there and back",
        "def f(items): return [n + 1 for n in items]\n",
        [call(list(range(200_000)), expected=list(range(1, 200_001)))],
        entry_point="f",
        limits={"output_kb": 8192, "time_s": 4.0},
    ),
    honest(
        "call_numpy_inside",
        "arrays within, plain values without",
        """
        import numpy as np
        def f(items): return int(np.array(items).sum())
        """,
        [call([1, 2, 3], expected=6)],
        entry_point="f",
        needs="numpy",
        limits={"memory_mb": 512, "time_s": 4.0},
    ),
]

CASES = CALLS
