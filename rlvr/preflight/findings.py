"""Collect the problems of one pass: each once, and none that another problem causes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from rlvr.errors import InputError, Problem
from rlvr.preflight.components import RunComponents

Component = TypeVar("Component")
CheckFunction = Callable[[RunComponents], Iterable[Problem]]


@dataclass(frozen=True)
class Check:
    """One row of the table of checks.

    Attributes:
        function: finds problems in the components.
        reads: recipe keys that it depends on. If the value of one is unknown, the check is skipped.
        needs: attributes of `RunComponents` that must not be None.
        after: checks that must have found no error.
    """

    function: CheckFunction
    reads: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    after: tuple[CheckFunction, ...] = ()


class Findings:
    """The problems that checks find.

    Args:
        known_problems: errors of the recipe's text, which are reported already. The values of their keys are unknown,
            so checks that read these keys are skipped.
    """

    def __init__(self, known_problems: Iterable[Problem] = ()) -> None:
        self.problems: list[Problem] = []
        self.known_problems = tuple(known_problems)
        self.unknown_keys = {key for one in self.known_problems for key in (one.key, one.suggestion) if key}
        self.skipped_keys: set[str] = set()
        self._failed: set[CheckFunction] = set()
        self._doubtful_keys = set(self.unknown_keys)  # an error about one of them may be a consequence

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.level == "error"]

    def add(self, problems: Iterable[Problem]) -> None:
        """Add problems that are new."""
        self.problems += [problem for problem in dict.fromkeys(problems) if problem not in self.problems]

    def attempt(self, load: Callable[[], Component]) -> Component | None:
        """Return what `load` returns, or None if it raises InputError, which is then among the problems."""
        try:
            return load()
        except InputError as error:
            self.add(error.problems)
            return None

    def run(self, checks: Iterable[Check], components: RunComponents) -> None:
        """Run checks in their order."""
        for check in checks:
            unknown = self.unknown_keys.intersection(check.reads)
            self.skipped_keys |= unknown
            missing = any(getattr(components, name) is None for name in check.needs)
            if unknown or missing or self.has_failed(check.after):
                continue
            problems = list(check.function(components))
            self.add(problems)
            if any(problem.level == "error" for problem in problems):
                self._failed.add(check.function)
                self._doubtful_keys.update(check.reads)

    def has_failed(self, functions: Iterable[CheckFunction]) -> bool:
        """Whether one of these checks found an error."""
        return not self._failed.isdisjoint(functions)

    def is_doubtful(self, keys: Iterable[str]) -> bool:
        """Whether an error about these keys may be a consequence of one that is found already."""
        found = {problem.key for problem in self.errors}
        return any(key in self._doubtful_keys or key in found for key in keys)

    def error(self) -> InputError:
        """The error to raise. Its message has the new errors and warnings; its problems are all, notes included."""
        skipped = ", ".join(sorted(self.skipped_keys))
        rest = [f"Checks of {skipped} were skipped: correct the above first."] if skipped else []
        lines = [*map(str, self.errors), *rest, *(str(one) for one in self.problems if one.level == "warning")]
        return InputError("\n".join(lines), problems=[*self.known_problems, *self.problems])
