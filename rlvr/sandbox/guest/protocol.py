"""Descriptors, requests and notes that the judge, a zygote and its watchdog exchange.

A zygote's standard streams are memory files that the judge made and keeps open. The judge writes a test's input into
one; the zygote's child reads it and writes its output into others, whose size the kernel limits. So no pipe can fill
up, nothing has to be read while a program runs, and no process that a program can reach holds an expected output.
"""

from __future__ import annotations

import struct

STDIN, STDOUT, STDERR, EXCHANGE, PROGRAM, CONTROL, WATCHDOG, CHANNEL = range(8)

# operation, mode, CPU time (ns), address space (bytes), file size (bytes), processes, format of the program, resident
# memory (bytes), idle time (ns), wall-clock time (ns), milliseconds until the watchdog's first look, process
REQUEST = struct.Struct("<IIQQQIIQQQII")
RUN, INTERRUPT = 1, 2
SCRIPT, CALL, SERVE, RUN_ASSERTS, MAKE_BYTECODE = range(5)  # modes
SOURCE, BYTECODE = range(2)  # formats

# wait status, largest resident set (KiB), CPU time (ns), index in STOPPED
REPLY = struct.Struct("<iIQI")
STOPPED = ("", "memory", "cpu", "idle")  # the limit for which a program was killed

# If a program still runs at the first look, its zygote sends the request to the watchdog, with the process number
# filled in. When the program has ended, the zygote sends a byte, and the watchdog answers with an index in STOPPED.

# First byte of the exchange file after a run. A program: it does not compile; no memory was left; it raised; a value
# follows; bytecode follows.
NOTE_SYNTAX, NOTE_MEMORY, NOTE_RAISED, NOTE_VALUE, NOTE_BYTECODE = b"S", b"M", b"R", b"V", b"C"
# An assert runner: all asserts held; one did not; the asserts themselves are invalid. Or NOTE_RAISED.
NOTE_PASSED, NOTE_FAILED, NOTE_INVALID = b"P", b"F", b"B"

# A program may grow by a quarter of its memory limit and 32 MB between two looks. They are so frequent that it would
# have to fill memory faster than this, in bytes per second.
_MAX_GROWTH = 8e9


def next_look_s(memory_bytes: float, resident_bytes: float) -> float:
    """Return the seconds until the watchdog must look again at a program with this memory limit and resident memory."""
    return max(0.0, 1.25 * memory_bytes + (32 << 20) - resident_bytes) / _MAX_GROWTH
