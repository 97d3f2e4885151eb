"""Extract the program from a completion: the last complete code block of the model's own turn.

    extract_program("Here it is:\n```python\nprint(1)\n```\n", language="python").program
    'print(1)\n'

Rules, in order:
1. Thoughts hold no program. They begin at <think>, or at the start if the prompt has opened them, and end at </think>.
   Tags don't nest, since thoughts mention tags ("I put them in <think> tags"), and a quoted tag is a mention. Thoughts
   that never end leave no program.
2. A block is fenced (three or more ``` or ~~~ at the start of a line, indented by up to three spaces, in a list by any
   number) or between <code> and </code>. A fence inside <code> is the block. A line with at least as many of the same
   characters and nothing else closes a fence; ``` within a line or indented further does not. An unclosed block is no
   block. A fence that names a language also closes an earlier, forgotten one. If a block stays open, a fence at the end
   of a line of code closes, too.
3. A block in another language is no program. If the tests name functions, the program is among the blocks that define
   most of them: a test of the functions may follow. Blocks with the language's name come before blocks without a name,
   since a sample of the output may follow the program.
4. The turn ends at an end-of-turn token and, after a block, at the next "Question:" that the model invents
   (rlvr/verifiers/completion_text.py). Before the first block such a line is an introduction; inside a program it is
   code.

No input raises. Every step is linear: a completion of 10 MB takes no longer than ten of 1 MB.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.sandbox.languages import LANGUAGES
from rlvr.verifiers.completion_text import completion_text, own_turn

MAX_MARKS = 10_000  # fences and tags per completion; one with more has no program

_NO_LANGUAGE = frozenset(("", "code", "program", "solution", "answer"))
_LABELS = frozenset(word for row in LANGUAGES.values() for word in (row.name, *row.fences))
_VERSION = re.compile(r"-?\d{1,2}(?:\.\d{1,2})?[a-z]?$")  # python3.11, c++17, cpp2a

_THINK = re.compile(r"([\"'`])</?think(?:ing)?>\1|<(/?)think(?:ing)?>", re.IGNORECASE)
# Tokens that end a turn and never occur in a program; `own_turn` knows further ones ("[INST]").
_END = re.compile(
    r"<\|(?:im_end|im_start|endoftext|end_of_text|eot_id|eom_id|start_header_id)\|>"
    r"|<(?:end_of_turn|start_of_turn)>|<｜(?:end▁of▁sentence|User|Assistant)｜>"
)
# A fence, or a <code> tag; quoted tags are mentions. The text after a fence of backticks contains no backtick.
_MARK = re.compile(
    r"""
      (?: ^(?P<indent>[ ]{0,3}+(?P<deep>[ ]*+))(?:<(?!code>)[A-Za-z]{1,20}>[ \t]{0,3})? | (?<=<code>)[ \t]{0,3} )
      (?P<fence>`{3,}+(?=[^`\n]*+$)|~{3,}+)
      (?P<info>[^\n<]*+)
      (?P<closes>(?=(?:[ \t]|</?[A-Za-z]{1,20}>)*+$))?      # only tags, as in "```</code>"
    | (?P<quote>["'`])</?code>(?P=quote)
    | <(?P<slash>/?)code>
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
# A list with all its indented lines. Fences in it may be indented by more than three spaces.
_LIST = re.compile(r"^ {0,3}(?:[-*+]|\d{1,3}[.)])[ \t].*+(?:\n(?:[ \t].*+)?+)*+", re.MULTILINE)
_LATE_FENCE = re.compile(r"^([^`\n]*[^`\s])(`{3,}[ \t]*)$", re.MULTILINE)  # at the end of a line of code
_MAX_FENCE = 40  # longer fences count as this long
_WORD = re.compile(r"[\w+#.-]{1,40}")
# `own_turn` would take these for a header or for thoughts. After a program they are part of the model's own turn.
_HARMLESS = re.compile(r"example|<(?=/?think)", re.IGNORECASE)
# The end of a prompt that begins the answer.
_BEGUN = re.compile(r"(?:^|\n) {0,3}((?:<think>|<code>|(?:`{3,}|~{3,})[ \t]*[\w+#-]{1,40})[ \t]*\n?)\Z")


@dataclass(frozen=True)
class Extraction:
    """The program of a completion, or None; `why` says which block it is, or why there is none."""

    program: str | None
    why: str


@dataclass(frozen=True)
class Block:
    """A complete block."""

    text: str  # with a final line end
    label: str  # first word after the fence, in lower case, or empty
    start: int  # position in the turn, with the fences or tags
    end: int
    tagged: bool = False  # whether it is between <code> tags
    inline: bool = False  # whether it shares a line with other text, like <code>this</code>


@dataclass(frozen=True)
class ParsedTurn:
    """The code blocks of the model's own turn."""

    text: str  # without thoughts
    blocks: list[Block]  # in order, without empty ones
    unclosed: bool  # whether a block was opened and never closed
    endless_thoughts: bool  # then there is no turn


def extract_program(
    completion: Any,
    *,
    language: str,
    names: Collection[str] = (),
    bare: bool = False,
    prefill: str = "",
) -> Extraction:
    """Return the program that a completion gives as its answer.

    Args:
        completion: a string, or a list of chat messages.
        language: of the program. Blocks that name another language don't count.
        names: of the functions under test.
        bare: whether a turn without any block is a program as it stands, up to its first fence. For models that are
            asked for code alone, or that continue the start of a function.
        prefill: how the prompt begins the answer, such as "<think>" or "```python"; see `answer_prefill`.
    """
    turn = parse_turn(completion, language=language, prefill=prefill)
    if turn.endless_thoughts:
        return Extraction(None, "the thoughts never end")
    own = [block for block in turn.blocks if is_label_of(block.label, language)]
    defined = [sum(_definition(block.text, name, language) is not None for name in names) for block in own]
    own = [block for block, number in zip(own, defined, strict=True) if number == max(defined)]
    answers = [block for block in own if (block.tagged and not block.inline) or block.label not in _NO_LANGUAGE]
    chosen = answers or [block for block in own if not block.inline] or own
    if not chosen:
        return _without_block(turn, language, bare)
    which = "the only block" if len(chosen) == 1 else f"the last of {len(chosen)} blocks"
    program = chosen[-1].text
    return Extraction(program, f"{which} that may be {language}, {len(program):,} characters")


def _without_block(turn: ParsedTurn, language: str, bare: bool) -> Extraction:
    if bare and not turn.blocks:
        mark = next((mark for mark in _marks(turn.text) if mark["fence"]), None)
        text = own_turn(turn.text[: mark.start()] if mark else turn.text).strip("\n").rstrip()
        if text:
            return Extraction(f"{text}\n", f"the turn as it stands, {len(text):,} characters")
    if turn.unclosed:
        return Extraction(None, "its block is never closed")
    if turn.blocks:
        labels = ", ".join(dict.fromkeys(block.label for block in turn.blocks))
        return Extraction(None, f"no block is in {language}, but in {labels:.60}")
    return Extraction(None, "there is no code block")


def is_label_of(label: str, language: str) -> bool:
    """Whether a block with this label may hold a program in this language."""
    words = (language, *LANGUAGES[language].fences) if language in LANGUAGES else (language,)
    return label in _NO_LANGUAGE or _is_one_of(label, words)


def _is_one_of(label: str, words: Sequence[str] | frozenset[str]) -> bool:
    return label in words or _VERSION.sub("", label, count=1) in words or label.rpartition(".")[2] in words  # main.py


def answer_prefill(prompt: Any, opened: bool | None = None) -> str:
    """Return how a prompt begins the answer: "<think>", "<code>", a fence that names a language, or "".

    Args:
        opened: whether the prompt has opened <think>. None: read the end of the prompt. Text that a chat template adds
            is not visible there.
    """
    if opened is not None:
        return "<think>" if opened else ""
    if isinstance(prompt, list):
        last = prompt[-1] if prompt and isinstance(prompt[-1], dict) else {}
        prompt = completion_text(prompt) if last.get("role") == "assistant" else ""
    match = _BEGUN.search(prompt[-200:]) if isinstance(prompt, str) else None
    return match[1] if match else ""


def parse_turn(completion: Any, *, language: str, prefill: str = "") -> ParsedTurn:
    """Parse the model's own turn and its code blocks. Arguments as for `extract_program`."""
    text = prefill + completion_text(completion)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    outside = _without_thoughts(text)
    if outside is None:
        return ParsedTurn("", [], False, True)
    token = _END.search(outside)
    text = outside[: token.start()] if token else outside
    turn = _parse(text, language)
    if turn.unclosed and (mended := _LATE_FENCE.sub(r"\1\n\2", text)) != text:
        closed = _parse(mended, language)
        return turn if closed.unclosed else closed
    return turn


def _parse(text: str, language: str) -> ParsedTurn:
    blocks: list[Block] = []
    end: int | None = None  # of the last block, once there is a program: another problem may follow it
    for block in _blocks(text):
        start = block if isinstance(block, int) else block.start
        if end is not None and (cut := _next_problem(text[end:start])) is not None:
            return ParsedTurn(text[: end + cut], blocks, False, False)
        if isinstance(block, int):
            return ParsedTurn(text, blocks, True, False)
        empty = not block.text.strip()
        if not empty:
            blocks.append(block)
        if end is not None or not (empty or block.inline or not is_label_of(block.label, language)):
            end = block.end
    if end is not None and (cut := _next_problem(text[end:])) is not None:
        text = text[: end + cut]
    return ParsedTurn(text, blocks, False, False)


def _without_thoughts(text: str) -> str | None:
    """Return the text outside of the thoughts; None if they never end."""
    kept: list[str] = []
    start, thinking = 0, False
    for tag in _THINK.finditer(text):
        if tag[1]:
            continue
        if tag[2]:
            if not thinking:
                kept = []  # these thoughts began before the first word
            thinking, start = False, tag.end()
        elif not thinking:
            kept.append(text[start : tag.start()])
            thinking = True
    return None if thinking else "\n".join([*kept, text[start:]])


def _next_problem(text: str) -> int | None:
    """Return where, in the text after a program, the model invents another problem; None if it does not."""
    text = _HARMLESS.sub(lambda match: "." * len(match[0]), text)
    end = len(own_turn(text))
    return end if end < len(text) else None


def _blocks(text: str) -> Iterator[Block | int]:
    """Yield the complete blocks of a text, then the position of an unclosed one, if any."""
    marks = list(itertools.islice(_marks(text), MAX_MARKS + 1))
    if len(marks) > MAX_MARKS:
        yield 0
        return
    fence_ends = _closing_fences(marks)
    tag_ends = _closing_tags(marks)
    tag: re.Match[str] | None = None  # the <code> that is open
    filled = False  # whether a fence in it has been a block
    unclosed: int | None = None
    number = -1
    while (number := number + 1) < len(marks):
        mark = marks[number]
        if mark["fence"]:
            end = fence_ends[number]
            # If the last </code> is inside the would-be block, the tag was closed before the fence.
            if end is None or (tag is not None and tag_ends[number] < end and tag_ends[end] == len(marks)):
                unclosed = mark.start()
                continue
            yield _fenced(text, mark, marks[end], tag is not None)
            filled, number = True, end
        elif not mark["slash"]:
            tag, filled = mark, False
        elif tag is not None:
            if not filled:
                yield _tagged(text, tag, mark)
                unclosed = unclosed if unclosed is None or unclosed < tag.start() else None
            tag = None
    if tag is not None or unclosed is not None:
        yield tag.start() if tag is not None else unclosed or 0


def _marks(text: str) -> Iterator[re.Match[str]]:
    """Yield the fences and the <code> tags of a text."""
    lists = _LIST.finditer(text)
    end = 0  # of the last list that begins before the mark
    found = next(lists, None)
    for mark in _MARK.finditer(text):
        while found is not None and found.start() < mark.start():
            end, found = found.end(), next(lists, None)
        if mark["slash"] is not None or (mark["fence"] and (not mark["deep"] or mark.start() < end)):
            yield mark


def _closing_tags(marks: Sequence[re.Match[str]]) -> list[int]:
    """For each mark, the index of the next </code>; the number of marks if there is none."""
    closing = [len(marks)] * len(marks)
    for number in range(len(marks) - 2, -1, -1):
        closing[number] = number + 1 if marks[number + 1]["slash"] else closing[number + 1]
    return closing


def _closing_fences(marks: Sequence[re.Match[str]]) -> list[int | None]:
    """For each fence, the mark that closes it; None if no mark does or another block starts before.

    A fence that names a language, within a block, starts a new block: the model forgot to close the earlier one. What
    closes a fence in a list is indented as far, or not at all.
    """
    closes: dict[tuple[str, int, int], int] = {}
    opens: dict[tuple[str, int, int], int] = {}
    closing: list[int | None] = [None] * len(marks)
    for number in range(len(marks) - 1, -1, -1):
        mark = marks[number]
        if not mark["fence"]:
            continue
        character, length, depth = mark["fence"][0], min(len(mark["fence"]), _MAX_FENCE), len(mark["deep"] or "")
        close, other = (
            min(nearest.get((character, length, own), len(marks)) for own in {0, depth}) for nearest in (closes, opens)
        )
        closing[number] = close if close < min(other, len(marks)) else None
        if mark["closes"] is not None and mark["indent"] is not None and not mark["info"].strip():
            nearest = closes
        elif _is_one_of(_label(mark["info"]), _LABELS):
            nearest = opens
        else:
            continue
        for shorter in range(3, length + 1):
            nearest[character, shorter, depth] = number
    return closing


def _fenced(text: str, opening: re.Match[str], closing: re.Match[str], tagged: bool) -> Block:
    start = text.find("\n", opening.end()) + 1
    inside = text[start : closing.start()]
    if opening["indent"]:
        inside = re.sub(rf"^ {{1,{len(opening['indent'])}}}", "", inside, flags=re.MULTILINE)
    return Block(inside, _label(opening["info"]), opening.start(), closing.end(), tagged)


def _tagged(text: str, opening: re.Match[str], closing: re.Match[str]) -> Block:
    inside = text[opening.end() : closing.start()]
    label = ""
    fence = _MARK.match(f"\n{inside.lstrip()}", 1)
    if fence is not None and fence["fence"]:  # the tag closes it
        label = _label(fence["info"])
        inside = inside.lstrip().partition("\n")[2]
    else:
        first, newline, rest = inside.partition("\n")
        inside = f"{first.strip()}{newline}{rest}" if first.strip() else rest
    around = (
        text[max(0, opening.start() - 200) : opening.start()].rpartition("\n")[2],
        text[closing.end() : closing.end() + 200].partition("\n")[0],
    )
    inline = "\n" not in inside and any(side.strip() for side in around)
    return Block(f"{inside.rstrip()}\n", label, opening.start(), closing.end(), True, inline)


def _label(info: str) -> str:
    """Return the language named after a fence, also of "{.python .numbered}" and "Python3 title=x"."""
    word = _WORD.search(info)
    return word[0].lower().strip(".").removeprefix("language-").removeprefix("lang-") if word else ""


def with_prefix(program: str, prefix: str | None, entry_point: str | None, language: str) -> str:
    """Return the program after the prefix that its problem gave (HumanEval: imports, helpers and a signature).

    If the program defines the entry point itself, only the part of the prefix before the signature is used.
    """
    if not prefix:
        return program
    if _definition(program, entry_point, language) is None:
        return f"{prefix}{program}"
    if language == "python":
        before = prefix[: _definition(prefix, entry_point, language) or 0]
        if "from __future__" in program:  # which must come first
            before = ""
    else:  # no other language allows a second definition
        before = "".join(f"{line}\n" for line in prefix.split("\n") if line.startswith(("#include", "using ")))
    return f"{before.rstrip()}\n\n{program}" if before.strip() else program


def _definition(code: str, entry_point: str | None, language: str) -> int | None:
    """Return the position at which a program defines its entry point, or None."""
    if not entry_point:
        return None
    name = re.escape(entry_point)
    pattern = (
        rf"^(?:(?:async[ \t]+)?def[ \t]+{name}[ \t]*\(|class[ \t]+{name}\b|{name}[ \t]*(?::[^\n=]{{1,200}})?=(?!=))"
    )
    if language != "python":
        pattern = rf"^[^\n;{{}}()#]{{0,200}}\b{name}[ \t\n]*\([^;{{}}]{{0,1000}}\)[^;{{}}()]{{0,100}}\{{"
    match = re.search(pattern, code, re.MULTILINE)
    return match.start() if match else None
