"""What a program's output tells a model: about the program, and nothing about the machine."""

from __future__ import annotations

import pytest

from rlvr import judge, run_program

OWN = 'Traceback (most recent call last):\n  File "program.py", line '


@pytest.mark.parametrize(
    ("program", "stderr", "why"),
    [
        ("def f(): 1 / 0\nf()", f'{OWN}2, in <module>\n  File "program.py", line 1, in f\n', "its own frames"),
        ("import json\njson.loads('{')", f"{OWN}2, in <module>\njson.decoder.JSONDecodeError: ", "the library's"),
        ("import numpy as np\nnp.linalg.inv(np.zeros((2, 2)))", f"{OWN}2, in <module>\nnumpy.linalg.", "a package's"),
        (
            "from json import nothing",
            "ImportError: cannot import name 'nothing' from 'json' (json/__init__.py)",
            "text",
        ),
        (
            "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()",
            f"{OWN}2, in <lambda>\nZeroDivisionError",
            "a thread",
        ),
        (
            "import copy\nx = []\nfor _ in range(3000): x = [x]\ncopy.deepcopy(x)",
            "RecursionError",
            "more than is kept of it: the first line is cut",
        ),
        (
            "import re\ntry: re.compile('(')\nexcept Exception as e: raise ExceptionGroup('x', [e])",
            '|   File "program.py", line 3, in <module>\n  | ExceptionGroup',
            "an exception in another one",
        ),
        ("import traceback\ntraceback.print_stack()", '  File "program.py", line 2, in <module>\n', "our own frames"),
        ("def f(): f()\nf()", "[Previous line repeated 99", "of the program: it stays"),
        ("import sys\nsys.stderr.write('File \"/x/y.py\", line 3\\n')", 'File "/x/y.py", line 3\n', "its own text"),
    ],
)
def test_tracebacks_name_the_program_and_no_path_of_the_machine(program: str, stderr: str, why: str) -> None:
    result = run_program(program)
    assert stderr in result.stderr, why
    for path in ("lib/python", "site-packages", "/guest/", "zygote.py"):
        assert path not in result.stderr + result.reason, why


def test_feedback_of_tests_names_no_path_either() -> None:
    tests = [{"input": "", "output": "1"}]
    assert judge("from json import nothing", language="python", tests=tests).reasons[0].endswith("(json/__init__.py)")


@pytest.mark.parametrize(
    ("program", "stdout"),
    [
        (
            "import json, sys, traceback\ntry: json.loads('{')\nexcept: traceback.print_exc(file=sys.stdout)",
            f"{OWN}2, in <module>\njson.decoder.JSONDecodeError: ",
        ),
        ("import json\nprint(json.__file__)", "json/__init__.py\n"),
        ("""print('begin", line 3 of "/x/y.py", line 4')""", 'begin", line 3 of "/x/y.py", line 4\n'),
    ],
)
def test_standard_output_names_no_path_of_the_machine(program: str, stdout: str) -> None:
    result = run_program(program)
    assert result.stdout.startswith(stdout) and "lib/python" not in result.stdout
