"""What attacks on the rewards found (red_team.json, by scripts/red_team.py). A malformed part counts as missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlvr.artifacts.evaluation_summary import ABSENT
from rlvr.formatting import is_number, mapping, shorten
from rlvr.report.evaluation_extras import ExtraTable

SHOWN = 10
MAX_TEXT = 200  # characters


@dataclass(frozen=True)
class RedTeam:
    """The verdict with its sentences, and a table of texts."""

    verdict: str
    sentences: tuple[str, ...]
    table: ExtraTable


def red_team(content: Mapping[str, Any] | None) -> RedTeam | None:
    """Read the content of a red_team.json (`rlvr.reward_audit.findings.Findings.as_dict`)."""
    content = mapping(content)
    verdict, found, sentences = content.get("verdict"), content.get("found"), content.get("sentences")
    if not isinstance(verdict, str) or not isinstance(found, list):
        return None
    return RedTeam(
        verdict,
        tuple(line for line in sentences if isinstance(line, str)) if isinstance(sentences, list) else (),
        ExtraTable(("reward", "unearned", "works on", "paid by"), [_row(mapping(one)) for one in found[:SHOWN]]),
    )


def _row(finding: Mapping[str, Any]) -> list[str]:
    reward, paid = finding.get("reward"), mapping(finding.get("paid"))
    return [
        shorten(str(finding.get("text") or "(empty)"), MAX_TEXT),
        f"{reward:.2f}" if is_number(reward) else ABSENT,
        *(_share(finding.get(name)) for name in ("unearned", "works_on")),
        ", ".join(f"{name} {value:.2f}" for name, value in paid.items() if is_number(value) and value > 0) or ABSENT,
    ]


def _share(value: Any) -> str:
    return f"{100 * value:.0f} %" if is_number(value) else ABSENT
