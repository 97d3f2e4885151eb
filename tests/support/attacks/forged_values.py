"""Python functions whose results claim to be right, by their own word."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import CONTAINED, CONTAINED_OR_TIMEOUT, SHORT_TIME, Case, read_cases

CALL = ({"call": [1], "expected": "@TOKEN@"},)

LIST_CALL = ({"call": [3], "expected": [1, 2, 3]},)

# Objects that claim to be equal to whatever they are compared with.
_EQUAL = """
class Equal{base}:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return hash({hash!r})
    def __bool__(self): return True
    def __len__(self): return 3
    def __iter__(self): return iter([self, self, self])
    def __getitem__(self, key): return self
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __sub__(self, other): return self
    __rsub__ = __add__ = __radd__ = __mul__ = __rmul__ = __abs__ = __neg__ = __round__ = lambda self, *words: self
    def __instancecheck__(self, other): return True
    def __repr__(self): return {text!r}
    __str__ = __repr__
    @property
    def __class__(self): return {pretend}
def solve(*words): return {result}
"""


def equal(base: str, pretend: str, result: str, text: str = "[1, 2, 3]", hash_of: object = 1) -> str:
    return _EQUAL.format(base=base, pretend=pretend, result=result, text=text, hash=hash_of)


OBJECTS = [
    Case(
        "equals_everything",
        "an object of its own",
        equal("", "list", "Equal()"),
        tests=LIST_CALL,
        entry_point="solve",
        limits=SHORT_TIME,
    ),
    Case(
        "list_that_equals",
        "a list by birth, so that it may pass a check of its type",
        equal("(list)", "list", "Equal()"),
        tests=LIST_CALL,
        entry_point="solve",
        limits=SHORT_TIME,
    ),
    Case("text_that_equals", "a text by birth", equal("(str)", "str", "Equal('x')"), tests=CALL, entry_point="solve"),
    Case(
        "number_that_equals",
        "a number by birth",
        equal("(int)", "int", "Equal(0)"),
        tests=({"call": [1], "expected": 42},),
        entry_point="solve",
    ),
    *read_cases(
        r"""
    == signaling_number: a number that raises an exception in each comparison
    -- tests: [{call: [1], expected: 42}, {call: [1], expected: 4.5, comparison: float}, {call: [1], expected: [42]}]
    from decimal import Decimal
    def solve(n): return Decimal('sNaN')

    == signaling_number_in_a_list: the same in a list
    -- tests: [{call: [1], expected: [42]}, {call: [1], expected: [4.5], comparison: unordered}]
    from decimal import Decimal
    def solve(n): return [Decimal('sNaN')]

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
    Case(
        "fraction_that_equals",
        "a float by birth",
        equal("(float)", "float", "Equal(0)"),
        tests=({"call": [1], "expected": 4.5},),
        entry_point="solve",
    ),
    Case(
        "dictionary_that_equals",
        "a dictionary by birth",
        equal("(dict)", "dict", "Equal()"),
        tests=({"call": [1], "expected": {"a": 1}},),
        entry_point="solve",
    ),
    Case(
        "equal_inside_a_list",
        "the list is honest, what is in it is not",
        equal("", "int", "[Equal(), Equal(), Equal()]"),
        tests=LIST_CALL,
        entry_point="solve",
    ),
    Case(
        "equal_inside_a_dictionary",
        "the dictionary is honest, its values are not",
        equal("", "int", "{'a': Equal()}"),
        tests=({"call": [1], "expected": {"a": 1}},),
        entry_point="solve",
    ),
    *read_cases(
        """
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

    == text_of_the_answer: a text that looks like the list
    -- allowed: WA
    def solve(n): return '[1, 2, 3]'

    == list_of_another_length: a prefix of the list
    -- allowed: WA
    def solve(n): return [1, 2]

    == longer_list: the list and more
    -- allowed: WA
    def solve(n): return [1, 2, 3, 4]

    == not_a_number: NaN, which no comparison finds wrong if it is done backwards
    -- tests: [{call: [1], expected: 1.5}]
    def solve(n): return float('nan')

    == generator: values one by one are not a list
    def solve(n):
        yield from [1, 2, 3]

    == key_of_another_type: a key that only its text makes equal
    -- allowed: WA, tests: [{call: [1], expected: {1: a}}]
    def solve(n): return {'1': 'a'}

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

    == large_text: a result of ninety megabytes
    -- allowed: WA RE MLE OLE TLE, limits: {memory_mb: 256}, tests: CALL
    def solve(n): return 'x' * (90 << 20)
    """,
        named={"CALL": CALL},
        entry_point="solve",
        tests=LIST_CALL,
    ),
    Case(
        "shared_result",
        "small in memory, huge when written out",
        """
        def solve(n):
            result = ['x']
            for _ in range(60): result = [result, result]
            return result
        """,
        tests=LIST_CALL,
        entry_point="solve",
        allowed="WA RE MLE OLE TLE",
        limits=SHORT_TIME,
    ),
    *read_cases(
        r"""
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

    == number_as_function: the entry point cannot be called
    -- allowed: RE CE WA
    solve = [1, 2, 3]

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
