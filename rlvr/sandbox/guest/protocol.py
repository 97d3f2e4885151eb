"""Descriptors, requests and notes that the judge and a zygote exchange.

A zygote's standard streams are memory files that the judge made and keeps open. The judge writes a test's input into
one; the zygote's child reads it and writes its output into others, whose size the kernel limits. So no pipe can fill
up, nothing has to be read while a program runs, and no process that a program can reach holds an expected output.
"""

from __future__ import annotations

import struct

STDIN, STDOUT, STDERR, EXCHANGE, PROGRAM, CONTROL, CHANNEL = range(7)

# operation, mode, CPU time (ns), address space (bytes), file size (bytes), processes, format of the program
REQUEST = struct.Struct("<IIQQQII")
RUN = 1
SCRIPT, CALL, SERVE, RUN_ASSERTS, MAKE_BYTECODE = range(5)  # modes
SOURCE, BYTECODE = range(2)  # formats

# wait status, largest resident set (KiB), CPU time (ns)
REPLY = struct.Struct("<iIQ")

# First byte of the exchange file after a run. A program: it does not compile; no memory was left; it raised; a value
# follows; bytecode follows.
NOTE_SYNTAX, NOTE_MEMORY, NOTE_RAISED, NOTE_VALUE, NOTE_BYTECODE = b"S", b"M", b"R", b"V", b"C"
# An assert runner: all asserts held; one did not; the asserts themselves are invalid. Or NOTE_RAISED.
NOTE_PASSED, NOTE_FAILED, NOTE_INVALID = b"P", b"F", b"B"
