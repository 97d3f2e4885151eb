"""Run one Python program in the process that was forked for it, as an interpreter's main program would.

Nothing is decided here. The process holds no expected value, and what it says about itself (a note in the exchange
file, an exit status) can only turn one failure into another.
"""

from __future__ import annotations

import _io
import _thread
import atexit
import builtins
import contextlib
import errno
import gc
import io
import marshal
import os
import sys
from types import ModuleType
from typing import Any, NoReturn

import protocol  # type: ignore[import-not-found]
import values  # type: ignore[import-not-found]

NAME = "program.py"
_BUFFERED = (_io.TextIOWrapper, _io.BufferedWriter, _io.BufferedRandom, _io.BufferedRWPair)
_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_STREAMS |= {f"{folder}/{number}": number for folder in ("/dev/fd", "/proc/self/fd") for number in range(3)}


def run(mode: int, program_format: int) -> NoReturn:
    """Run the program in the descriptor PROGRAM and end the process as an interpreter would.

    It is source, or bytecode that an earlier run made in the mode MAKE_BYTECODE. The judge only carries bytecode and
    never loads it: it is the program's, and is loaded inside the sandbox alone.
    """
    gc.enable()
    arguments: Any = None
    if mode in (protocol.CALL, protocol.RUN_ASSERTS):
        arguments = values.decode(_content(protocol.EXCHANGE).decode())
        os.ftruncate(protocol.EXCHANGE, 0)
    status = 1
    try:
        if mode == protocol.RUN_ASSERTS:  # only zygotes made for it have imported its module
            sys.modules["assert_runner"].run_asserts(arguments["entry_point"])
            status = 0
        else:
            text = _content(protocol.PROGRAM)
            code = _compiled(text) if program_format == protocol.SOURCE else marshal.loads(text)
            if mode == protocol.MAKE_BYTECODE:
                _note(protocol.NOTE_BYTECODE + marshal.dumps(code))
                os._exit(0)
            module = ModuleType("__main__" if mode == protocol.SCRIPT else "program")
            module.__dict__.update(__file__=NAME, __builtins__=builtins)
            sys.modules[module.__name__] = sys.modules["__main__"] = module
            exec(code, module.__dict__)
            if mode == protocol.CALL:
                function = find(module.__dict__, arguments["entry_point"])
                _note(protocol.NOTE_VALUE + values.encode(function(*arguments["arguments"])).encode())
                sys.stdout.flush()
                os._exit(0)
            if mode == protocol.SERVE:
                sys.modules["rpc_server"].serve(module.__dict__)
            status = 0
    except SystemExit as stop:
        status = _exit_status(stop.code)
    except MemoryError:
        _note(protocol.NOTE_MEMORY)
    except BaseException as error:
        _report(error)
    _end(status)


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def find(namespace: dict[str, Any], name: str) -> Any:
    """Return the function `f`, `Solution.f`, or a method `f` of a class `Solution`.

    Raises:
        NameError: the program has no such function.
    """
    holder, _, method = name.rpartition(".")
    if not holder and name not in namespace and "Solution" in namespace:
        holder, method = "Solution", name
    if (holder or name) not in namespace:
        raise NameError(f"the program defines no {holder or name!r}")
    if not holder:
        return namespace[name]
    owner = namespace[holder]
    return getattr(owner() if isinstance(owner, type) else owner, method)


def _compiled(source: bytes) -> Any:
    try:
        return compile(source, NAME, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, OverflowError) as error:
        _note(protocol.NOTE_SYNTAX)
        sys.excepthook(type(error), error.with_traceback(None), None)
    except MemoryError:  # the parser raises it for deep nesting
        _note(protocol.NOTE_SYNTAX)
        sys.stderr.write("MemoryError: the program is too deeply nested or too large to compile\n")
    _end(1)


def add_builtins() -> None:
    """Define what `site` defines, and let `open` accept the paths of the standard streams: no path can be opened."""

    def raise_exit(code: object = None) -> NoReturn:
        raise SystemExit(code)

    for name in ("exit", "quit"):
        setattr(builtins, name, raise_exit)

    def open(file: Any, *arguments: Any, **options: Any) -> Any:
        path = os.fspath(file) if isinstance(file, os.PathLike) else file
        if isinstance(path, str) and path in _STREAMS:
            file = os.dup(_STREAMS[path])
        return _io.open(file, *arguments, **options)

    builtins.open = io.open = open  # pathlib calls io.open


def make_maps_private() -> None:
    """Let `mmap.mmap(-1, size)` map private memory: shared memory is refused, since its size can be hidden."""
    mmap: Any = sys.modules["mmap"]

    class PrivateMap(mmap.mmap):
        def __new__(cls, fileno: int, length: int, *arguments: Any, **options: Any) -> PrivateMap:
            if fileno == -1 and not arguments and not options:
                options["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            return super().__new__(cls, fileno, length, *arguments, **options)

    PrivateMap.__name__ = PrivateMap.__qualname__ = "mmap"
    PrivateMap.__module__ = "mmap"
    mmap.mmap = PrivateMap


def _exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF
    print(code, file=sys.stderr)
    return 1


def _report(error: BaseException) -> None:
    out_of_memory = isinstance(error, OSError) and error.errno == errno.ENOMEM  # of mmap
    _note(protocol.NOTE_MEMORY if out_of_memory else protocol.NOTE_RAISED)
    trace = error.__traceback__  # from the program's first frame on
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    if trace is not None:
        error = error.with_traceback(trace)
    sys.excepthook(type(error), error, error.__traceback__)


def _note(text: bytes) -> None:
    written = 0
    while written < len(text):
        written += os.pwrite(protocol.EXCHANGE, text[written:], written)


def _flush() -> None:
    """Flush all streams, including files that the program opened, as an interpreter does at its end."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()
    # Only the program's own objects are listed: those that existed before it are frozen.
    own = [stream for stream in gc.get_objects() if type(stream) in _BUFFERED]
    if own or sys.stdout is not sys.__stdout__:
        own.sort(key=lambda stream: type(stream) is not _io.TextIOWrapper)  # text first: it writes into the others
        for stream in (*own, sys.__stdout__):
            with contextlib.suppress(OSError, ValueError):  # ValueError: closed, or its buffer was detached
                if stream is not None:
                    stream.flush()


def _end(status: int) -> NoReturn:
    """Wait for threads, run atexit functions and flush; a failing flush is a failure."""
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
