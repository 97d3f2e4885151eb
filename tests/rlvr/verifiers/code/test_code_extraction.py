"""Extraction of programs from completions: every notation, and text that is no program."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.verifiers.code.code_extraction import (
    answer_prefill,
    extract_program,
    is_label_of,
    parse_turn,
    with_prefix,
)
from tests.support.cases import cases

A, B = "print('a')\n", "print('b')\n"
TAG = "print(1)  # </code>\n"
FUTURE = "from __future__ import annotations\ndef f(x): pass\n"

DEEP = "    ```python\n    x = '''\n        ```\n    '''\n    ```\n"
LISTED = "x = '''\n    ```\n'''\n"
QUOTE = 'x = """```\n{a}\n```"""\n'


def fenced(code: str, label: str = "python", fence: str = "```") -> str:
    return f"{fence}{label}\n{code}{fence}\n"


PYTHON = [
    (fenced(A), A, "a block"),
    (fenced(A, "python3.11"), A, "with a longer one"),
    (fenced(A, 'python title="a.py"'), A, "with more words"),
    (fenced(A, "{.python .numbered}"), A, "as Pandoc has it"),
    (fenced(A, "python:main.py"), A, "with a file"),
    (fenced(A, "main.py"), A, "the name of a file"),
    (fenced(A, ""), A, "without a label"),
    (fenced(A, fence="~~~"), A, "tildes"),
    (fenced(A, fence="`````"), A, "a longer fence"),
    (fenced(A).replace("\n", "\r\n"), A, "line ends of Windows"),
    ("   ```python\n   if 1:\n       print(1)\n   ```\n", "if 1:\n    print(1)\n", "indented as in a list"),
    (f"Here it is:\n\n{fenced(A)}\nIt prints a.", A, "words around"),
    ("2. So:\n\n     ```py\n     if 1:\n         print(1)\n     ```\n", "if 1:\n    print(1)\n", "further, in a list"),
    (f"- a\n  * b\n{DEEP}- c\n\n{DEEP.replace('x', 'y')}", LISTED.replace("x", "y"), "with such fences in a docstring"),
    (f"{DEEP}{fenced(A)}1. z\n", A, "before a list it is indented code"),
    (f"* z\n\nSo:\n\n{DEEP}", None, "behind one, too"),
    (fenced(A).replace("\n```", "```"), A, "closed at the end of the last line"),
    (fenced(A).replace("\n```", "```") + "It prints:\n" + fenced("a\n", ""), A, "with a sample of the output behind"),
    ("1) So:\n\n    ```python\n    print('a')```\n", A, "in a list"),
    (fenced(B) + fenced(A).replace("\n```", "``` \nor so"), A, "behind another block"),
    (fenced(QUOTE), QUOTE, "the end of a line closes nothing if a line of its own does"),
    (fenced("x = `1```", "").replace("\n```\n", ""), None, "backticks within the line"),
    (fenced(A) + fenced(B), B, "the last of two"),
    (fenced("    return 1\n"), "    return 1\n", "the rest of a function keeps its indentation"),
    (fenced(A) + "It prints:\n" + fenced("a\n", ""), A, "a sample of the output behind"),
    (fenced(A) + fenced("pip install x\n", "bash"), A, "a command behind"),
    (fenced(A) + "```python\nprint(", A, "an unclosed one behind"),
    ("```python\nprint(\n\nNo, wait.\n" + fenced(A), A, "one that was forgotten to close before"),
    ("```text\n3\n\n" + fenced(A), A, "of another language"),
    ("```markdown\n# Answer\n" + fenced(A) + "```\n", A, "within a block of Markdown"),
    (fenced("s = '```'\n"), "s = '```'\n", "backticks in a string"),
    (fenced('s = """\n    ```\n    """\n'), 's = """\n    ```\n    """\n', "backticks in a docstring"),
    (fenced("'''\n```\nx\n```\n'''\n", fence="````"), "'''\n```\nx\n```\n'''\n", "a fence in a longer one"),
    (fenced("'''\n```\n'''\n", fence="~~~"), "'''\n```\n'''\n", "a fence of the other kind"),
    (fenced("# ```x``` y\n```z``` = 1\n"), "# ```x``` y\n```z``` = 1\n", "backticks around a word are no fence"),
    (f"<code>\n{A}</code>", A, "a tagged block"),
    ("<code>print('a')</code>", A, "in one line"),
    ("The solution is <code>print('a')</code>", A, "in a sentence, if there is nothing else"),
    (fenced(A) + "It uses <code>print</code> once.\n", A, "a word in a sentence is no block"),
    (f"<code>\n{fenced(A)}</code>", A, "a fence in tags is the block"),
    (f"<code>\n```python\n{A}```</code>", A, "and before the other"),
    (f"<code>\n```python\n{A}</code>", A, "a fence that the tag closes"),
    (f"<code>\n```python\n{A}</code>\nIt prints:\n```\na\n```\n", A, "even if another follows"),
    (f"<code>\n{fenced(TAG)}</code>", TAG, "a tag in a program in a fence"),
    ('<code>\nprint("</code>")\n</code>', 'print("</code>")\n', "a tag in quotation marks"),
    (f"In <code> tags: <code>\n{A}</code>", A, "opened twice"),
    (fenced(B) + f"<code>\n{A}</code>", A, "tags after a sketch"),
    (f"<answer>\n{fenced(A)}</answer>", A, "other tags around"),
    ("", None, "nothing"),
    ("print('a')", None, "no block"),
    ("```python\nprint(1)\n", None, "never closed"),
    ("<code>\nprint(1)\n", None, "a tag never closed"),
    ("```python\n```\n", None, "empty"),
    ("x ```python\nprint(1)\n```\n", None, "a fence begins a line"),
    (fenced("int main() {}\n", "cpp"), None, "another language"),
    (fenced("x\n", "py.txt"), None, "the name of another file"),
    (fenced("x\n", "pythonic"), None, "a label that only begins so"),
    ("```python\nprint(1)\n~~~\n", None, "closed by the other kind"),
    ("````python\nprint(1)\n```\n", None, "closed by a shorter one"),
]

THOUGHTS = [
    (f"<think>\n{fenced(B)}</think>\n{fenced(A)}", A, "a draft among the thoughts"),
    (f"{fenced(B)}</think>\n{fenced(A)}", A, "opened by the prompt"),
    (f"<think>\n{fenced(A)}", None, "thoughts that never end"),
    (f"{fenced(A)}<think>\nIs it right?", None, "never closed behind"),
    (f"{fenced(A)}<think>Is it?</think>", A, "closed behind"),
    (f"<think>a</think>\n{fenced(B)}<think>no: {fenced(B)}</think>\n{fenced(A)}", A, "thought twice"),
    (f"<think>I put my thoughts in <think> tags.</think>\n{fenced(A)}", A, "thoughts that name a tag"),
    (f"<think>Then </think> follows. {fenced(B)}</think>\n{fenced(A)}", A, "and the other one"),
    (f"<think>```python\nprint(\n</think>\n{fenced(A)}", A, "an unclosed block among the thoughts"),
    (f"<thinking>{fenced(B)}</thinking>{fenced(A)}", A, "another word"),
    (fenced('print("<think>")\n'), 'print("<think>")\n', "a tag in quotation marks"),
    (f'<think>I close with "</think>".\n{fenced(B)}', None, "a tag in quotation marks closes nothing"),
    (f"<think>a</think>```python\n{A}```", A, "a fence right behind"),
]

TURNS = [
    (f"{fenced(A)}\nQuestion: next\n{fenced(B)}", A, "an invented problem"),
    (f"{fenced(A)}<|im_end|>\n<|im_start|>user\n{fenced(B)}", A, "an end-of-turn token"),
    (f"```python\nprint(<|endoftext|>1)\n```\n{fenced(A)}", None, "in the block"),
    (f"Problem:\nPrint a.\n\nExample 1:\na\n\n{fenced(A)}", A, "the problem again, before the program"),
    (f"{fenced('3', 'text')}Task: print a\n{fenced(A)}", A, "and a sample"),
    (f"{fenced(B)}\nExample:\n 1\n\nBetter:\n{fenced(A)}", A, "an example is no other problem"),
    (fenced("# Problem 2:\nprint(1)\n# Example:\n"), "# Problem 2:\nprint(1)\n# Example:\n", "a comment is no header"),
    (fenced("a[inst] = 1\nuser:int = 1\n"), "a[inst] = 1\nuser:int = 1\n", "code is no token"),
    (f'{fenced(A)}Say "<think>".\nQuestion: next\n{fenced(B)}', A, "a mention before the invented problem"),
]


@pytest.mark.parametrize(("completion", "program", "why"), PYTHON + THOUGHTS + TURNS)
def test_the_program_is_the_last_complete_block_of_the_own_turn(completion: str, program: str | None, why: str) -> None:
    extraction = extract_program(completion, language="python")
    assert extraction.program == program, (why, extraction.why)
    assert extraction.why and "\n" not in extraction.why
    chat = [{"role": "user", "content": fenced(B)}, {"role": "assistant", "content": completion}]
    assert extract_program(chat, language="python") == extraction


F, G = "def f(x):\n    return g(x)\n", "class g: pass\n"


@pytest.mark.parametrize(
    ("completion", "names", "program", "why"),
    [
        (fenced(F) + fenced("print(f(1))\n"), {"f"}, F, "a use behind"),
        (fenced(F, "") + fenced("def test_f():\n    assert f(1) == g\n"), {"f", "g"}, F, "a test with a label"),
        (fenced(G) + fenced(F) + fenced("f(g)\n"), {"f", "g"}, F, "the last of two that define one"),
        (fenced(F) + fenced("f = lambda x: 1\n"), {"f"}, "f = lambda x: 1\n", "another definition"),
        (fenced(F) + fenced("class T:\n    def f(self): pass\n"), {"f"}, F, "a method is no function"),
        (fenced(F + G) + fenced("g = 2\nf(g)\n"), {"f", "g"}, F + G, "a use that sets one of them"),
        (fenced(F) + fenced("    return 1\n"), {"h"}, "    return 1\n", "no block defines one"),
        (fenced(F, "cpp") + fenced(A), {"f"}, A, "a block in another language"),
        (fenced(F) + "\nQuestion: next\n" + fenced(F + F), {"f"}, F, "an invented problem"),
    ],
)
def test_the_program_defines_what_the_tests_name(completion: str, names: set[str], program: str, why: str) -> None:
    assert extract_program(completion, language="python", names=names).program == program, why


CPP = "int main() {}\n"


@pytest.mark.parametrize(("label", "counts"), cases(__file__, "a block in another"))
def test_a_block_in_another_language_is_not_the_program(label: str, counts: bool) -> None:
    assert (extract_program(fenced(CPP, label), language="cpp").program == CPP) == counts
    assert is_label_of(label.lower(), "cpp") == counts


def test_the_format_of_the_codefu_prompts_is_read() -> None:
    completion = f"<think>\nFirst ```cpp\nint x;\n```\nso I put it in <code> tags.\n</think>\n<code>\n{CPP}</code>"
    assert extract_program(completion, language="cpp").program == CPP
    assert extract_program(completion.replace(CPP, fenced(CPP, "cpp")), language="cpp").program == CPP


@pytest.mark.parametrize(
    ("completion", "program", "why"),
    [
        ("print('a')", A, "code and nothing else"),
        ("    return 1\n\n", "    return 1\n", "the rest of a function"),
        ("print('a')\n```\nIt prints a.", A, "up to a fence that the prompt has opened"),
        ("<think>b</think>\nprint('a')", A, "behind the thoughts"),
        ("print('a')\n\nQuestion: next", A, "up to an invented problem"),
        (f"So:\n{fenced(A)}", A, "a block is still preferred"),
        (fenced(CPP, "cpp"), None, "a block in another language is no code in this one"),
        ("<think>print('a')", None, "thoughts that never end"),
        (" \n", None, "nothing"),
    ],
)
def test_a_bare_turn_is_a_program_if_the_option_is_set(completion: str, program: str | None, why: str) -> None:
    assert extract_program(completion, language="python", bare=True).program == program, why


@pytest.mark.parametrize(
    ("prompt", "completion", "program", "why"),
    [
        ("Q\n```python\n", "print('a')\n```\nDone.", A, "a fence"),
        ("Q\n```python", "\nprint('a')\n```\nDone.", A, "without its line end"),
        ("Q\n<code>\n", "print('a')\n</code>", A, "a tag"),
        ("Q<think>\n", fenced(A), A, "within a line it is a mention"),
        ("Q\n<think>\n", fenced(A), None, "thoughts"),
        ("Q\n<think>\n", f"{fenced(B)}</think>{fenced(A)}", A, "that end"),
        ("Q\n<think>\n", f"<think>{fenced(B)}</think>{fenced(A)}", A, "opened again"),
        ("Q\n```\n3\n```\n", fenced(A), A, "the end of a sample opens nothing"),
        ([{"role": "user", "content": "```python"}], fenced(A), A, "a user opens nothing"),
        ([{"role": "assistant", "content": "Sure:\n```python\n"}], "print('a')\n```", A, "an answer that was begun"),
        (None, fenced(A), A, "no prompt"),
    ],
)
def test_the_prefill_of_the_prompt_is_part_of_the_answer(
    prompt: Any, completion: str, program: str | None, why: str
) -> None:
    assert extract_program(completion, language="python", prefill=answer_prefill(prompt)).program == program, why


def test_a_parsed_turn_lists_blocks_and_thoughts() -> None:
    turn = parse_turn(f"<think>x</think>\n{fenced(A)}{fenced('y' + chr(10), 'text')}```python\nz", language="python")
    assert [block.label for block in turn.blocks] == ["python", "text"]
    assert turn.unclosed and not turn.endless_thoughts
    assert not parse_turn(f"{fenced(A)}\nQuestion:\n```python\nz", language="python").unclosed, "not its own turn"
    assert parse_turn("<think>x", language="python").endless_thoughts


PREFIX = 'from typing import List\n\n\ndef helper():\n    pass\n\n\ndef f(x: List) -> int:\n    """Says f."""\n'


@pytest.mark.parametrize(
    ("program", "expected", "why"),
    [
        ("    return 1\n", PREFIX + "    return 1\n", "the rest of the function"),
        (
            "def f(x):\n    return 1\n",
            PREFIX[: PREFIX.index("\n\n\ndef f")] + "\n\ndef f(x):\n    return 1\n",
            "the function itself keeps imports and helpers",
        ),
        ("f = lambda x: 1\n", PREFIX[: PREFIX.index("\n\n\ndef f")] + "\n\nf = lambda x: 1\n", "in another form"),
        ("    def f(x):\n", PREFIX + "    def f(x):\n", "a function within is not it"),
        ("    if f == 1: f(2)\n", PREFIX + "    if f == 1: f(2)\n", "nor is a call"),
        (FUTURE, FUTURE, "such an import must stand first"),
    ],
)
def test_the_prefix_of_the_problem_precedes_the_program(program: str, expected: str, why: str) -> None:
    assert with_prefix(program, PREFIX, "f", "python") == expected, why


def test_without_a_prefix_the_program_is_unchanged() -> None:
    assert with_prefix(A, None, "f", "python") == with_prefix(A, "", "f", "python") == A
    assert with_prefix(A, "x = 1\n", None, "python") == "x = 1\n" + A


def test_a_cpp_function_is_recognised() -> None:
    prefix = "#include <vector>\nusing namespace std;\nint helper();\nint f(vector<int> x){\n"
    whole = "int helper() { return 1; }\nint f(\n  vector<int> x)\n{ return helper(); }\n"
    assert with_prefix(whole, prefix, "f", "cpp") == "#include <vector>\nusing namespace std;\n\n" + whole
    assert with_prefix("  return f(1); }\n", prefix, "f", "cpp") == prefix + "  return f(1); }\n"


# ----------------------------------------------------------------------------------------------------------------------

PIECES = [
    "```",
    "```python",
    "~~~",
    "````",
    "<code>",
    "</code>",
    "<think>",
    "</think>",
    "x",
    " ",
    "\n",
    "\n",
    "\r",
    "Question:",
    '"',
    "`",
    "<|im_end|>",
    "    ",
    "- ",
]


@given(st.lists(st.sampled_from(PIECES), max_size=30), st.booleans())
def test_no_completion_raises_and_programs_are_parts_of_it(pieces: list[str], bare: bool) -> None:
    text = "".join(pieces)
    program = extract_program(text, language="python", bare=bare).program
    if program is not None:
        lines = {line.strip() for line in text.replace("\r", "\n").split("\n")}
        assert program.strip() and program.endswith("\n")
        assert all(any(line.strip() in there for there in lines) for line in program.split("\n"))


@given(st.text(alphabet="ab `~<>/\n=\"'", max_size=80), st.sampled_from(["```", "~~~", "``````"]))
def test_a_block_without_inner_fences_is_returned_unchanged(code: str, fence: str) -> None:
    if fence[:3] not in code and "think>" not in code and code.strip():
        code = code.rstrip("\n") + "\n"
        assert extract_program(f"So:\n{fenced(code, fence=fence)}Done.", language="python").program == code


def test_lone_surrogates_stay_in_the_program() -> None:
    assert extract_program(fenced("s = '\ud800\x00'\n"), language="python").program == "s = '\ud800\x00'\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "```\n",
        "```python\n",
        "`" * 50 + "\n",
        "``` `\n",
        "<code>",
        "</code>",
        "<code>```\n",
        "<think>",
        "</think>",
        '"</think>"',
        "\n",
        " ",
        "   ```",
        "- x\n     ```\n",
        "x```\n",
        "```<a> ",
        "Question:\n",
        "\nQuestion",
        "int f(",
    ],
    ids=repr,
)
@pytest.mark.parametrize("around", [("", ""), ("```python\nx\n```\n", "\n```\n"), ("<code>", "</code>")], ids=repr)
def test_repeated_markup_is_parsed_in_linear_time(piece: str, around: tuple[str, str]) -> None:
    bomb = around[0] + piece * (100_000 // len(piece)) + around[1]
    started = time.process_time()
    extraction = extract_program(bomb, language="python", bare=True)
    with_prefix(extraction.program or bomb, "def f():\n", "f", "python")
    with_prefix(extraction.program or bomb, "int f() {\n", "f", "cpp")
    assert time.process_time() - started < 1.5


@pytest.mark.slow
def test_a_program_of_ten_megabytes_is_read() -> None:
    code = "x = 1  # ```\n" * 800_000
    started = time.process_time()
    assert extract_program(f"<think>{fenced(A)}</think>\n{fenced(code)}", language="python").program == code
    assert time.process_time() - started < 5
