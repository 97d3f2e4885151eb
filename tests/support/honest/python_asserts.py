"""Python programs that are questioned by statements: objects, exceptions, callbacks; none may be punished."""

from __future__ import annotations

from tests.support.attacks.case import asserts, read_cases
from tests.support.cases import cases
from tests.support.honest.case import honest

ASSERTS = [
    *read_cases(
        """
    == assert_equal: the usual form
    def f(n): return n * n
    --
    assert f(3) == 9
    assert f(3) == 9, 'with a message'
    assert 9 == f(3)
    assert f(f(2)) == 16

    == assert_types: every type of literal
    def f(x): return x
    --
    assert f((1, 2)) == (1, 2)
    assert f({1, 2}) == {2, 1}
    assert f({'a': [1, (2, 3)]}) == {'a': [1, (2, 3)]}
    assert f(None) is None
    assert f(True) is True
    assert f(b'ab') == b'ab'
    assert f(1.5) == 1.5
    assert f(frozenset({1})) == frozenset({1})
    assert f(2j) == 2j
    assert f(range(3)) == range(3)

    == assert_not_equal: and other comparisons
    def f(n): return n * n
    --
    assert f(3) != 8
    assert f(3) > 8 and not f(3) > 9
    assert 8 < f(3) < 10
    assert f(3) in (9, 10)
    assert f(3) not in [1, 2]

    == assert_nearly: floats
    def f(n): return n / 3
    --
    import math
    assert math.isclose(f(1), 0.333333333333, rel_tol=1e-9)

    assert abs(f(2) - 0.6666667) < 1e-6
    assert round(f(2), 2) == 0.67

    == assert_functions_of_results: len, sorted, set, sum, all
    def f(n): return list(range(n, 0, -1))
    --
    assert len(f(3)) == 3
    assert sorted(f(3)) == [1, 2, 3]
    assert set(f(3)) == {1, 2, 3}
    assert sum(f(4)) == 10
    assert all(n > 0 for n in f(5))
    assert f(3)[0] == 3 and f(3)[-1] == 1 and f(3)[1:] == [2, 1]
    assert [n * 2 for n in f(2)] == [4, 2]
    assert isinstance(f(2), list)
    assert str(f(2)) == '[2, 1]'
    assert f(2) + [0] == [2, 1, 0]

    == assert_exception: an exception that is asked for
    def f(n):
        if n < 0: raise ValueError('negative number')
        return n
    --
    try:
        f(-1)
    except ValueError:
        pass
    else:
        assert False, 'no exception'

    try:
        f(-1)
        assert False
    except ValueError as error:
        assert 'negative' in str(error)

    raised = False
    try:
        f(-1)
    except Exception:
        raised = True
    assert raised

    == assert_own_exception: an exception class of the program's own
    class Empty(Exception): pass
    def f(items):
        if not items: raise Empty('none')
        return items[0]
    --
    try:
        f([])
        assert False
    except Empty as error:
        assert str(error) == 'none'

    assert issubclass(Empty, Exception)

    == assert_several_statements: names, loops, helper functions
    def f(n): return n * n
    --
    total = 0
    for n in range(4):
        total += f(n)
    assert total == 14

    def twice(n):
        return f(f(n))
    assert twice(3) == 81
    assert twice(1) == 1

    from itertools import count
    assert next(n for n in count() if f(n) > 50) == 8

    == assert_in_place: the argument is what changes
    def f(items):
        items.sort()
        items.pop()
    def g(d): d['new'] = d.pop('old')
    --
    a = [3, 1, 2]
    f(a)
    assert a == [1, 2]

    a = [3, 1, 2]
    assert f(a) is None and a == [1, 2]

    d = {'old': 1}
    g(d)
    assert d == {'new': 1}

    == assert_object: a class with methods, length, items
    class Stack:
        def __init__(self): self.items = []
        def push(self, n): self.items.append(n)
        def pop(self):
            if not self.items: raise IndexError('empty')
            return self.items.pop()
        def __len__(self): return len(self.items)
        def __iter__(self): return iter(self.items)
        def __contains__(self, n): return n in self.items
        def __getitem__(self, k): return self.items[k]
        @property
        def top(self): return self.items[-1]
    --
    s = Stack()
    s.push(1)
    s.push(2)
    assert s.pop() == 2
    assert len(s) == 1

    s = Stack()
    s.push(5)
    assert s.top == 5 and s[0] == 5 and 5 in s and list(s) == [5]

    s = Stack()
    try:
        s.pop()
        assert False
    except IndexError:
        pass

    s = Stack()
    assert not s
    assert isinstance(s, Stack)

    == assert_dataclass: objects of the program's compared with one another
    from dataclasses import dataclass
    @dataclass
    class Point:
        x: int
        y: int = 0
        def moved(self, dx): return Point(self.x + dx, self.y)
        def __add__(self, other): return Point(self.x + other.x, self.y + other.y)
        def __str__(self): return f'<{self.x} {self.y}>'
    --
    assert Point(1, 2) == Point(1, 2)
    assert Point(1).moved(2) == Point(3, 0)
    assert Point(1, 2) != Point(2, 1)

    p = Point(1) + Point(2, 3)
    assert (p.x, p.y) == (3, 3)

    assert str(Point(1, 2)) == '<1 2>'
    assert repr(Point(1, 2)) == 'Point(x=1, y=2)'

    p = Point(1)
    p.x = 7
    assert p.moved(1).x == 8

    == assert_generator: values one by one
    def f(n):
        while n:
            yield n
            n -= 1
    --
    assert list(f(3)) == [3, 2, 1]

    g = f(2)
    assert next(g) == 2
    assert next(g) == 1
    assert next(g, None) is None

    assert sum(f(3)) == 6
    assert [a for a in f(2)] == [2, 1]

    == assert_callback: a function of the test's
    def f(function, items): return [function(item) for item in items]
    def twice(function): return lambda n: function(function(n))
    --
    assert f(lambda n: n + 1, [1, 2]) == [2, 3]
    assert f(str, [1, 2]) == ['1', '2']
    assert twice(lambda n: n * 3)(2) == 18

    seen = []
    f(seen.append, [1, 2])
    assert seen == [1, 2]
    """,
        make=honest,
    ),
    honest(
        "assert_check_function",
        "as HumanEval has it: check(candidate)",
        "def add(a, b): return a + b\n",
        asserts(
            """
            def check(candidate):
                assert candidate(1, 2) == 3
                assert candidate(-1, 1) == 0
                assert abs(candidate(0.1, 0.2) - 0.3) < 1e-6

            check(add)
            """
        ),
    ),
    *read_cases(
        """
    == assert_inheritance: class methods, static methods, properties
    class Shape:
        sides = 0
        @classmethod
        def make(cls, *a): return cls(*a)
        @staticmethod
        def unit(): return 'cm'
    class Square(Shape):
        sides = 4
        def __init__(self, a): self.a = a
        @property
        def area(self): return self.a ** 2
        def __eq__(self, other): return isinstance(other, Square) and self.a == other.a
        def __lt__(self, other): return self.a < other.a
        def __hash__(self): return hash(self.a)
    --
    assert Square.make(3).area == 9
    assert Square.unit() == 'cm' and Square.sides == 4
    assert issubclass(Square, Shape) and isinstance(Square(1), Shape)
    assert Square(2) == Square(2) and Square(1) < Square(2)
    assert max([Square(1), Square(3)]).a == 3
    assert len({Square(1), Square(1)}) == 1

    == assert_truth_of_an_object: an object is true, None is not
    import re
    def f(s): return re.match('a', s)
    --
    assert f('abc')
    assert not f('b')
    assert f('abc') is not None and f('b') is None
    assert f('abc').group() == 'a'
    assert bool(f('abc')) is True

    == assert_own_truth: __bool__, __call__, __int__, a minus sign
    class V:
        def __init__(self, x): self.x = x
        def __bool__(self): return self.x != 0
        def __call__(self, y): return self.x + y
        def __neg__(self): return V(-self.x)
        def __int__(self): return self.x
        def __eq__(self, other): return isinstance(other, V) and self.x == other.x
    --
    assert V(2)
    assert not V(0)
    assert V(2)(3) == 5
    assert (-V(2)).x == -2
    assert -V(2) == V(-2)
    assert int(V(2)) == 2

    == assert_object_times_number: an object of the program's with plain data makes another one
    class V:
        def __init__(self, x): self.x = x
        def __mul__(self, k): return V(self.x * k)
        def __add__(self, other): return V(self.x + other.x)
    --
    assert (V(2) * 3).x == 6
    assert (V(2) + V(3)).x == 5

    == assert_names_like_builtins: a variable of the test that is called as a module or a function is
    def f(items): return sorted(items)
    --
    queue = [3, 1]
    assert f(queue) == [1, 3]

    list = [2, 1]
    assert f(list) == [1, 2]

    array = f([2, 1])
    array.append(3)
    assert array == [1, 2, 3]

    == assert_async: a coroutine
    import asyncio
    async def f(n):
        await asyncio.sleep(0)
        return n + 1
    --
    import asyncio
    assert asyncio.run(f(1)) == 2

    == assert_standard_types: what the library's classes return
    from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
    from fractions import Fraction
    from decimal import Decimal
    import datetime
    Pair = namedtuple('Pair', 'a b')
    def counted(s): return Counter(s)
    def half(): return Fraction(1, 2)
    def price(): return Decimal('1.10')
    def day(): return datetime.date(2024, 2, 29)
    def pair(): return Pair(1, 2)
    def line(): return deque([1, 2])
    def table():
        d = defaultdict(list)
        d['a'].append(1)
        return d
    --
    assert counted('aab') == {'a': 2, 'b': 1}

    from fractions import Fraction
    assert half() == Fraction(1, 2)

    from decimal import Decimal
    assert price() == Decimal('1.1')

    import datetime
    assert day() == datetime.date(2024, 2, 29)

    assert pair() == (1, 2) and pair()[0] == 1

    from collections import deque
    assert line() == deque([1, 2])

    assert table() == {'a': [1]}
    """,
        make=honest,
    ),
]

# name, why, program, asserts, entry point
BUILTIN_NAMES = cases(__file__, "builtin names")
ODD = read_cases(
    r"""
    == assert_one_object: a singleton, a member of an enumeration, a cached object
    import enum, functools
    class Color(enum.Enum): RED = 1
    class Only:
        _only = None
        def __new__(cls):
            cls._only = cls._only or super().__new__(cls)
            return cls._only
    @functools.cache
    def made(n): return object()
    --
    assert Only() is Only()
    assert Color(1) is Color.RED and Color['RED'] == Color.RED
    assert made(1) is made(1) and made(1) is not made(2)

    == assert_documentation: the program's own text
    class Stack:
        'Last in, first out.'
    def f():
        "Return 1."
        return 1
    def g(): pass
    --
    assert f.__doc__ == "Return 1." and g.__doc__ is None
    assert Stack.__doc__ == 'Last in, first out.'

    == assert_numpy_in_the_test: the test alone imports it
    -- needs: numpy
    def f(): return [0.1 + 0.2, 1]
    --
    import numpy as np
    assert np.allclose(f(), [0.3, 1.0])

    import numpy
    numpy.testing.assert_allclose(f(), [0.3, 1.0])
    assert numpy.sum(f()) > 1
    """,
    make=honest,
    limits={"time_s": 4.0},
)

CASES = (
    ASSERTS
    + ODD
    + [
        honest(f"assert_builtin_name_{name}", why, program, asserts(*statements), entry_point=entry_point)
        for name, why, program, statements, entry_point in BUILTIN_NAMES
    ]
)
