"""Reward the share of verifiable instructions that an answer follows: "no commas", "at least 300 words", …

    instruction_id_list: ["punctuation:no_comma", "length_constraints:number_words"]      # columns of IFEval
    kwargs: [{}, {"relation": "at least", "num_words": 300}]

`rlvr.verifiers.instructions` has the kinds and their rules, those of IFEval's strict accuracy (arXiv 2311.07911). They
read the text outside of think tags. The loose accuracy is no reward: it pays if any of eight edits of the answer
(without asterisks, without its first line, …) follows the instruction, so a policy learns to break it in these ways.

An answer without sense must not earn: "* a" has a bullet, and "no" has no comma. So an answer earns 0
- with fewer than `least_words` different words of its own. Numbers, single letters, words that the instructions dictate
  and passages of 8 words copied from the prompt don't count. Instructions that ask for few words lower the number;
- if less than a fifth of its words are different: a loop reaches any length.

Exploits: the reward does not read what is asked. One fluent paragraph with the right form earns as much as an answer,
for every prompt. Gate it on a judge of the content, or keep the policy near its base model (`beta`), and read
completions.
"""

from __future__ import annotations

from typing import Any

from rlvr import InputError, completion_text
from rlvr.errors import error_context
from rlvr.verifiers.completion_text import without_thinking
from rlvr.verifiers.instructions import Instruction, read_instructions
from rlvr.verifiers.words import iterate_words

MAX_CHARACTERS = 100_000
COPIED_WORDS = 8
LEAST_SHARE = 5  # one of so many words has to be different


def instruction_constraints(
    prompts: list[Any],
    completions: list[Any],
    *,
    instruction_id_list: list[Any],
    kwargs: list[Any],
    all_or_nothing: bool = False,
    least_words: int = 7,
    **columns: Any,
) -> list[float | None]:
    """Return the share of instructions that are followed, 0 to 1.

    Args:
        prompts: strings, or lists of chat messages: passages that an answer copies from them are not its own.
        completions: strings, or lists of chat messages. The first 100,000 characters of an answer are read.
        instruction_id_list: for each row, the ids of its instructions.
        kwargs: for each row, a list with the arguments of each instruction, or its JSON text.
        all_or_nothing: pay 1 for following all, else 0: IFEval's accuracy by prompt.
        least_words: minimal number of different words of its own. 0 switches the guards off, as IFEval has none.

    Raises:
        InputError: an id or its arguments are invalid (with the row), lists of different lengths, an invalid option.
    """
    _check(least_words)
    for name, values in (("prompts", prompts), ("instruction_id_list", instruction_id_list), ("kwargs", kwargs)):
        if len(values) != len(completions):
            raise InputError(
                f"Reward instruction_constraints: {len(values)} entries in {name} for {len(completions)} completions. "
                "Pass one each.",
                kind="length-mismatch",
                key=name,
            )
    rewards: list[float | None] = []
    rows = zip(completions, prompts, instruction_id_list, kwargs, strict=True)
    for row, (completion, prompt, ids, arguments) in enumerate(rows):
        with error_context(f"Reward instruction_constraints, row {row} of the batch", row=row):
            instructions = read_instructions(ids, arguments)
        rewards.append(_score(completion, prompt, instructions, all_or_nothing, least_words)[0])
    return rewards


def validate_rows(*, instruction_id_list: list[Any], kwargs: list[Any], **columns: Any) -> list[str | None]:
    """Return for each row what is wrong with its instructions, or None. Called once before training."""
    faults: list[str | None] = []
    for ids, arguments in zip(instruction_id_list, kwargs, strict=True):
        try:
            read_instructions(ids, arguments)
            faults.append(None)
        except InputError as error:
            faults.append(str(error))
    return faults


def explain(
    completion: Any,
    *,
    prompt: Any = None,
    instruction_id_list: Any,
    kwargs: Any,
    all_or_nothing: bool = False,
    least_words: int = 7,
    **columns: Any,
) -> list[str]:
    """Explain the reward of `instruction_constraints`, one sentence a step; the last one is the reward.

    Args: as `instruction_constraints`, for one row.
    """
    _check(least_words)
    instructions = read_instructions(instruction_id_list, kwargs)
    reward, steps = _score(completion, prompt, instructions, all_or_nothing, least_words)
    return [*steps, f"Reward: {reward:g}"]


def _check(least_words: int) -> None:
    if isinstance(least_words, bool) or not isinstance(least_words, int) or least_words < 0:
        raise InputError(
            f"Reward instruction_constraints, option least_words: {least_words!r} is not a whole number from 0 on.",
            kind="invalid-value",
            key="least_words",
        )


def _score(
    completion: Any, prompt: Any, instructions: list[Instruction], all_or_nothing: bool, least_words: int
) -> tuple[float, list[str]]:
    """Return the reward and the sentences that explain it."""
    text = without_thinking(completion_text(completion))[:MAX_CHARACTERS].strip()
    if not text:
        return 0.0, ["The answer is empty."]
    steps = []
    if least_words:
        own = _own_words(text, prompt, instructions)
        different = len(set(own))
        needed = min([least_words, *(_few_words(instruction) for instruction in instructions)])
        steps.append(f"It has {different} different words of its own, {needed} or more are needed.")
        if different < needed:
            return 0.0, steps
        if different * LEAST_SHARE < len(own):
            return 0.0, [*steps, f"It repeats itself: it has {len(own)} words, less than a fifth are different."]
    followed = [instruction.is_followed(text) for instruction in instructions]
    steps += [
        f"{'Followed' if is_followed else 'Not followed'}: {instruction}."
        for instruction, is_followed in zip(instructions, followed, strict=True)
    ]
    return float(all(followed)) if all_or_nothing else sum(followed) / len(followed), steps


def _own_words(text: str, prompt: Any, instructions: list[Instruction]) -> list[str]:
    """Return the words of an answer that neither its prompt nor its instructions gave it."""
    words, asked = _words(text), _words(_prompt_text(prompt))
    size = min(COPIED_WORDS, len(asked)) or 1
    passages = {tuple(asked[start : start + size]) for start in range(len(asked) - size + 1)}
    copied: set[int] = set()
    for start in range(len(words) - size + 1):
        if tuple(words[start : start + size]) in passages:
            copied.update(range(start, start + size))
    dictated = {word for instruction in instructions for text in instruction.dictated for word in _words(text)}
    return [
        word
        for number, word in enumerate(words)
        if number not in copied
        and word not in dictated
        and not word[0].isdigit()
        and (len(word) > 1 or not word.isascii())
    ]


def _prompt_text(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    messages = [message for message in prompt or () if isinstance(message, dict)]
    return "\n".join(completion_text([{**message, "role": "assistant"}]) for message in messages)


def _words(text: str) -> list[str]:
    return [word.casefold() for word in iterate_words(text)]


def _few_words(instruction: Instruction) -> float:
    """Return how many words of its own an instruction leaves an answer at least."""
    if instruction.id == "detectable_format:constrained_response":
        return 0  # the choice is all that is asked
    if instruction.id == "length_constraints:number_words" and instruction.arguments["relation"] != "at least":
        return int(instruction.arguments["num_words"]) // 2
    return float("inf")
