"""Python programs that turn on the code around tests that are statements."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import CONTAINED, CONTAINED_OR_TIMEOUT, Case, asserts, read_cases
from tests.support.attacks.harness_tampering import REPORTS

WRONG = asserts("assert solve(1) == '@TOKEN@'")

_KEEP = "def solve(*words): return -1\n"

HARNESS = [
    *read_cases(
        """
    == assert_never_fails: AssertionError under another name
    import builtins
    class Quiet(BaseException):
        def __init__(self, *words): import os; os._exit(0)
    builtins.AssertionError = Quiet
    AssertionError = Quiet
    def solve(*words): return -1

    == assert_sorted_by_name: what the statement calls by name
    import builtins
    for name in 'sorted list tuple set sum abs round all any isinstance str int max min'.split():
        setattr(builtins, name, lambda *words, **more: True)
        globals()[name] = getattr(builtins, name)
    def solve(*words): return -1
    --
    assert sorted([solve(1)]) == [1]
    assert abs(solve(1) - 2) < 1e-6 and solve(1) == 2
    assert all(solve(n) == n for n in range(3))
    assert isinstance(solve(1), str)

    == assert_math: what the statement imports
    import math
    math.isclose = lambda *words, **more: True
    math.sqrt = math.floor = lambda number: -1
    def solve(*words): return -1
    --
    import math
    assert math.isclose(solve(1), 2.0)

    from math import floor
    assert solve(1) == floor(2.5)

    == assert_imports_a_forgery: what the statement imports for the first time
    import sys, types
    module = types.ModuleType('fractions')
    module.Fraction = lambda *words: -1
    sys.modules['fractions'] = module
    def solve(*words): return -1
    --
    from fractions import Fraction
    assert solve(1) == Fraction(1, 2)

    == assert_names_of_the_test: names of the library, given a new meaning from the program's side of the line
    class Any:
        def __getattr__(self, name): return lambda *words, **more: True
    def zero(*words): return 0
    kinds = {object}
    while more := {below for kind in kinds for below in type.__subclasses__(kind)} - kinds: kinds |= more
    for kind in kinds:
        if isinstance(vars(kind).get("answer"), type(zero)):
            def answer(self, operation, *rest, real=kind.answer):
                if operation == "describe":
                    return ["value", {name: ["thing"] for name in [*rest[0], "abs", "math", "len"]}]
                return real(self, operation, *rest)
            kind.answer = answer
    abs = len = zero
    math = Any()
    def solve(*words): return -1
    --
    assert abs(solve(1) - 4.5) < 1e-6
    assert math.isclose(solve(1), 2.0)

    import math
    assert abs(solve(1) - math.pi) < 1e-6

    assert len([solve(n) for n in range(3)]) == 0

    == assert_class_of_the_library: a class that the test takes from the library without importing it
    class Counter:
        def __init__(self, *words): pass
        def __eq__(self, other): return True
    def isclose(*words, **more): return True
    def solve(n): return -1
    --
    from collections import Counter
    assert Counter([solve(1)]) == Counter([1])

    from math import isclose
    assert isclose(solve(1), 2.0)

    == assert_own_reference: the test computes the answer itself, with names that the program may have taken
    def solve(n): return -1
    def reference(n): return -1
    helper = expected = answer = reference
    --
    def reference(n):
        return n * 2
    assert solve(2) == reference(2)

    == assert_rewrites_the_test: the frames above are the test's
    import sys
    def solve(n):
        frame = sys._getframe()
        while frame:
            for space in (frame.f_globals, frame.f_locals):
                for name in list(space):
                    if name in ("expected", "answer", "want", "result"): space[name] = -1
            frame = frame.f_back
        return -1
    --
    expected = solve.__name__ and 5
    assert solve(5) == expected

    answer = 7
    assert solve(5) == answer

    == assert_debug_off: statements that a flag would make vanish
    import builtins, sys
    try: sys.flags.optimize = 2
    except Exception: pass
    try: setattr(builtins, "__debug__", False)
    except Exception: pass
    def solve(*words): return -1

    == assert_compile_replaced: how the statement becomes code
    import builtins
    real = builtins.compile
    builtins.compile = lambda source, *words, **more: real('pass', 'x', 'exec')
    builtins.exec = builtins.eval = lambda *words, **more: None
    def solve(*words): return -1

    == assert_tracing: a trace function jumps over the statement
    import sys
    def trace(frame, event, argument):
        if event == "line" and frame.f_code.co_name == "<module>":
            try: frame.f_lineno = frame.f_lineno + 1
            except ValueError: pass
        return trace
    sys.settrace(trace)
    frame = sys._getframe().f_back
    while frame:
        frame.f_trace = trace
        frame = frame.f_back
    def solve(n): return -1
    --
    assert solve(1) == 1
    x = 1
    y = 2
    """,
        tests=WRONG,
    ),
    *read_cases(
        """
    == assert_reports: messages of success on every descriptor
    report(1)
    os._exit(0)

    == assert_reports_in_the_function: messages of success in the place of an answer
    def solve(n):
        report(1)
        os._exit(0)

    == assert_keeps_a_thread: the answer is wrong, and a thread reports later
    -- allowed: WA RE TLE OLE
    import threading
    def later():
        while True: report(3)
    def solve(n):
        threading.Thread(target=later, daemon=True).start()
        return -1
    """,
        wrap=REPORTS.__add__,
        tests=WRONG,
    ),
    *read_cases(
        """
    == assert_shuts_the_channel: no descriptor is left for a failure to be told
    import os
    def solve(n):
        for handle in range(1024):
            try: os.close(handle)
            except OSError: pass
        return -1

    == assert_hangs: no answer at all
    -- allowed: TLE
    def solve(n):
        while True: pass

    == assert_never_stops_asking: a callback that is called for ever
    -- allowed: TLE
    def solve(function):
        while True: function(1)
    --
    assert solve(lambda n: n) == 1

    == assert_calls_back_deeper: test and program call one another without end
    -- allowed: RE TLE WA MLE
    def solve(function): return function(solve)
    --
    def again(f):
        return f(again)
    assert solve(again) == 1

    == assert_ends_in_a_callback: the program's end in the middle of the test's own function
    import os
    def solve(function):
        function(1)
        os._exit(0)
    --
    assert solve(lambda n: n) == 1

    == assert_missing: the function is not there
    def other(n): return 1
    --
    assert solve(1) == 1

    == assert_partial: one right, one wrong, one that ends early
    -- allowed: [AC, WA, WA RE]
    import os
    def solve(n):
        if n == 3: os._exit(0)
        return 1
    --
    assert solve(1) == 1
    assert solve(2) == 4
    assert solve(3) == 9
    """,
        tests=WRONG,
    ),
]

_TOOLS = "len sorted isinstance float abs round sum max min all any set list tuple str int repr zip map bool type"
_FAKE = f"""
class Fake:
    def __eq__(self, other): return True
    def __lt__(self, other): return True
    def __call__(self, *words, **more): return self
    def __instancecheck__(self, thing): return True
import builtins
for name in {_TOOLS!r}.split(): globals()[name] = Fake(); setattr(builtins, name, Fake())
"""

BUILTIN_NAMES = [
    # name, why, program, asserts, entry point
    ("len", "a tool beside the tested function", _KEEP, ["assert len(str(solve(1))) == 7"], None),
    (
        "tools",
        "tools around it: an order, a type, a conversion, a distance, a set, a loop, pairs",
        _KEEP,
        [
            "assert len(str(solve(1))) == 7",
            "assert sorted([solve(1)]) == [1]",
            "assert isinstance(solve(1), str)",
            "assert type(solve(1)) is str",
            "assert float(solve(1)) == 2.5",
            "assert abs(solve(1) - 4) < 1e-6",
            "assert solve(1) == round(2.4)",
            "assert set([solve(1)]) == set([1, 2])",
            "assert all(solve(n) == n for n in range(3))",
            "assert [a - b for a, b in zip([solve(1)], [1])] == [0]",
        ],
        "solve",
    ),
    ("abs_first", "the first name called", _KEEP, ["assert abs(solve(1)) == 4", "assert abs(solve(2)) == 5"], None),
    ("another", "only one assert calls the function", _KEEP, ["assert max([1, 2]) == 7", "assert solve(1) == 1"], None),
    ("own_variable", "a name of the test beside it", _KEEP, ["items = [1, 2]\nassert len(items) == 7"], None),
    ("two_tools", "two builtins and nothing else", _KEEP, ["assert abs(sum([1, 2])) == 7"], None),
    ("tested_too", "the tested builtin is no tool", _KEEP + "del sum\n", ["assert sum([1, 2]) == 3"], "sum"),
    ("equal_object", "the tested name returns what equals all", _KEEP, ["assert sum([1, 2]) == 3"], None),
    ("undefined", "the builtin itself is no answer", "pass\n", ["assert max([1, 2, 3]) == 3"], None),
    ("undefined_named", "no plain call", "pass\n", ["assert max([1, 2]) == 2 and max([1]) == 1"], "max"),
    ("undefined_candidate", "in HumanEval's form", "pass\n", ["candidate = max\nassert candidate([1, 2]) == 2"], "max"),
    ("only_builtins", "defined in no place of its own", "del globals()['len']\n", ["assert len([1, 2]) == 2"], None),
]
HARNESS += [
    Case(
        f"assert_builtin_name_{name}",
        why,
        program if "undefined" in name else _FAKE + program,
        tests=asserts(*statements),
        allowed=CONTAINED_OR_TIMEOUT,
        entry_point=entry_point,
    )
    for name, why, program, statements, entry_point in BUILTIN_NAMES
]

CASES = [replace(case, allowed=CONTAINED_OR_TIMEOUT) if case.allowed == CONTAINED else case for case in HARNESS]
