"""Python functions that turn on the code around them."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import CONTAINED, CONTAINED_OR_TIMEOUT, read_cases

CALL = ({"call": [1], "expected": "@TOKEN@"},)

LIST_CALL = ({"call": [3], "expected": [1, 2, 3]},)

# Guesses at what a harness says when all is well, in the usual framings.
REPORTS = r"""
import json, os, pickle, struct
words = ["AC", "OK", "ok", "passed", "PASS", "true", "True", "1", "0"]
things = [{"verdict": "AC"}, {"passed": True}, {"ok": True, "value": None}, {"status": "passed"}, ["AC"], [True], True]
things += [{"result": "passed", "score": 1.0}, 1.0, None, ["value", None], {"kind": "value", "value": None}]
bodies = [word.encode() for word in words]
bodies += [json.dumps(thing).encode() for thing in things] + [pickle.dumps(thing) for thing in things]
frames = (b"%s\n", b"%s"), ("<I", ">I", "<Q")
messages = [frame % body for body in bodies for frame in frames[0]]
messages += [struct.pack(frame, len(body)) + body for body in bodies for frame in frames[1]]
messages += [b"%d\n%s" % (len(body), body) for body in bodies]
def report(first=3):
    for handle in range(first, 256):
        try: os.fstat(handle); os.set_blocking(handle, False)
        except OSError: continue
        for message in messages:
            try: os.write(handle, message)
            except OSError: break
"""

HARNESS = [
    *read_cases(
        """
    == reports_in_the_module: messages of success on every descriptor, before the tests
    report()
    def solve(n): return 1

    == reports_and_ends: messages of success on every descriptor, and no tests
    report(1)
    os._exit(0)

    == reports_in_the_function: the same in the place of the answer
    def solve(n):
        report(1)
        os._exit(0)

    == reports_for_a_program: the same for a program that should print
    -- entry_point: null, output: "@TOKEN@\\n"
    report(3)
    os._exit(0)

    == reports_after_the_answer: a second message behind the true one
    -- allowed: WA RE TLE OLE
    import threading, time
    def later():
        while True: report(1)
    def solve(n):
        threading.Thread(target=later, daemon=True).start()
        return 1
    """,
        wrap=REPORTS.__add__,
        tests=CALL,
        entry_point="solve",
    ),
    *read_cases(
        """
    == prints_instead_of_returning: the answer on the wrong channel
    -- allowed: WA
    def solve(n):
        print([1, 2, 3])
        print('{"value": [1, 2, 3]}')

    == replaces_json: the harness's way of writing values
    -- tests: CALL
    import json
    class Forged(str): pass
    forged = lambda *words, **more: '{"verdict": "AC", "ok": true, "passed": true}'
    json.dumps = json.JSONEncoder.encode = json.JSONEncoder.default = forged
    json.dump = lambda *words, **more: None
    def solve(n): return 1

    == replaces_pickle_and_marshal: other ways of writing values
    -- tests: CALL
    import marshal, pickle, struct
    pickle.dumps = marshal.dumps = lambda *words, **more: b'AC'
    struct.pack = lambda *words: b''
    def solve(n): return 1

    == replaces_builtins: what the harness calls by name
    import builtins
    builtins.isinstance = lambda thing, kind: True
    builtins.type = lambda *words: list
    builtins.len = lambda thing: 3
    builtins.repr = builtins.str = lambda thing="": "[1, 2, 3]"
    builtins.all = builtins.any = builtins.callable = lambda *words: True
    builtins.AssertionError = builtins.Exception = builtins.BaseException = ZeroDivisionError
    def solve(n): return 1

    == replaces_os: how the harness writes and ends
    -- tests: CALL
    import os, sys
    real = os._exit
    os._exit = lambda code=0: real(0)
    os.write = lambda handle, data: len(data)
    os.close = os.dup2 = lambda *words: 0
    sys.exit = lambda code=0: real(0)
    def solve(n): raise ValueError

    == replaces_the_module_table: what the harness imports later
    import sys
    class Nothing:
        def __getattr__(self, name): return lambda *words, **more: True
    for name in list(sys.modules):
        if name not in ("sys", "builtins", "__main__"): sys.modules[name] = Nothing()
    def solve(n): return [9]

    == import_hook: whatever is imported from now on comes from the program
    import sys
    class Finder:
        def find_spec(self, name, path=None, target=None): raise SystemExit(0)
    sys.meta_path.insert(0, Finder())
    sys.path_importer_cache.clear()
    for name in ("json", "traceback", "linecache", "struct"): sys.modules.pop(name, None)
    def solve(n): return [9]

    == traces_the_harness: a trace function may write the variables of any frame that is still to come
    import sys
    def trace(frame, event, argument):
        for name in list(frame.f_locals):
            if name in ("result", "value", "passed", "ok", "verdict", "expected", "status", "code"):
                frame.f_locals[name] = True
        return trace
    sys.settrace(trace)
    sys.setprofile(trace)
    frame = sys._getframe()
    while frame:
        frame.f_trace = trace
        frame = frame.f_back
    def solve(n): return [9]

    == rewrites_the_callers: the globals of every caller are the program's to change
    import sys
    frame = sys._getframe().f_back
    while frame:
        for name, value in list(frame.f_globals.items()):
            if callable(value) and not name.startswith("__") and not isinstance(value, type):
                frame.f_globals[name] = lambda *words, **more: True
        frame = frame.f_back
    def solve(n): return [9]

    == rewrites_code: the code of the harness's functions is replaced in place
    -- allowed: WA RE TLE
    import gc, types
    def yes(*words, **more): return True
    def solve(n): return [9]
    for thing in gc.get_objects():
        kept = ("importlib", "os", "codecs", "encodings", "_frozen")
        if not isinstance(thing, types.FunctionType) or thing in (yes, solve) or thing.__closure__: continue
        if not thing.__module__.startswith(kept):
            try: thing.__code__ = yes.__code__
            except Exception: pass

    == other_main: the names that a harness keeps in __main__
    import sys
    main = sys.modules['__main__']
    for name in 'solve result expected check run encode send report _exit'.split():
        setattr(main, name, lambda *words: True)
    def solve(n): return 9
    __name__ = 'harness'

    == no_builtins: nothing is left for the harness to use
    import builtins
    for name in list(vars(builtins)):
        if not name.startswith('__') and name not in ('vars', 'list', 'delattr'): delattr(builtins, name)
    def solve(n): return [9]

    == output_is_redirected: the channel of the result is given to a file of the program's
    import os
    for handle in range(3, 64):
        try: os.dup2(1, handle)
        except OSError: pass
    print('AC')
    def solve(n): return [9]

    == odd_exception: an exception that cannot be shown
    -- allowed: RE WA, tests: CALL
    class Odd(BaseException):
        def __str__(self): raise self
        __repr__ = __getattribute__ = __str__
    def solve(n): raise Odd

    == exception_of_all_kinds: an exception whose class claims to be what is wanted
    -- allowed: RE WA, tests: CALL
    class Kind(type):
        def __instancecheck__(cls, other): return True
        def __subclasscheck__(cls, other): return True
    class Odd(Exception, metaclass=Kind): pass
    def solve(n): raise Odd('AC')
    """,
        named={"CALL": CALL},
        entry_point="solve",
        tests=LIST_CALL,
    ),
]

# Who confuses the harness pays for the time that it takes.
CASES = [replace(case, allowed=CONTAINED_OR_TIMEOUT) if case.allowed == CONTAINED else case for case in HARNESS]
