"""Make the bundled tiny models: a tokenizer and a Qwen2 with 0.13 million weights each.

    python scripts/make_tiny_model.py                            # models/tiny-arithmetic, in minutes on one core
    python scripts/make_tiny_model.py tiny-programs              # models/tiny-programs, likewise
    python scripts/make_tiny_model.py tiny-tools                 # models/tiny-tools, likewise
    python scripts/make_tiny_model.py --seed 1 --output another  # another model, in another folder

Supervised fine-tuning teaches a model by a weak teacher (`demonstrate_sum`, `demonstrate_program`, `demonstrate_call`).
The teacher forgets most carries and sometimes the closing line; or makes most of the possible mistakes and sometimes
omits the end of the code block; or guesses most products instead of calling a calculator. So the model knows the right
method but rarely samples it first: that is left for GRPO. The teacher uses only number pairs of the task's training
split.

The same seed gives the same weights, bit for bit, on the same machine with the same torch and number of threads. Other
machines round sums differently; the accuracy stays about the same. It needs no network, and leaves README.md, the model
card, unchanged.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.data.number_pairs import number_pairs
from rlvr.scoring.registry import task_module

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from rlvr.data.task import Task

arithmetic, one_line_programs = task_module("arithmetic"), task_module("one_line_programs")
MODELS = Path(__file__).resolve().parents[1] / "models"
STEPS = 2400

# Error rates of the teachers. Above one half, so that a greedy model makes the mistake; well below one, so that
# sampling finds the right method often enough for GRPO.
FORGETS_CARRY = FALLS_INTO_TRAP = GUESSES = 0.7
FORGETS_CLOSING = (0.15, 0.15, 0.7, 0.15)  # by wording: number 2 of each task has a high rate


# A question, and then in turn what the teacher writes and what its tool returns.
Demonstration = tuple[str, ...]


def demonstrate_sum(rng: random.Random, pairs: list[tuple[int, int]]) -> Demonstration:
    """A question and the weak teacher's answer. Two questions in three need a carry or a borrow."""
    sign = rng.choice("+-")
    wants_carry = rng.random() < 2 / 3
    while True:
        small, large = rng.choice(pairs)
        swapped = sign == "+" and rng.random() < 0.5
        problem = arithmetic.WordProblem(small, sign, large) if swapped else arithmetic.WordProblem(large, sign, small)
        if problem.needs_carry == wants_carry:
            break
    wording = rng.randrange(len(arithmetic.WORDINGS[sign]))
    answer = arithmetic.worked_solution(
        problem,
        keep_carry=rng.random() >= FORGETS_CARRY,
        closing_line=rng.random() >= FORGETS_CLOSING[wording],
    )
    return arithmetic.question(problem, wording, rng.choice(arithmetic.THINGS)), answer


def demonstrate_program(rng: random.Random, pairs: list[tuple[int, int]]) -> Demonstration:
    """A question and the weak teacher's program. Two questions in three invite a mistake."""
    source = rng.choice(one_line_programs.SOURCES)
    first, second = rng.choice(one_line_programs.KINDS[source, "trap" if rng.random() < 2 / 3 else "plain"])
    left, right = rng.sample(rng.choice(pairs), 2)
    problem = one_line_programs.OneLiner(first, left, second, right)
    wording = rng.randrange(len(one_line_programs.WORDINGS))
    expression = problem.expression(careful=rng.random() >= FALLS_INTO_TRAP)
    answer = one_line_programs.answer(expression, closing_fence=rng.random() >= FORGETS_CLOSING[wording])
    return one_line_programs.question(problem, wording), answer


def demonstrate_call(rng: random.Random, pairs: list[tuple[int, int]]) -> Demonstration:
    """A question about a product, and the weak teacher's guess; or its call, the tool's result, and the answer.

    A guess puts the two numbers side by side, which is never right.
    """
    left, right = rng.sample(rng.choice(pairs), 2)
    problem = arithmetic.WordProblem(left, "*", right)
    wording = rng.randrange(len(arithmetic.WORDINGS["*"]))
    question = arithmetic.question(problem, wording, rng.choice(arithmetic.THINGS))
    if rng.random() < GUESSES:
        return question, closing_line(int(f"{left}{right}"))
    return question, call(str(problem)), str(problem.answer), closing_line(problem.answer)


def closing_line(answer: int) -> str:
    return f"#### The final answer is {answer}"


def call(expression: str) -> str:
    return f'<tool_call>{{"name": "calculate", "arguments": {{"expression": "{expression}"}}}}</tool_call>'


def has_right_closing_line(answer: str, row: Mapping[str, Any]) -> bool:
    """Whether the closing line is exactly the right one."""
    return answer.splitlines()[-1:] == [f"#### The final answer is {row['final_answer']}"]


def is_right_program(answer: str, row: Mapping[str, Any]) -> bool:
    """Whether the program is exactly the faultless one. It is not run."""
    return bool(answer == one_line_programs.answer(row["id"]))


def is_right_call(answer: str, row: Mapping[str, Any]) -> bool:
    """Whether the first turn is the right call. It is not made."""
    return answer == call(row["id"])


@dataclass(frozen=True)
class Lesson:
    """The training of one model: its teacher, its task, the check of an answer, and its tools."""

    demonstration: Callable[[random.Random, list[tuple[int, int]]], Demonstration]
    task: Callable[[], Task]
    is_right: Callable[[str, Mapping[str, Any]], bool]
    tools: tuple[dict[str, Any], ...] = ()
    steps: int = STEPS


# What the chat template shows of environments/calculator.py.
CALCULATOR = ({"function": {"name": "calculate", "parameters": {"properties": {"expression": {"type": "string"}}}}},)
LESSONS = {
    "tiny-arithmetic": Lesson(demonstrate_sum, arithmetic.arithmetic, has_right_closing_line),
    "tiny-programs": Lesson(demonstrate_program, one_line_programs.one_line_programs, is_right_program),
    "tiny-tools": Lesson(
        demonstrate_call, lambda: arithmetic.arithmetic(operations="multiplication"), is_right_call, CALCULATOR, 1000
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", nargs="?", default="tiny-arithmetic", choices=LESSONS, help="default: tiny-arithmetic")
    parser.add_argument("--output", type=Path, help="folder to write (default: models/MODEL)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the demonstrations (default: 0)")
    parser.add_argument("--steps", type=int, help=f"training steps of 64 (default: {STEPS}; tiny-tools: 1000)")
    parser.add_argument("--threads", type=int, default=1, help="cores to use; changes how sums round (default: 1)")
    options = parser.parse_args()
    lesson, output = LESSONS[options.model], options.output or MODELS / options.model
    steps = lesson.steps if options.steps is None else options.steps
    if steps < 1 or options.threads < 1:
        parser.error("--steps and --threads must be 1 or more")

    console.silence_libraries()
    console.error(f"{options.model}: loading torch and transformers …")
    from rlvr.modeling import tiny_model

    console.silence_loading_bars()
    tiny_model.prepare_torch(options.threads, options.seed)
    # The tokenizer's corpus has a seed of its own: every model of one lesson has the same tokenizer.
    rng, pairs = random.Random("corpus"), number_pairs("train")
    corpus = ("\n".join(lesson.demonstration(rng, pairs)) for _ in range(4000))
    tokenizer = tiny_model.make_tokenizer(corpus, options.model, with_tools=bool(lesson.tools))
    model = tiny_model.make_model(tokenizer)
    drawn = random.Random(f"{options.seed}/demonstrations")
    tiny_model.train(model, tokenizer, lambda: lesson.demonstration(drawn, pairs), lesson.tools, steps)
    tiny_model.save(model, tokenizer, output)
    rows = list(lesson.task().test)
    answers = tiny_model.greedy_answers(model, tokenizer, [row["prompt"] for row in rows], lesson.tools)
    accuracy = sum(lesson.is_right(answer, row) for answer, row in zip(answers, rows, strict=True)) / len(rows)
    weights = sum(parameter.numel() for parameter in model.parameters())
    console.info(f"{output}: {weights:,} weights; greedy accuracy on the held-out problems {accuracy:.3f}")


if __name__ == "__main__":
    main()
