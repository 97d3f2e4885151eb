"""Python programs against tests that are statements, where an object may be asked anything."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import CONTAINED, CONTAINED_OR_TIMEOUT, SHORT_TIME, Case, asserts, block, read_cases
from tests.support.attacks.early_exits import EARLY_EXITS
from tests.support.attacks.forged_values import equal

WRONG = asserts("assert solve(1) == '@TOKEN@'")

LIST = asserts("assert solve(3) == [1, 2, 3]")

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

    == assert_signaling_number_inside: the same in a list
    from decimal import Decimal
    def solve(n): return [Decimal('sNaN')]
    --
    assert solve(3) == [3]
    assert sorted(solve(3)) == [3]

    == assert_identity: an object of the program's is none of Python's
    class Thing:
        def __bool__(self): return True
    def solve(n): return Thing()
    --
    assert solve(3) is None
    assert solve(3) is True
    assert solve(3) is int

    == exit_where_an_exception_is_asked_for: SystemExit is not the ValueError that was wanted
    import sys
    def solve(n): sys.exit(0)
    --
    try:
        solve(-1)
    except ValueError:
        pass
    else:
        assert False

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

    == ends_at_exit_of_the_statement: the last word is the program's
    import atexit, os, sys
    atexit.register(os._exit, 0)
    sys.excepthook = lambda *words: os._exit(0)
    def solve(n): return 1

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
    """,
            tests=WRONG,
        ),
        Case(
            "skips_the_rest",
            "the first statement is right, the second is never run",
            """
            import os
            def solve(n):
                if n == 1: return 1
                os._exit(0)
            """,
            tests=asserts(
                """
                assert solve(1) == 1
                assert solve(2) == 4
                """
            ),
        ),
    ]
)

OBJECTS = [
    Case(
        "assert_equals_everything", "an object of its own", equal("", "list", "Equal()"), tests=LIST, limits=SHORT_TIME
    ),
    Case(
        "assert_equals_from_the_right",
        "Python asks the right side when the left one does not know",
        equal("", "list", "Equal()"),
        tests=asserts("assert [1, 2, 3] == solve(3)"),
        limits=SHORT_TIME,
    ),
    Case(
        "assert_list_that_equals",
        "a subclass on the right is asked first",
        equal("(list)", "list", "Equal()"),
        tests=asserts("assert [1, 2, 3] == solve(3)", "assert solve(3) == [1, 2, 3]"),
        limits=SHORT_TIME,
    ),
    Case("assert_text_that_equals", "a text by birth", equal("(str)", "str", "Equal('x')"), tests=WRONG),
    Case(
        "assert_number_that_equals",
        "a number by birth",
        equal("(int)", "int", "Equal(0)"),
        tests=asserts("assert solve(1) == 42", "assert 42 == solve(1)", "assert not solve(1) != 42"),
    ),
    Case(
        "assert_equal_inside_a_list",
        "the list is honest, what is in it is not",
        equal("", "int", "[Equal(), Equal(), Equal()]"),
        tests=LIST,
    ),
    Case(
        "assert_equal_inside_a_tuple",
        "the tuple is honest, what is in it is not",
        equal("", "int", "(1, Equal())"),
        tests=asserts("assert solve(1) == (1, 2)"),
    ),
    Case(
        "assert_equal_inside_a_dictionary",
        "the dictionary is honest, its values are not",
        equal("", "int", "{'a': Equal()}"),
        tests=asserts("assert solve(1) == {'a': 1}", "assert solve(1)['a'] == 1"),
    ),
    Case(
        "assert_key_that_equals",
        "a key with the right hash",
        equal("", "str", "{Equal(): 1}", hash_of="a"),
        tests=asserts("assert solve(1) == {'a': 1}", "assert solve(1)['a'] == 1"),
    ),
    Case(
        "assert_member_of_a_set",
        "found by its hash, accepted by its own word",
        equal("", "int", "Equal()", hash_of=7),
        tests=asserts("assert solve(1) in {7}", "assert solve(1) in [7, 8]"),
    ),
    Case(
        "assert_set_of_equals",
        "a set of such",
        equal("", "int", "{Equal()}", hash_of=7),
        tests=asserts("assert solve(1) == {7}", "assert set(solve(1)) == {7}"),
    ),
    Case(
        "assert_almost",
        "a difference that is always small",
        equal("", "float", "Equal()"),
        tests=asserts(
            "assert abs(solve(1) - 4.5) < 1e-6",
            """
            import math
            assert math.isclose(solve(1), 4.5)
            """,
            "assert round(solve(1), 2) == 4.5",
        ),
    ),
    Case(
        "assert_float_that_is_almost",
        "a float by birth, whose difference is always small",
        equal("(float)", "float", "Equal(0)"),
        tests=asserts("assert abs(solve(1) - 4.5) < 1e-6", "assert solve(1) == 4.5"),
    ),
    Case(
        "assert_sorted",
        "order, length and text by its own word",
        equal("(list)", "list", "Equal()"),
        tests=asserts(
            "assert sorted(solve(3)) == [1, 2, 3]",
            "assert list(solve(3)) == [1, 2, 3]",
            "assert tuple(solve(3)) == (1, 2, 3)",
        ),
        limits=SHORT_TIME,
    ),
    Case(
        "assert_type_and_value",
        "the type by its own word",
        equal("", "list", "Equal()"),
        tests=asserts(
            """
            r = solve(3)
            assert isinstance(r, list) and r == [1, 2, 3]
            """,
            """
            r = solve(3)
            assert type(r) is list and r == [1, 2, 3]
            """,
        ),
        limits=SHORT_TIME,
    ),
    Case(
        "assert_truth_of_a_comparison",
        "a comparison whose result is an object that is true",
        """
        class True_:
            def __bool__(self): return True
        class Odd:
            def __eq__(self, other): return True_()
            def __lt__(self, other): return True_()
            __gt__ = __le__ = __ge__ = __lt__
        def solve(n): return Odd()
        """,
        tests=asserts("assert solve(1) == 42", "assert 41 < solve(1) < 43"),
    ),
    Case(
        "assert_method_of_an_object",
        "the object may be the program's, its answers may not lie",
        equal("", "int", "None")
        + block("""
            class Stack:
                def push(self, n): pass
                def pop(self): return Equal()
                def __len__(self): return 0
        """),
        tests=asserts(
            """
            s = Stack()
            s.push(1)
            assert s.pop() == 1
            """,
            """
            s = Stack()
            s.push(1)
            assert len(s) == 1
            """,
            """
            s = Stack()
            s.push(1)
            assert str(s.pop()) == '1'
            """,
        ),
    ),
    Case(
        "assert_attribute_of_an_object",
        "an attribute that equals everything",
        equal("", "int", "None")
        + block("""
            class Point:
                def __init__(self, x): self.x = Equal()
        """),
        tests=asserts("assert Point(3).x == 3"),
    ),
    Case(
        "assert_mutated_argument",
        "the argument is to be sorted, not replaced by a liar",
        equal("", "int", "None")
        + block("""
            def solve(items):
                items[:] = [Equal()] * 3
        """),
        tests=asserts(
            """
            a = [3, 1, 2]
            solve(a)
            assert a == [1, 2, 3]
            """
        ),
    ),
    Case(
        "assert_generator_of_equals",
        "what comes out of a generator",
        equal("", "int", "None")
        + block("""
            def solve(n):
                for _ in range(3): yield Equal()
        """),
        tests=asserts("assert list(solve(3)) == [1, 2, 3]"),
    ),
    Case(
        "assert_callback_result",
        "what is handed to the test's own function",
        equal("", "int", "None") + "def solve(function): return function(Equal())\n",
        tests=asserts(
            "assert solve(lambda n: n == 5) is True",
            """
            seen = []
            solve(seen.append)
            assert seen == [5]
            """,
        ),
    ),
    Case(
        "assert_nan",
        "a number that is in a list that equals itself",
        """
        nan = float('nan')
        def solve(n): return nan
        """,
        tests=asserts("assert solve(1) == 1.5", "assert abs(solve(1) - 1.5) < 1e-6"),
    ),
    Case(
        "assert_changes_its_mind",
        "right when looked at once, another value when looked at again",
        """
        class Odd:
            n = 0
            def __iter__(self):
                Odd.n += 1
                return iter([1, 2, 3] if Odd.n > 1 else [3])
            def __eq__(self, other): return list(other) == [1, 2, 3]
        def solve(n): return Odd()
        """,
        tests=LIST,
    ),
]

CASES = ENDS + [replace(case, allowed=CONTAINED_OR_TIMEOUT) if case.allowed == CONTAINED else case for case in OBJECTS]
