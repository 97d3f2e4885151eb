"""Python programs against tests that are statements, where an object may be asked anything."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import CONTAINED, CONTAINED_OR_TIMEOUT, Case, asserts, read_cases
from tests.support.attacks.early_exits import EARLY_EXITS
from tests.support.attacks.forged_values import equal

WRONG = asserts("assert solve(1) == '@TOKEN@'")

ENDS = (
    [
        Case(
            "assert_ends_by_" + name,
            "an end that is no answer",
            f"def solve(*words):\n    {line}\n",
            tests=WRONG,
            allowed="WA RE TLE" if name == "endless_values" else "WA RE",
        )
        for name, line in EARLY_EXITS.items()
    ]
    + [
        Case(
            "assert_module_ends_by_" + name,
            "the statements were never reached",
            f"{line}\n",
            tests=WRONG,
            allowed="WA RE CE",
        )
        for name, line in EARLY_EXITS.items()
        if name in ("sys_exit", "os_exit", "killed", "raw_exit", "exit_site")
    ]
    + [
        *read_cases(
            r"""
    == assert_signaling_number: a number that raises an exception in each comparison
    from decimal import Decimal
    def solve(n): return Decimal('sNaN')
    --
    assert solve(3) == 3
    assert solve(3) in [3]
    assert solve(3) == [3]

    == assert_identity: an object of the program's is none of Python's
    class Thing:
        def __bool__(self): return True
    def solve(n): return Thing()
    --
    assert solve(3) is None
    assert solve(3) is True
    assert solve(3) is int

    == exception_of_another_kind: any exception is not the ValueError that was wanted
    def solve(n): raise KeyError(n)
    --
    try:
        solve(-1)
        assert False
    except ValueError:
        pass

    == exception_that_is_everything: its class claims to be a ValueError
    class Kind(type):
        def __instancecheck__(cls, other): return True
        def __subclasscheck__(cls, other): return True
        def __eq__(cls, other): return True
        __hash__ = type.__hash__
    class Odd(Exception, metaclass=Kind):
        @property
        def __class__(self): return ValueError
    def solve(n): raise Odd
    --
    try:
        solve(-1)
        assert False
    except ValueError:
        pass

    == exit_where_any_exception_will_do: SystemExit is no Exception, and an end is none at all
    import sys
    def solve(n): sys.exit(0)
    --
    raised = False
    try:
        solve(-1)
    except Exception:
        raised = True
    assert raised

    == end_where_any_exception_will_do: SystemExit is no Exception, and an end is none at all
    import os
    def solve(n): os._exit(0)
    --
    raised = False
    try:
        solve(-1)
    except Exception:
        raised = True
    assert raised

    == broken_line_where_any_exception_will_do: what the harness cannot read is no exception of the program's
    import os
    def solve(n):
        for handle in range(3, 64):
            try: os.write(handle, b'\0\0\0\4junk')
            except OSError: pass
        os._exit(0)
    --
    raised = False
    try:
        solve(-1)
    except Exception:
        raised = True
    assert raised

    == ends_when_compared: the comparison itself is an end
    import os
    class End:
        def __eq__(self, other): os._exit(0)
    def solve(n): return End()

    == ends_when_it_has_no_users: the end of an object is an end
    import os
    class End:
        def __del__(self): os._exit(0)
    def solve(n): return [End()]

    == skips_the_rest: the first statement is right, the second is never run
    -- tests: [{assert: "assert solve(1) == 1\nassert solve(2) == 4"}]
    import os
    def solve(n):
        if n == 1: return 1
        os._exit(0)
    """,
            tests=WRONG,
        ),
    ]
)

OBJECTS = read_cases(
    """
    == assert_equals_everything: an object of its own
    -- limits: {time_s: 0.2}
    object | list | Equal()
    --
    assert solve(3) == [1, 2, 3]
    assert [1, 2, 3] == solve(3)

    == assert_list_that_equals: a subclass on the right is asked first
    -- limits: {time_s: 0.2}
    list | list | Equal()
    --
    assert [1, 2, 3] == solve(3)
    assert solve(3) == [1, 2, 3]
    assert sorted(solve(3)) == [1, 2, 3]
    assert list(solve(3)) == [1, 2, 3]
    assert tuple(solve(3)) == (1, 2, 3)

    == assert_text_that_equals: a text by birth
    str | str | Equal('x')
    --
    assert solve(1) == '@TOKEN@'

    == assert_number_that_equals: a number by birth
    int | int | Equal(0)
    --
    assert solve(1) == 42
    assert 42 == solve(1)
    assert not solve(1) != 42

    == assert_equal_inside: the list, the tuple or the dictionary is honest, what is in it is not
    object | int | {1: {'a': Equal()}, 2: (1, Equal()), 3: [Equal(), Equal(), Equal()]}[words[0]]
    --
    assert solve(3) == [1, 2, 3]
    assert solve(2) == (1, 2)
    assert solve(1) == {'a': 1}
    assert solve(1)['a'] == 1

    == assert_key_that_equals: a key with the right hash
    object | str | {Equal(): 1} | 'a'
    --
    assert solve(1) == {'a': 1}
    assert solve(1)['a'] == 1

    == assert_member_of_a_set: found by its hash, accepted by its own word, alone or in a set
    object | int | Equal() if words[0] == 1 else {Equal()} | 7
    --
    assert solve(1) in {7}
    assert solve(1) in [7, 8]
    assert solve(2) == {7}
    assert set(solve(2)) == {7}

    == assert_almost: a difference that is always small
    object | float | Equal()
    --
    assert abs(solve(1) - 4.5) < 1e-6
    assert round(solve(1), 2) == 4.5

    import math
    assert math.isclose(solve(1), 4.5)

    == assert_float_that_is_almost: a float by birth, whose difference is always small
    float | float | Equal(0)
    --
    assert abs(solve(1) - 4.5) < 1e-6
    assert solve(1) == 4.5

    == assert_type_and_value: the type by its own word
    -- limits: {time_s: 0.2}
    object | list | Equal()
    --
    r = solve(3)
    assert isinstance(r, list) and r == [1, 2, 3]

    r = solve(3)
    assert type(r) is list and r == [1, 2, 3]

    == assert_truth_of_a_comparison: a comparison whose result is an object that is true
    -- plain: true
    class True_:
        def __bool__(self): return True
    class Odd:
        def __eq__(self, other): return True_()
        def __lt__(self, other): return True_()
        __gt__ = __le__ = __ge__ = __lt__
    def solve(n): return Odd()
    --
    assert solve(1) == 42
    assert 41 < solve(1) < 43

    == assert_method_of_an_object: the object may be the program's, its answers and attributes may not lie
    object | int | None
    class Stack:
        def __init__(self): self.x = Equal()
        def push(self, n): pass
        def pop(self): return Equal()
        def __len__(self): return 0
    --
    s = Stack()
    s.push(1)
    assert s.pop() == 1

    s = Stack()
    s.push(1)
    assert len(s) == 1

    s = Stack()
    s.push(1)
    assert str(s.pop()) == '1'

    assert Stack().x == 3

    == assert_mutated_argument: the argument is to be sorted, not replaced by a liar
    object | int | None
    def solve(items): items[:] = [Equal()] * 3
    --
    a = [3, 1, 2]
    solve(a)
    assert a == [1, 2, 3]

    == assert_generator_of_equals: what comes out of a generator
    object | int | None
    def solve(n): yield from [Equal()] * 3
    --
    assert list(solve(3)) == [1, 2, 3]

    == assert_callback_result: what is handed to the test's own function
    object | int | None
    def solve(function): return function(Equal())
    --
    assert solve(lambda n: n == 5) is True

    seen = []
    solve(seen.append)
    assert seen == [5]

    == assert_nan: a number that is in a list that equals itself
    -- plain: true
    nan = float('nan')
    def solve(n): return nan
    --
    assert solve(1) == 1.5
    assert abs(solve(1) - 1.5) < 1e-6

    == assert_changes_its_mind: right when looked at once, another value when looked at again
    -- plain: true
    class Odd:
        n = 0
        def __iter__(self):
            Odd.n += 1
            return iter([1, 2, 3] if Odd.n > 1 else [3])
        def __eq__(self, other): return list(other) == [1, 2, 3]
    def solve(n): return Odd()
    --
    assert solve(3) == [1, 2, 3]
    """,
    wrap=equal,
)

CASES = ENDS + [replace(case, allowed=CONTAINED_OR_TIMEOUT) if case.allowed == CONTAINED else case for case in OBJECTS]
