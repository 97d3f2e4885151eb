"""Runs one Python program in the process that was forked for it: what an interpreter's main program does, and no more.

Nothing here decides anything: the process holds no expected value, and what it says about itself (a note in the
exchange, an exit status) can only turn one failure into another.
"""

from __future__ import annotations

import _io
import _thread
import atexit
import builtins
import contextlib
import gc
import marshal
import os
import sys
from types import ModuleType
from typing import Any, NoReturn

import values  # type: ignore[import-not-found]
from protocol import CALL, EXAMINE, EXCHANGE, PROGRAM, SCRIPT, SERVE, SOURCE, TRANSLATE  # type: ignore[import-not-found]

NAME = "program.py"
# Notes in the exchange's first byte: it does not compile; no memory was left; it raised; a value follows; code follows.
NOTE_SYNTAX, NOTE_MEMORY, NOTE_RAISED, NOTE_VALUE, NOTE_CODE = b"S", b"M", b"R", b"V", b"C"

_BUFFERED = (_io.TextIOWrapper, _io.BufferedWriter, _io.BufferedRandom, _io.BufferedRWPair)
_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


def run(mode: int, form: int) -> NoReturn:
    """Runs the program in the descriptor PROGRAM and ends the process as an interpreter would end.

    Args:
        form: whether it is source, or what this very function made of the source in the mode TRANSLATE, for a program
            that is to run many times. The judge only carries that: it goes back to where a program can do no harm.
    """
    gc.enable()
    order: Any = None
    if mode in (CALL, EXAMINE):
        order = values.decode(os.pread(EXCHANGE, os.fstat(EXCHANGE).st_size, 0).decode())
        os.ftruncate(EXCHANGE, 0)
    status = 1
    try:
        if mode == EXAMINE:
            sys.modules["assert_runner"].examine(order["entry_point"])
            status = 0
        else:
            text = os.pread(PROGRAM, os.fstat(PROGRAM).st_size, 0)
            code = _compiled(text) if form == SOURCE else marshal.loads(text)
            if mode == TRANSLATE:
                _note(NOTE_CODE + marshal.dumps(code))
                os._exit(0)
            module = ModuleType("__main__" if mode == SCRIPT else "program")
            module.__dict__["__file__"] = NAME
            module.__dict__["__builtins__"] = builtins
            sys.modules[module.__name__] = module
            if mode != SCRIPT:
                sys.modules["__main__"] = module
            exec(code, module.__dict__)
            if mode == CALL:
                function = find(module.__dict__, order["entry_point"])
                _note(NOTE_VALUE + values.encode(function(*order["arguments"])).encode())
                sys.stdout.flush()
                os._exit(0)
            if mode == SERVE:  # only interpreters that are to serve, or to examine, have imported what it takes
                sys.modules["rpc_server"].serve(module.__dict__)
            status = 0
    except SystemExit as stop:
        status = _exit_status(stop.code)
    except MemoryError:
        _note(NOTE_MEMORY)
    except BaseException as error:
        _report(error)
    _end(status)


def find(namespace: dict[str, Any], name: str) -> Any:
    """The function of that name: `f`, `Solution.f`, or a method `f` of a class `Solution`.

    Raises:
        NameError: there is none.
    """
    holder, _, method = name.rpartition(".")
    if not holder and name not in namespace and "Solution" in namespace:
        holder, method = "Solution", name
    if not holder:
        if name not in namespace:
            raise NameError(f"the program defines no {name!r}")
        return namespace[name]
    if holder not in namespace:
        raise NameError(f"the program defines no {holder!r}")
    owner = namespace[holder]
    return getattr(owner() if isinstance(owner, type) else owner, method)


def _compiled(source: bytes) -> Any:
    try:
        return compile(source, NAME, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, OverflowError) as error:
        _note(NOTE_SYNTAX)
        sys.excepthook(type(error), error.with_traceback(None), None)
    except MemoryError:  # the parser's name for a text that is nested too deeply
        _note(NOTE_SYNTAX)
        sys.stderr.write("MemoryError: the program is too deeply nested or too large to compile\n")
    _end(1)


def furnish() -> None:
    """What `site` gives an interpreter, and the standard streams by their paths, since no path can be opened here."""

    def leave(code: object = None) -> NoReturn:
        raise SystemExit(code)

    for name in ("exit", "quit"):
        setattr(builtins, name, leave)

    def open(file: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(file, str) and file in _STREAMS:
            file = os.dup(_STREAMS[file])
        return _io.open(file, *arguments, **options)

    builtins.open = open


def _exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF
    print(code, file=sys.stderr)
    return 1


def _report(error: BaseException) -> None:
    _note(NOTE_RAISED)
    here = error.__traceback__
    while here is not None and here.tb_frame.f_code.co_filename != NAME:
        here = here.tb_next
    if here is not None:
        error = error.with_traceback(here)
    sys.excepthook(type(error), error, error.__traceback__)


def _note(text: bytes) -> None:
    at = 0
    while at < len(text):
        at += os.pwrite(EXCHANGE, text[at:], at)


def _flush() -> None:
    """Writes what still waits in a buffer, in the program's own files too, as an interpreter's end would."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()
    # What lies in the generations now is the program's own: all that was there before it has been frozen.
    own = [thing for thing in gc.get_objects() if type(thing) in _BUFFERED]
    if own or sys.stdout is not sys.__stdout__:
        own.sort(key=lambda thing: type(thing) is not _io.TextIOWrapper)  # text first: it fills the others
        for stream in (*own, sys.__stdout__):
            if stream is not None and not stream.closed:
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()


def _end(status: int) -> NoReturn:
    """Waits for threads, runs what was registered for the end, and flushes; a failing flush is a failure."""
    try:
        if _thread._count():
            sys.modules["threading"]._shutdown()
        if atexit._ncallbacks():
            atexit._run_exitfuncs()
        _flush()
    except BaseException as error:
        try:
            sys.stderr.write(f"{type(error).__name__} while ending: {error}\n")
            sys.stderr.flush()
        finally:
            os._exit(status or 120)
    os._exit(status)
