"""Write a Python program with a sandbox at hand: run drafts, then submit a program for hidden tests.

    environment: {name: python_sandbox, options: {time_s: 5}}

Columns (docs/verifiers.md#programs) are `tests`, and as needed `entry_point`, `prefix`, `checker`, `comparison`,
`tolerance`, `time_s` and `memory_mb`. docs/verifiers.md says what programs can't do.

The reward is the share of the tests that the submitted program passes. Without a submission, the reward is 0. The model
learns only how many tests passed. Inputs, expected outputs and the program's own output in a test stay hidden.

Known weaknesses: the number is information, too. With many submissions, a program can ask one question about the tests
with each. So `submissions` is 1 by default, and the number comes too late to be of use.
"""

from __future__ import annotations

from typing import Any

from rlvr import InputError, Limits, judge_many, run_program
from rlvr.verifiers.code.problems import read_problem
from rlvr.verifiers.code.types import AC, SE, VERDICT_NAMES


class PythonSandbox:
    """One problem, its drafts and its submissions."""

    def __init__(
        self,
        time_s: float = 2.0,
        memory_mb: float = 256.0,
        submissions: int = 1,
        all_or_nothing: bool = False,
        output_characters: int = 2000,
        allow_weak_sandbox: bool = False,
    ) -> None:
        """
        Args:
            time_s: CPU seconds per run or test, unless the row sets `time_s`.
            memory_mb: memory per run or test in MB, unless the row sets `memory_mb`.
            submissions: maximum number of submissions. The last submission counts.
            all_or_nothing: return the reward 1 if all tests pass, and 0 otherwise.
            output_characters: number of characters of standard output, and of standard error, that `run` returns.
            allow_weak_sandbox: run programs where they can't be confined. They can then do whatever you can.
        """
        for name, value in (("submissions", submissions), ("output_characters", output_characters)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"option {name} is {value!r}. Use a number from 1 on.", kind="invalid-value", key=name)
        Limits(time_s=time_s, memory_mb=memory_mb)
        self._options = {"time_s": time_s, "memory_mb": memory_mb, "allow_weak_sandbox": allow_weak_sandbox}
        self._most_submissions, self._all_or_nothing = submissions, all_or_nothing
        self._output_characters = output_characters

    def reset(self, **row: Any) -> None:
        """Begin a rollout with the problem of a row."""
        self._problem = read_problem(row, **self._options)
        self._submitted = 0
        self._reward: float | None = 0.0

    def run(self, code: str, stdin: str = "") -> str:
        """
        Run a Python program and return what it prints.

        Args:
            code: The whole program.
            stdin: Its standard input.

        Returns:
            Standard output, then standard error if there is any.
        """
        given = self._problem.submission
        result = run_program(code, stdin=stdin, limits=given.limits, allow_weak_sandbox=given.allow_weak_sandbox)
        if result.verdict == SE:
            raise RuntimeError("the sandbox failed. Try again.")
        parts = [_cut(result.stdout, self._output_characters), _cut(result.stderr, self._output_characters, end=True)]
        if result.reason and result.reason not in parts[1]:
            parts.append(f"[{VERDICT_NAMES[result.verdict]}: {result.reason}]")
        return "\n".join(part for part in parts if part) or "[no output]"

    def submit(self, code: str) -> str:
        """
        Submit the final program. Hidden tests judge it.

        Args:
            code: The whole program, or the function that the problem asks for.

        Returns:
            How many tests passed.
        """
        if self._submitted >= self._most_submissions:
            raise ValueError("no submission is left.")
        self._submitted += 1
        (judgement,) = judge_many([self._problem.with_program(code)])
        if judgement.sandbox_failed:
            self._reward = None
            return "The sandbox failed."
        passed = sum(verdict == AC for verdict in judgement.verdicts)
        self._reward = float(judgement.score == 1.0) if self._all_or_nothing else judgement.score
        return f"{passed} of {len(judgement.verdicts)} tests passed."

    def get_reward(self) -> float | None:
        """Return the share of the tests that the last submission passed, or None if the sandbox failed."""
        return self._reward


def play_reference(environment: PythonSandbox, *, solution: str | None = None, **row: Any) -> bool:
    """Submit the column `solution`. Return False for a row without a solution."""
    if solution is not None:
        environment.submit(solution)
    return solution is not None


def count_killed_call(environment: PythonSandbox, tool: str) -> None:
    """Count a submission that was killed, with score 0. Otherwise, programs that hang ask about the tests for free."""
    if tool == "submit":
        environment._submitted += 1
        environment._reward = 0.0


def _cut(text: str, characters: int, *, end: bool = False) -> str:
    """Return the start of a text, or its end, with a note of what is missing."""
    text = text.strip("\n")
    if len(text) <= characters:
        return text
    left_out = f"[{len(text) - characters} more characters]"
    return f"{left_out}\n{text[-characters:]}" if end else f"{text[:characters]}\n{left_out}"
