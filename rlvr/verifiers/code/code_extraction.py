"""The program in a completion: the last complete code block of the model's own turn.

    extract_program("Here it is:\n```python\nprint(1)\n```\n", language="python").program
    'print(1)\n'

What is read, in this order:
1. Thoughts are no code. They end at </think>; they begin at <think>, or with the completion where the prompt has opened
   them. Tags don't nest, since thoughts talk about tags ("I put them in <think> tags"), and a tag in quotation marks is
   a mention. Thoughts that never end have no program after them, whatever stands before.
2. A block is fenced (three or more ``` or ~~~ at the start of a line, indented by up to three spaces) or stands between
   <code> and </code>. A fence inside <code> is the block. A fence is closed by a line with as many of the same signs
   and nothing else, so ``` within a line of the program or indented by four spaces closes nothing; a program that has
   such lines is put into a longer fence. A block that is never closed is no block; one that its writer forgot to close
   ends where the next fence names a language.
3. A block in another language is none. Blocks that name the language come before those that name none, so that a sample
   of the output behind the program is not taken for it.
4. The turn ends at an end-of-turn token, and, once there is a block, at the next "Question:" that the model invents
   (rlvr/verifiers/completion_text.py). Before the first block such a line is an introduction, and a line of a program
   is never one.

No value raises, and every step is linear: a completion of 10 MB takes no longer than ten of 1 MB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlvr.sandbox.languages import LANGUAGES
from rlvr.verifiers.completion_text import completion_text, own_turn

Which = Literal["last", "first", "only", "join"]
WHICH: tuple[Which, ...] = ("last", "first", "only", "join")
MOST_MARKS = 10_000  # fences and tags of one completion; whoever writes more has no program in mind

_NO_LANGUAGE = frozenset(("", "code", "program", "solution", "answer"))
_LABELS = frozenset(word for row in LANGUAGES.values() for word in (row.name, *row.fences))
_VERSION = re.compile(r"-?\d{1,2}(?:\.\d{1,2})?[a-z]?")  # python3.11, c++17, cpp2a

_THINK = re.compile(r"([\"'`])</?think(?:ing)?>\1|<(/?)think(?:ing)?>", re.IGNORECASE)
# Tokens that end a turn and can't be part of a program; `own_turn` knows more of them ("[INST]").
_END = re.compile(
    r"<\|(?:im_end|im_start|endoftext|end_of_text|eot_id|eom_id|start_header_id)\|>"
    r"|<(?:end_of_turn|start_of_turn)>|<｜(?:end▁of▁sentence|User|Assistant)｜>"
)
# A fence, or a tag of code; tags in quotation marks are mentions. What a fence of backticks is followed by holds none.
_MARK = re.compile(
    r"""
      (?: ^(?P<indent>[ ]{0,3})(?:<(?!code>)[A-Za-z]{1,20}>[ \t]{0,3})? | (?<=<code>)[ \t]{0,3} )
      (?P<fence>`{3,}+(?=[^`\n]*+$)|~{3,}+)
      (?P<info>[^\n<]*+)
      (?P<closes>(?=(?:[ \t]|</?[A-Za-z]{1,20}>)*+$))?      # nothing but tags, as in "```</code>"
    | (?P<quote>["'`])</?code>(?P=quote)
    | <(?P<slash>/?)code>
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
_LONGEST = 40  # fences that are longer count as so long
_WORD = re.compile(r"[\w+#.-]{1,40}")
# What `own_turn` would take for a header or for thoughts, and what is none here: examples are given in one's own turn.
_HARMLESS = re.compile(r"example|<(?=/?think)", re.IGNORECASE)
# The end of a prompt that has begun the answer already.
_BEGUN = re.compile(r"(?:^|\n) {0,3}((?:<think>|<code>|(?:`{3,}|~{3,})[ \t]*[\w+#-]{1,40})[ \t]*\n?)\Z")


@dataclass(frozen=True)
class Extraction:
    """The program of a completion, or None; `why` says in a few words which block it is, or why there is none."""

    program: str | None
    why: str


@dataclass(frozen=True)
class Block:
    """A complete block.

    Attributes:
        text: what is in it, ending in a line end.
        label: the first word behind the fence, in small letters; empty where there is none.
        start, end: where it stands in the turn, with its fences or tags.
        tagged: whether it is what stands between <code> tags, or a fence in it.
        inline: whether it shares a line with words, like <code>this</code>.
    """

    text: str
    label: str
    start: int
    end: int
    tagged: bool = False
    inline: bool = False


@dataclass(frozen=True)
class Turn:
    """The model's own turn, as far as code is concerned.

    Attributes:
        text: without thoughts, and with nothing behind the end of the turn.
        blocks: in their order, empty ones left out.
        unclosed: whether a block was begun and never closed.
        thoughts: "none", "closed", or "open": there is no end to them, and so no turn.
    """

    text: str
    blocks: list[Block]
    unclosed: bool
    thoughts: Literal["none", "closed", "open"]


def extract_program(
    completion: Any,
    *,
    language: str,
    blocks: Which = "last",
    tags: bool = True,
    bare: bool = False,
    begun: str = "",
) -> Extraction:
    """The program that a completion gives as its answer.

    Args:
        completion: a string, or a list of chat messages.
        language: what the program should be in: blocks that name another language don't count.
        blocks: which of several: the "last", the "first", "only" for one that must be the only one, or "join" for all
            of them, one after the other.
        tags: whether <code>…</code> makes a block.
        bare: whether a turn without any block is a program as it stands, up to its first fence: for models that are
            asked for code and nothing else, or go on behind the beginning of a function.
        begun: what the prompt has begun the answer with, such as "<think>" or "```python"; see `begun_by`.
    """
    turn = read_turn(completion, language=language, tags=tags, begun=begun)
    if turn.thoughts == "open":
        return Extraction(None, "the thoughts never end")
    own = [block for block in turn.blocks if is_label_of(block.label, language)]
    answers = [block for block in own if (block.tagged and not block.inline) or block.label not in _NO_LANGUAGE]
    chosen = answers or [block for block in own if not block.inline] or own
    if not chosen:
        return _without_block(turn, language, bare)
    if blocks == "only" and len(chosen) > 1:
        return Extraction(None, f"there are {len(chosen)} blocks where one is asked for")
    if blocks == "join" and len(chosen) > 1:
        return Extraction("".join(block.text for block in chosen), f"the {len(chosen)} blocks of the turn, joined")
    number = 0 if blocks == "first" else len(chosen) - 1
    which = "the only block" if len(chosen) == 1 else f"block {number + 1} of {len(chosen)}"
    program = chosen[number].text
    return Extraction(program, f"{which} that may be {language}, {len(program):,} characters")


def _without_block(turn: Turn, language: str, bare: bool) -> Extraction:
    if bare and not turn.blocks:
        mark = next((mark for mark in _MARK.finditer(turn.text) if mark["fence"]), None)
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
    version = _VERSION.search(label) if label not in words else None
    return label in words or (version is not None and version.end() == len(label) and label[: version.start()] in words)


def begun_by(prompt: Any) -> str:
    """What a prompt ends in, if it has begun the answer: "<think>", "<code>", or a fence that names a language.

    What a chat template adds to messages can't be seen here.
    """
    if isinstance(prompt, list):
        last = prompt[-1] if prompt and isinstance(prompt[-1], dict) else {}
        prompt = completion_text(prompt) if last.get("role") == "assistant" else ""
    match = _BEGUN.search(prompt[-200:]) if isinstance(prompt, str) else None
    return match[1] if match else ""


def read_turn(completion: Any, *, language: str, tags: bool = True, begun: str = "") -> Turn:
    """The model's own turn and the blocks in it; the arguments are those of `extract_program`."""
    text = begun + completion_text(completion)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    text, thoughts = _after_thoughts(text)
    token = _END.search(text)
    text = text[: token.start()] if token else text
    blocks: list[Block] = []
    end: int | None = None  # of the last block, once there is a program: behind it, another problem may begin
    for block in _blocks(text, tags):
        start = block if isinstance(block, int) else block.start
        if end is not None and (turned := _turns_away(text[end:start])) is not None:
            return Turn(text[: end + turned], blocks, False, thoughts)
        if isinstance(block, int):
            return Turn(text, blocks, True, thoughts)
        empty = not block.text.strip()
        if not empty:
            blocks.append(block)
        if end is not None or not (empty or block.inline or not is_label_of(block.label, language)):
            end = block.end
    if end is not None and (turned := _turns_away(text[end:])) is not None:
        text = text[: end + turned]
    return Turn(text, blocks, False, thoughts)


def _after_thoughts(text: str) -> tuple[str, Literal["none", "closed", "open"]]:
    """The text outside of the thoughts, and what there is of these."""
    kept: list[str] = []
    start, thinking, found = 0, False, False
    for tag in _THINK.finditer(text):
        if tag[1]:
            continue
        found = True
        if tag[2]:
            if not thinking:
                kept = []  # these thoughts began before the first word
            thinking, start = False, tag.end()
        elif not thinking:
            kept.append(text[start : tag.start()])
            thinking = True
    if thinking:
        return "", "open"
    kept.append(text[start:])
    return "\n".join(kept), "closed" if found else "none"


def _turns_away(text: str) -> int | None:
    """Where in a text behind a program the model turns to another problem; None if it doesn't."""
    text = _HARMLESS.sub(lambda match: "." * len(match[0]), text)
    end = len(own_turn(text))
    return end if end < len(text) else None


def _blocks(text: str, tags: bool) -> Iterator[Block | int]:
    """The complete blocks of a text; then, if one is left that is never closed, where that begins."""
    marks = []
    for mark in _MARK.finditer(text):
        if mark["fence"] or (tags and mark["slash"] is not None):
            marks.append(mark)
            if len(marks) > MOST_MARKS:
                yield 0
                return
    fence_ends = _closing_fences(marks)
    tag_ends = _closing_tags(marks)
    tag: re.Match[str] | None = None  # the <code> that is open
    filled = False  # whether a fence in it has been a block already
    unclosed: int | None = None
    number = -1
    while (number := number + 1) < len(marks):
        mark = marks[number]
        if mark["fence"]:
            end = fence_ends[number]
            # The fence was not closed before its tag was, if the last </code> stands in what would be the block.
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


def _closing_tags(marks: Sequence[re.Match[str]]) -> list[int]:
    """For each mark, the next </code>; the number of marks where there is none."""
    found = [len(marks)] * len(marks)
    for number in range(len(marks) - 2, -1, -1):
        found[number] = number + 1 if marks[number + 1]["slash"] else found[number + 1]
    return found


def _closing_fences(marks: Sequence[re.Match[str]]) -> list[int | None]:
    """For each fence, which mark would close it: None where none does, or another block is begun before.

    A model that forgets to close a block and begins another writes a fence that names a language within a block.
    """
    closes: dict[tuple[str, int], int] = {}
    begins: dict[tuple[str, int], int] = {}
    found: list[int | None] = [None] * len(marks)
    for number in range(len(marks) - 1, -1, -1):
        mark = marks[number]
        if not mark["fence"]:
            continue
        sign, length = mark["fence"][0], min(len(mark["fence"]), _LONGEST)
        close = closes.get((sign, length))
        found[number] = None if begins.get((sign, length), len(marks)) < (close or 0) else close
        if mark["closes"] is not None and mark["indent"] is not None and not mark["info"].strip():
            nearest = closes
        elif _is_one_of(_label(mark["info"]), _LABELS):
            nearest = begins
        else:
            continue
        for shorter in range(3, length + 1):
            nearest[sign, shorter] = number
    return found


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
    if fence is not None and fence["fence"]:  # it is closed by the tag
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
    """The language that stands behind a fence: of "{.python .numbered}" and "Python3 title=x" too."""
    word = _WORD.search(info)
    return word[0].lower().strip(".").removeprefix("language-").removeprefix("lang-") if word else ""


# ----------------------------------------------------------------------------------------------------------------------


def with_prefix(program: str, prefix: str | None, entry_point: str | None, language: str) -> str:
    """The program, behind the beginning that its problem gave (HumanEval: imports, helpers and a signature).

    A program that defines the entry point by itself gets what stands before the signature; one that doesn't goes on
    where the beginning ends.
    """
    if not prefix:
        return program
    if _definition(program, entry_point, language) is None:
        return f"{prefix}{program}"
    if language == "python":
        before = prefix[: _definition(prefix, entry_point, language) or 0]
        if "from __future__" in program:  # which must stand first
            before = ""
    else:  # where nothing may be defined twice
        before = "".join(f"{line}\n" for line in prefix.split("\n") if line.startswith(("#include", "using ")))
    return f"{before.rstrip()}\n\n{program}" if before.strip() else program


def _definition(code: str, entry_point: str | None, language: str) -> int | None:
    """Where a program defines its entry point."""
    if not entry_point:
        return None
    name = re.escape(entry_point)
    if language == "python":
        pattern = (
            rf"^(?:(?:async[ \t]+)?def[ \t]+{name}[ \t]*\(|class[ \t]+{name}\b|{name}[ \t]*(?::[^\n=]{{1,200}})?=(?!=))"
        )
    else:
        pattern = rf"^[^\n;{{}}()#]{{0,200}}\b{name}[ \t\n]*\([^;{{}}]{{0,1000}}\)[^;{{}}()]{{0,100}}\{{"
    match = re.search(pattern, code, re.MULTILINE)
    return match.start() if match else None
