"""What travels over the control socket between the judge and a zygote, and which descriptors a zygote has.

A zygote's standard streams are files in memory that the judge made and keeps open: the judge writes a test's input into
one, the zygote's child reads it and writes its output into the others, whose size the kernel limits. So no pipe can
fill up, nothing has to be read while a program runs, and no expected output ever is in a process that the program could
look into.
"""

from __future__ import annotations

import struct

STDIN, STDOUT, STDERR, EXCHANGE, PROGRAM, CONTROL, CHANNEL = range(7)

# operation, mode, CPU time (ns), address space (bytes), file size (bytes), processes, form of the program
REQUEST = struct.Struct("<IIQQQII")
RUN = 1
SCRIPT, CALL, SERVE, EXAMINE, TRANSLATE = range(5)
SOURCE, CODE = range(2)

# wait status, largest resident set (KiB), CPU time (ns)
REPLY = struct.Struct("<iIQ")
