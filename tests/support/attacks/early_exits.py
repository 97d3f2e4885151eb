"""Python functions that end, somehow, where a test wants a value."""

from __future__ import annotations

from rlvr.reward_audit import attacks
from tests.support.attacks.case import Case, read_cases

CALL = ({"call": [1], "expected": "@TOKEN@"},)

# Ends that look like success, wherever they come from.
EARLY_EXITS = {
    **attacks.EARLY_EXITS,
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "raw_exit": "import ctypes; ctypes.CDLL(None)._exit(0)",
    "abort": "import os; os.abort()",
    "interrupt": "raise KeyboardInterrupt",
    "generator_exit": "raise GeneratorExit",
    "stop": "raise StopIteration",
    "base_exception": "raise BaseException('AC')",
    "not_implemented": "return NotImplemented",
    "nothing": "return None",
    "endless_values": "import itertools; return itertools.repeat(1)",
}

IN_THE_FUNCTION = [
    Case(
        "call_ends_by_" + name,
        "an end that is no answer",
        f"def solve(*words):\n    {line}\n",
        tests=CALL,
        entry_point="solve",
        allowed="WA RE TLE" if name == "endless_values" else "WA RE",
    )
    for name, line in EARLY_EXITS.items()
]

IN_THE_MODULE = [
    Case(
        "module_ends_by_" + name,
        "the tests were never reached",
        f"{line}\ndef solve(*words): return 1\n",
        tests=CALL,
        entry_point="solve",
        allowed="WA RE CE",
    )
    for name, line in EARLY_EXITS.items()
    if name in ("sys_exit", "exit_site", "os_exit", "killed", "raw_exit", "interrupt")
]

LATER = read_cases(
    """
    == ends_in_a_thread: the end comes while the harness is at work
    import os, threading, time
    def end():
        time.sleep(0.01)
        os._exit(0)
    def solve(n):
        threading.Thread(target=end).start()
        time.sleep(1)
        return 1

    == ends_in_a_finaliser: the end comes when the result is thrown away
    import os
    class Last:
        def __del__(self): os._exit(0)
    def solve(n):
        Last()
        return 1

    == ends_at_exit: the last word is the program's
    import atexit, os
    atexit.register(os._exit, 0)
    def solve(n): raise ValueError

    == ends_in_an_exception_hook: what happens to an exception is the program's choice
    import os, sys
    sys.excepthook = lambda *words: os._exit(0)
    sys.unraisablehook = sys.excepthook
    def solve(n): raise ValueError

    == ends_in_a_timer: a signal handler of the program's, in the middle of the harness
    -- allowed: WA RE TLE
    import os, signal
    signal.signal(signal.SIGALRM, lambda *words: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    def solve(n):
        while True: pass
    """,
    entry_point="solve",
    tests=CALL,
)

CASES = IN_THE_FUNCTION + IN_THE_MODULE + LATER
