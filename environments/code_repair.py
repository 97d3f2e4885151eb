"""Repair a program: see how it fails, submit another, and see again.

    environment: {name: code_repair, options: {attempts: 3, attempt_cost: 0.2}}

The environment reads the columns of the rewards for programs (docs/verifiers.md#programs), and two more:

    faulty_program   the program to repair. Without it, the first attempt is the model's own program.
    public_tests     tests that the model may see when they fail, with inputs and expected outputs

`tests` decide the reward. The model sees how many of them passed and how the first one failed, never their content.

The reward is the share of `tests` passed, less `attempt_cost` of it for each attempt after the first. The best attempt
counts. So a correct program at the third attempt scores 0.6, and a later attempt never lowers the reward.

Known weaknesses: as `python_sandbox` with several submissions. Keep `attempts` small.
"""

from __future__ import annotations

from typing import Any

from rlvr import InputError, Judgement, Limits, judge_many
from rlvr.verifiers.code.problems import CodeProblem, read_problem
from rlvr.verifiers.code.types import AC, SKIP, VERDICT_NAMES

MAX_CHARACTERS = 1000  # of a quoted test, and of how it fails


class CodeRepair:
    """One problem and its attempts."""

    def __init__(
        self,
        time_s: float = 2.0,
        memory_mb: float = 256.0,
        attempts: int = 3,
        attempt_cost: float = 0.2,
        allow_weak_sandbox: bool = False,
    ) -> None:
        """
        Args:
            time_s: CPU seconds per test, unless the row sets `time_s`.
            memory_mb: memory per test in MB, unless the row sets `memory_mb`.
            attempts: maximum number of attempts.
            attempt_cost: share of the reward that each attempt after the first costs, 0 to 1.
            allow_weak_sandbox: run programs where they can't be confined. They can then do whatever you can.
        """
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            message = f"option attempts is {attempts!r}. Use a number from 1 on."
            raise InputError(message, kind="invalid-value", key="attempts")
        if not 0 <= attempt_cost <= 1:
            message = f"option attempt_cost is {attempt_cost!r}. Use a number from 0 to 1."
            raise InputError(message, kind="invalid-value", key="attempt_cost")
        Limits(time_s=time_s, memory_mb=memory_mb)
        self._options = {"time_s": time_s, "memory_mb": memory_mb, "allow_weak_sandbox": allow_weak_sandbox}
        self._most_attempts, self._attempt_cost = attempts, attempt_cost

    def reset(self, faulty_program: str | None = None, **row: Any) -> str | None:
        """Begin a rollout with the problem of a row."""
        self._problem = read_problem(row, **self._options)
        public = row.get("public_tests")
        self._public = read_problem({**row, "tests": public}, **self._options) if public else None
        self._attempts, self._solved = 0, False
        self._reward: float | None = 0.0
        if not faulty_program:
            return None
        _, result = self._judge(faulty_program)
        self._solved, self._reward = False, 0.0
        block = f"```python\n{faulty_program.strip()}\n```"
        return f"\n\nThis program is faulty:\n\n{block}\n\n{result}\nSubmit a repaired one."

    def submit(self, code: str) -> str:
        """
        Submit a program. Tests judge it.

        Args:
            code: The whole program, or the function that the problem asks for.

        Returns:
            How many tests passed, how the first of the others failed, and how many attempts are left.
        """
        if self._solved:
            raise ValueError("the problem is solved.")
        if self._attempts >= self._most_attempts:
            raise ValueError("no attempt is left.")
        self._attempts += 1
        score, result = self._judge(code)
        if score is None:
            self._reward = None
            return result
        if self._reward is not None:
            self._reward = max(self._reward, score * max(0.0, 1 - self._attempt_cost * (self._attempts - 1)))
        return f"{result}\nAttempts left: {0 if self._solved else self._most_attempts - self._attempts}."

    def get_reward(self) -> float | None:
        """Return the reward of the best attempt, or None if the sandbox failed."""
        return self._reward

    def _judge(self, code: str) -> tuple[float | None, str]:
        """Return the score of a program, None if the sandbox failed, and what the model may know about it."""
        problems = [problem for problem in (self._problem, self._public) if problem is not None]
        judgements = judge_many([problem.with_program(code) for problem in problems])
        if any(judgement.sandbox_failed for judgement in judgements):
            return None, "The sandbox failed."
        hidden, public = judgements[0], judgements[1:]
        self._solved = hidden.score == 1.0
        lines = [f"{sum(verdict == AC for verdict in hidden.verdicts)} of {len(hidden.verdicts)} tests passed."]
        if public and self._public is not None and public[0].score < 1.0:
            lines.append(_describe_failure(self._public, public[0]))
        elif not self._solved:
            verdict = next(verdict for verdict in hidden.verdicts if verdict not in (AC, SKIP))
            lines.append(f"The first failure: {VERDICT_NAMES[verdict]}.")
        return hidden.score, "\n".join(lines)


def play_reference(environment: CodeRepair, *, solution: str | None = None, **row: Any) -> bool:
    """Submit the column `solution`. Return False for a row without a solution."""
    if solution is not None:
        environment.submit(solution)
    return solution is not None


def count_killed_call(environment: CodeRepair, tool: str) -> None:
    """Count an attempt that was killed, with score 0. Otherwise, programs that hang ask about the tests for free."""
    environment._attempts += tool == "submit"


def _describe_failure(problem: CodeProblem, judgement: Judgement) -> str:
    """Quote the first test that failed, and say how."""
    verdicts = judgement.verdicts
    index = next(index for index, verdict in enumerate(verdicts) if verdict not in (AC, SKIP))
    test = problem.submission.tests[index]
    if "assert" in test:
        quoted = str(test["assert"]).strip()
    elif "call" in test:
        arguments = ", ".join(map(repr, test["call"]))
        quoted = f"{problem.submission.entry_point}({arguments}) == {test['expected']!r}"
    else:
        quoted = f"input:\n{test['input']}\nexpected output:\n{test['output']}"
    reason = judgement.reasons[index]
    how = VERDICT_NAMES[verdicts[index]] + (f": {reason}" if reason else "")
    return f"This test fails ({how[:MAX_CHARACTERS]}):\n{quoted[:MAX_CHARACTERS]}"
