"""Python functions whose results claim to be right, by their own word."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import CONTAINED, CONTAINED_OR_TIMEOUT, read_cases

CALL = ({"call": [1], "expected": "@TOKEN@"},)

LIST_CALL = ({"call": [3], "expected": [1, 2, 3]},)

# Objects that claim to be equal to whatever they are compared with.
_EQUAL = """
class Equal({base}):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return hash({hash})
    def __bool__(self): return True
    def __len__(self): return 3
    def __iter__(self): return iter([self, self, self])
    def __getitem__(self, key): return self
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __sub__(self, other): return self
    __rsub__ = __add__ = __radd__ = __mul__ = __rmul__ = __abs__ = __neg__ = __round__ = lambda self, *words: self
    def __instancecheck__(self, other): return True
    def __repr__(self): return '[1, 2, 3]'
    __str__ = __repr__
    @property
    def __class__(self): return {pretend}
def solve(*words): return {result}
"""


def equal(text: str) -> str:
    """Return a program whose objects equal whatever they are compared with.

    The first line has the objects' base, the class that they claim, what `solve` returns and perhaps what an object
    hashes as. Further lines are a part of the program.
    """
    first, _, more = text.partition("\n")
    base, pretend, result, *hash_of = first.split(" | ")
    return _EQUAL.format(base=base, pretend=pretend, result=result, hash=hash_of[0] if hash_of else 1) + more


OBJECTS = [
    *read_cases(
        """
    == equals_everything: an object of its own
    -- limits: {time_s: 0.2}
    object | list | Equal()

    == list_that_equals: a list by birth, so that it may pass a check of its type
    -- limits: {time_s: 0.2}
    list | list | Equal()

    == text_that_equals: a text by birth
    -- tests: [{call: [1], expected: "@TOKEN@"}]
    str | str | Equal('x')

    == number_that_equals: a number by birth
    -- tests: [{call: [1], expected: 42}]
    int | int | Equal(0)

    == fraction_that_equals: a float by birth
    -- tests: [{call: [1], expected: 4.5}]
    float | float | Equal(0)

    == dictionary_that_equals: a dictionary by birth
    -- tests: [{call: [1], expected: {a: 1}}]
    dict | dict | Equal()

    == equal_inside: the list or the dictionary is honest, what is in it is not
    -- tests: [{call: [3], expected: [1, 2, 3]}, {call: [1], expected: {a: 1}}]
    object | int | [Equal(), Equal(), Equal()] if words[0] == 3 else {'a': Equal()}
    """,
        wrap=equal,
        entry_point="solve",
        tests=LIST_CALL,
    ),
    *read_cases(
        r"""
    == signaling_number: a number that raises an exception in each comparison, also in a list
    -- tests: [{call: [1], expected: 42}, {call: [1], expected: 4.5, comparison: float}, {call: [1], expected: [42]},
    -- {call: [2], expected: [42]}, {call: [2], expected: [4.5], comparison: unordered}]
    from decimal import Decimal
    def solve(n): return [Decimal('sNaN')] if n == 2 else Decimal('sNaN')

    == quiet_number: a number that equals none
    -- tests: [{call: [1], expected: 42}, {call: [1], expected: 4.5, comparison: float}]
    from decimal import Decimal
    def solve(n): return Decimal('NaN')

    == number_of_a_long_exponent: a number of a trillion digits
    -- tests: [{call: [1], expected: 42}, {call: [1], expected: 4.5, comparison: float}]
    from decimal import Decimal
    def solve(n): return Decimal('1e999999999999')

    == nearly_a_fraction: a value that a float would round to the expected one
    -- tests: [{call: [1], expected: 0.5}]
    from decimal import Decimal
    def solve(n): return Decimal('0.50000000000000000000000001')

    == true_as_a_fraction: a truth value is no number
    -- tests: [{call: [1], expected: true}]
    from fractions import Fraction
    def solve(n): return Fraction(1)
    """,
        entry_point="solve",
    ),
    *read_cases(
        r"""
    == speaks_json: an object whose text is that of the answer
    -- tests: [{call: [1], expected: 42}]
    class Text(dict):
        def __repr__(self): return '42'
        __str__ = __repr__
        def __iter__(self): return iter([42])
        def __int__(self): return 42
        def __index__(self): return 42
        def __float__(self): return 42.0
    def solve(n): return Text()

    == generator: values one by one are not a list
    def solve(n):
        yield from [1, 2, 3]

    == list_in_itself: a result without end
    def solve(n):
        result = [1, 2, 3]
        result.append(result)
        return result

    == deep_result: a result of a million brackets
    -- allowed: WA RE MLE OLE TLE
    def solve(n):
        result = []
        for _ in range(1_000_000): result = [result]
        return result

    == large_result: forty million numbers
    -- allowed: WA RE MLE OLE TLE
    def solve(n): return [0] * 40_000_000

    == shared_result: small in memory, huge when written out
    -- allowed: WA RE MLE OLE TLE, limits: {time_s: 0.2}
    def solve(n):
        result = ['x']
        for _ in range(60): result = [result, result]
        return result

    == half_a_character: a text that no encoding takes
    -- tests: CALL
    def solve(n): return '\ud800'

    == many_digits: a number that is slow to write out
    -- allowed: WA RE TLE OLE MLE, limits: {time_s: 1.0}, tests: [{call: [1], expected: 42}]
    def solve(n): return 7 ** 3_000_000

    == result_changes_later: a thread changes the result while it is on its way
    -- allowed: WA RE TLE
    import threading
    result = [0, 0, 0]
    def change():
        while True:
            result[:] = [1, 2]
            result[:] = [0] * 9
    def solve(n):
        threading.Thread(target=change, daemon=True).start()
        return result

    == class_as_function: the entry point is something else
    class solve:
        def __init__(self, n): pass
        def __eq__(self, other): return True

    == no_function: the entry point is missing
    -- allowed: RE CE WA
    def other(n): return [1, 2, 3]

    == every_attribute: an entry point with a will of its own
    class Any:
        def __getattr__(self, name): return self
        def __call__(self, *a, **k): return self
        def __eq__(self, other): return True
    solve = Any()
    """,
        named={"CALL": CALL},
        entry_point="solve",
        tests=LIST_CALL,
    ),
]

# Who confuses the harness pays for the time that it takes.
CASES = [replace(case, allowed=CONTAINED_OR_TIMEOUT) if case.allowed == CONTAINED else case for case in OBJECTS]
