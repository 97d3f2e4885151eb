"""Python programs that read and write in every way that people know; none may be punished."""

from __future__ import annotations

from tests.support.attacks.case import OK, read_cases
from tests.support.honest.case import gives, honest

_NUMBERS = "5\n" + "\n".join(str(n * 7919 % 10007) for n in range(5)) + "\n"

_TOTAL = str(sum(n * 7919 % 10007 for n in range(5))) + "\n"

SUM = ({"input": _NUMBERS, "output": _TOTAL},)

_MANY = "200000\n" + "\n".join(str(n) for n in range(200_000)) + "\n"

MANY = ({"input": _MANY, "output": str(sum(range(200_000))) + "\n"},)

READING = [
    *read_cases(
        r"""
    == reads_by_input: the plainest way
    -- tests: SUM
    n = int(input())
    print(sum(int(input()) for _ in range(n)))

    == reads_all: sys.stdin.read
    import sys
    print(sum(map(int, sys.stdin.read().split()[1:])))

    == reads_bytes: sys.stdin.buffer.read
    import sys
    print(sum(map(int, sys.stdin.buffer.read().split()[1:])))

    == reads_open_0: open(0)
    print(sum(map(int, open(0).read().split()[1:])))

    == reads_os: os.read with the size of the file
    -- tests: SUM
    import io, os
    read = io.BytesIO(os.read(0, os.fstat(0).st_size or 1 << 24)).readline
    print(sum(int(read()) for _ in range(int(read()))))

    == reads_by_mmap: standard input as memory
    -- tests: SUM
    import mmap
    print(sum(map(int, mmap.mmap(0, 0, access=mmap.ACCESS_READ).read().split()[1:])))

    == reads_both_ways: input() and then the iterator
    import sys
    n = int(input())
    print(sum(int(line) for line in sys.stdin))

    == reads_fileinput: fileinput
    -- tests: SUM
    import fileinput
    lines = [line for line in fileinput.input()]
    print(sum(map(int, lines[1:])))

    == reads_to_the_end: EOFError is how one learns that there is no more
    -- input: "1\n2\n3", output: "6\n"
    total = 0
    while True:
        try: line = input()
        except EOFError: break
        if line: total += int(line)
    print(total)

    == reads_windows_lines: line ends of two characters
    -- input: "1\r\n2\r\n3\r\n", output: "6\n"
    print(sum(int(input()) for _ in range(3)))
    """,
        make=honest,
        named={"SUM": SUM},
        tests=MANY,
    ),
    honest(
        "reads_nothing", "does not look at eight megabytes of input", "print('ok')", gives("ok\n", "7\n" * 4_000_000)
    ),
    *read_cases(
        r"""
    == reads_unicode: letters that are not ASCII, both ways
    -- input: "λßé漢🙂\n", output: "🙂漢éßλ 5\n"
    word = input()
    print(word[::-1], len(word))
    """,
        make=honest,
    ),
    honest(
        "writes_back_much",
        "five megabytes in, five megabytes out",
        """
        import sys
        sys.stdout.write(sys.stdin.read())
        """,
        gives("0123456789abcde\n" * 320_000, "0123456789abcde\n" * 320_000),
        limits={"output_kb": 8192, "memory_mb": 256},
    ),
]

WRITING = [
    *read_cases(
        r"""
    == ends_by_exit: exit() after the answer
    -- output: "ok\n"
    print('ok')
    exit()

    == ends_by_sys_exit: sys.exit(0) in the middle of a function
    -- output: "ok\n"
    import sys
    def main():
        print('ok')
        sys.exit(0)
    main()
    print('never')

    == ends_by_os_exit: os._exit after a flush
    -- output: "ok\n"
    import os
    print('ok', flush=True)
    os._exit(0)

    == guards_main: if __name__ == '__main__'
    -- output: "ok\n"
    def main():
        print('ok')
    if __name__ == '__main__':
        main()

    == writes_at_exit: atexit, and a buffer that is written at the end
    -- output: "ok\n"
    import atexit, sys
    atexit.register(lambda: print('ok'))
    sys.stdout.write('')

    == writes_debugging: output to stderr is ignored
    -- output: "ok\n"
    import sys
    print('here' * 1000, file=sys.stderr)
    print('ok')

    == writes_bytes: sys.stdout.buffer
    -- output: "ok\n"
    import sys
    sys.stdout.buffer.write(b'ok\n')

    == writes_through_a_buffer: the reader and writer that contests pass around
    -- output: "ok\n"
    import sys, io, os
    class Out:
        def __init__(self): self.buffer = io.BytesIO()
        def write(self, text): self.buffer.write(text.encode())
        def flush(self):
            os.write(1, self.buffer.getvalue())
            self.buffer.seek(0)
            self.buffer.truncate()
    sys.stdout = Out()
    print('ok')
    sys.stdout.flush()
    """,
        make=honest,
    ),
    honest(
        "writes_five_megabytes",
        "many lines",
        "print('\\n'.join(str(n) for n in range(600_000)))",
        gives("".join(f"{n}\n" for n in range(600_000))),
        limits={"output_kb": 8192},
    ),
    *read_cases(
        """
    == redirects_output: contextlib.redirect_stdout
    -- tests: OK
    import contextlib, io
    text = io.StringIO()
    with contextlib.redirect_stdout(text): print('ok')
    print(text.getvalue(), end='')
    """,
        make=honest,
        named={"OK": OK},
    ),
]

WRITING += [
    *read_cases(
        r"""
    == writes_to_the_first_stdout: sys.stdout is put aside and never put back
    import io, sys
    sys.stdout = io.StringIO()
    print('ok')
    sys.__stdout__.write(sys.stdout.getvalue())

    == writes_and_then_puts_aside: what was printed before is still in a buffer
    import io, sys
    print('ok')
    sys.stdout = io.StringIO()
    print('debugging')

    == writes_by_another_file: a file object of its own for descriptor 1, never closed
    import os
    out = os.fdopen(1, 'w')
    out.write('ok\n')

    == writes_to_dev_stdout: open('/dev/stdout', 'w')
    with open('/dev/stdout', 'w') as out: out.write('ok\n')

    == asks_with_a_prompt: a prompt is output
    -- input: "x\n", output: "name? hello x\n"
    name = input('name? ')
    print('hello', name)

    == knows_its_streams: fileno, isatty, encoding
    -- output: "0 1 False utf-8 1\n"
    import sys
    print(sys.stdin.fileno(), sys.stdout.fileno(), sys.stdin.isatty(), sys.stdout.encoding.lower(), len(sys.argv))

    == writes_in_a_thread: output of a thread that is not joined
    import threading, time
    def later():
        time.sleep(0.05)
        print('ok')
    threading.Thread(target=later).start()
    """,
        make=honest,
        tests=OK,
    ),
]

ODD = read_cases(
    r"""
    == reads_proc_descriptor: the same in /proc
    with open('/proc/self/fd/0', 'rb') as file: print(file.read().decode().upper())

    == reads_by_pathlib: a path object
    from pathlib import Path
    print(Path('/dev/stdin').read_text().upper())

    == closes_its_streams: nothing is left to flush
    import sys
    print(sys.stdin.readline().upper())
    sys.stdin.close(); sys.stdout.close()
    """,
    make=honest,
    tests=gives("ABC É\n", "abc é\n"),
)

CASES = READING + WRITING + ODD
