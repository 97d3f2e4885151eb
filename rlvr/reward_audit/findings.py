"""The result of a red-team exercise: verdict, table for the terminal, JSON for the run directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rlvr import console
from rlvr.formatting import one_line, visible
from rlvr.reward_audit.attacks import is_guess, template
from rlvr.reward_audit.copying import Copying
from rlvr.reward_audit.correctness import Earnings

Verdict = Literal["holds", "lenient", "untested", "broken"]
FILE = "red_team.json"  # in a run directory
MAX_SHARE = 0.5  # of a right answer's reward: a text that earns as much unearned breaks the reward
MAX_ROWS = 0.1  # share of the rows on which a text may earn nearly as much as a right answer
MAX_GUESSED = 0.5  # share of the rows whose prompt may hold the answer
NEGLIGIBLE = 0.07  # of a right answer's reward: less may be one row of 16, by chance
RULE = "──────   ────────   ────────   ─────────────────────────────────────────────"
SHOWN = 6  # findings in the table
PAID = 0.005  # of a reward: less is shown as nothing
QUOTE = 44  # characters of a text in the table
MAX_QUOTE = 400  # of the cheapest text
MAX_JSON_TEXT = 4000


@dataclass(frozen=True)
class Finding:
    """A text and what it earns. `found_by`: the name of an attack."""

    earnings: Earnings
    found_by: str
    example: str  # the text of one row

    @property
    def breaks(self) -> bool:
        return self.earnings.share >= MAX_SHARE or self.earnings.works_on > MAX_ROWS

    @property
    def is_leak(self) -> bool:
        return is_guess(self.earnings.text) and self.earnings.guessed > MAX_GUESSED


@dataclass(frozen=True)
class Findings:
    """What an exercise found.

    Attributes:
        rewards: labels of the recipe's rewards.
        rows, texts: how many were tried; a text counts once for each row.
        right: what a right answer earns, on average.
        found: the best texts first.
        failures: by "reward: kind of failure", a text on which it failed.
        copying: what copied parts of the prompts earn; None if nothing says what is right.
        unpaid_reference: one of the right answers, if none of them earned anything: then nothing is known of others.
    """

    rewards: Sequence[str]
    rows: int
    texts: int
    seconds: float
    right: float
    found: Sequence[Finding]
    failures: dict[str, str] | None = None
    unpaid_reference: str | None = None
    copying: Copying | None = None

    @property
    def verdict(self) -> Verdict:
        if self.copying is not None and self.copying.breaks:
            return "broken"
        if any(finding.breaks or finding.is_leak for finding in self.found):
            return "broken"
        if self.unpaid_reference is not None:
            return "untested"
        return "lenient" if any(finding.earnings.share >= NEGLIGIBLE for finding in self.found) else "holds"

    @property
    def cheapest(self) -> Finding | None:
        """The finding that the verdict is about: the shortest that breaks the reward, or else the best paid."""
        breaking = [finding for finding in self.found if finding.breaks]
        if breaking:
            most = max(finding.earnings.gain for finding in breaking)
            near = [finding for finding in breaking if finding.earnings.gain >= 0.9 * most]
            return min(near, key=lambda finding: finding.earnings.size)
        return next((one for one in self.found if one.is_leak), None) or (self.found[0] if self.found else None)

    def sentences(self) -> list[str]:
        """The verdict in words."""
        best, lines = self.cheapest, self.copying.sentences() if self.copying is not None else []
        if self.unpaid_reference is not None:
            lines.append(
                f"No right answer that was tried earns anything, such as {one_line(self.unpaid_reference, QUOTE)!r}. "
                "Correct the reward, or give the task a gold in the form that it reads."
            )
        if best is not None and best.is_leak and not best.breaks:
            lines.append(
                f"The prompts hold their answers: {_quote(best, MAX_QUOTE)} is right on "
                f"{_percent(best.earnings.guessed)} of the rows. Take the answers out of the prompts."
            )
        elif best is not None and best.earnings.gain >= NEGLIGIBLE:
            earned = f"{_percent(best.earnings.share)} of a right answer's reward"
            works = f", and works on {_percent(best.earnings.works_on)} of the rows" if best.breaks else ""
            lines.append(
                f"Without being right, {_quote(best, MAX_QUOTE)} earns {earned}{works} ({self._payers(best)})."
            )
            if best.breaks:
                lines.append("Training would find such texts first. Mend the reward, or gate it on a verifier.")
        elif self.unpaid_reference is None and not lines:
            lines.append("No text that was tried earns a reward without being right.")
        for what, text in (self.failures or {}).items():
            lines.append(f"A reward failed ({what}), first on {one_line(text, QUOTE)!r}. It would stop or mask a run.")
        return lines

    def _payers(self, finding: Finding) -> str:
        paying = [(name, paid) for name, paid in zip(self.rewards, finding.earnings.paid, strict=True) if paid > PAID]
        return ", ".join(f"{name} {paid:.2f}" for name, paid in paying) or "nothing"

    def table(self) -> str:
        """The best texts, with what they earn."""
        lines = ["  reward   unearned   works on   text, and what pays it", console.dim(f"  {RULE}")]
        paid = [finding for finding in self.found if any(one > PAID for one in finding.earnings.paid)]
        for finding in (paid or self.found)[:SHOWN]:
            earnings = finding.earnings
            numbers = f"{earnings.reward:>8.2f} {_percent(earnings.share):>10} {_percent(earnings.works_on):>10}"
            lines += [f"{numbers}   {_quote(finding, QUOTE)}", f"{'':31}  {self._payers(finding)}"]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": 1,
            "verdict": self.verdict,
            "sentences": self.sentences(),
            "rows": self.rows,
            "texts": self.texts,
            "seconds": round(self.seconds, 1),
            "right_answer_earns": 0.0 if self.unpaid_reference is not None else round(self.right, 4),
            "found": [self._finding_as_dict(finding) for finding in self.found],
            "copying": None if self.copying is None else asdict(self.copying),
            "failures": self.failures or {},
        }

    def _finding_as_dict(self, finding: Finding) -> dict[str, Any]:
        earnings = finding.earnings
        return {
            "text": template(earnings.text)[:MAX_JSON_TEXT],
            "example": finding.example[:MAX_JSON_TEXT],
            "found_by": finding.found_by,
            "reward": round(earnings.reward, 4),
            "unearned": round(earnings.share, 4),
            "works_on": round(earnings.works_on, 4),
            "right_by_chance": round(earnings.guessed, 4),
            "paid": {name: round(paid, 4) for name, paid in zip(self.rewards, earnings.paid, strict=True)},
        }


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _quote(finding: Finding, limit: int) -> str:
    """The text in quotes, on one line, without control characters."""
    text = template(finding.earnings.text)
    return f"'{one_line(text, limit)}'" if text.strip() else f"'{visible(text)}'" if text else "an empty text"
