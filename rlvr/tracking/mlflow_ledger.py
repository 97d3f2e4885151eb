"""What of metrics.jsonl MLflow has, and the words for what is wrong with it. Imports nothing that is slow.

mlflow.json in the run directory keeps the MLflow run's id and how far was sent, over all sessions of a run.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlvr.errors import InputError

_SECRET_KEY = r"[\w.-]*(?:hub_token|password|secret|api_key)"


class SentMetrics:
    """mlflow.json of a run directory: the MLflow run that belongs to it, and the last step whose metrics it has.

    A step has several log lines (training, evaluation, the summary), so the names that were sent of the last step are
    kept as well.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "mlflow.json"
        content = self._read()
        self.run_id: str | None = content.get("run_id")
        self.step: int = content.get("step", -1)
        self.names: set[str] = set(content.get("names", ()))
        # Given to MLflow with the order to make a run, so that one whose making was not confirmed is found again.
        self.key: str | None = content.get("key")
        self.session = f"{os.getpid()}-{time.time_ns()}"

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def begin(self, run_id: str) -> None:
        """From here on this is the run; another one than before has got nothing yet."""
        if run_id != self.run_id:
            self.run_id, self.step, self.names = run_id, -1, set()
        self.save()

    def is_superseded(self) -> bool:
        """Whether another session has taken the run directory over."""
        return self._read().get("session", self.session) != self.session

    def unsent(self, line: Mapping[str, Any]) -> dict[str, float]:
        """The metrics of a log line that MLflow does not have yet, by MLflow's names."""
        step = line["step"]
        if step < self.step:
            return {}
        metrics = metrics_of(line)
        return {name: metrics[name] for name in metrics if step > self.step or name not in self.names}

    def add(self, step: int, names: Mapping[str, float]) -> None:
        if step > self.step:
            self.step, self.names = step, set()
        if step == self.step:
            self.names |= set(names)

    def save(self) -> None:
        content = {
            "run_id": self.run_id,
            "step": self.step,
            "names": sorted(self.names),
            "session": self.session,
            "key": self.key,
        }
        beside = self.path.with_suffix(".part")
        try:
            beside.write_text(json.dumps(content) + "\n", encoding="utf-8")
            beside.replace(self.path)
        except OSError:
            pass  # a full disk: this session remembers, and the next one sends a few steps twice


class Tail:
    """The lines of a growing metrics.jsonl from where the last reading was taken as done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done = 0

    def lines(self, most: int = 1 << 20) -> Iterator[tuple[int, dict[str, Any]]]:
        """Whole lines and where each of them ends; a line that is being written is left for the next time."""
        try:
            if self.path.stat().st_size < self.done:
                self.done = 0  # rewritten: what was sent is known by its step
            with self.path.open("rb") as file:
                file.seek(self.done)
                data = file.read(most)
        except OSError:
            return
        end = self.done
        for raw in data.split(b"\n")[:-1]:
            end += len(raw) + 1
            try:
                line = json.loads(raw)
            except ValueError:
                continue
            if isinstance(line, dict) and isinstance(line.get("step"), int):
                yield end, line


def unsent_lines(folder: Path) -> int:
    """How many lines of metrics.jsonl hold metrics that MLflow was never seen to take."""
    ledger = SentMetrics(folder)
    return sum(bool(ledger.unsent(line)) for _, line in Tail(folder / "metrics.jsonl").lines(most=-1))


def metrics_of(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a log line under names that MLflow accepts; two names never become one."""
    found: dict[str, float] = {}
    for key, value in line.items():
        if key in ("step", "time") or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        name = metric_name(key)
        while name in found:
            name += "_"
        found[name] = float(value)
    return found


def metric_name(key: str) -> str:
    """Letters, digits and _-. :/ as a path without detours, which is what MLflow accepts as a name."""
    cleaned = re.sub(r"[^\w.\-: /]", "_", key)
    return posixpath.normpath(cleaned).lstrip("/.")[:200] or "_"


# ----------------------------------------------------------------------------------------------------------------------
# What is said


def shown_uri(uri: str) -> str:
    """A tracking URI without user, password and query."""
    scheme, separator, rest = uri.partition("://")
    return re.split(r"[?#]", f"{scheme}{separator}{rest.rpartition('@')[2]}")[0]


def is_secret(key: str) -> bool:
    """Whether a recipe's key (of a reward's or task's options, say) names something that is shown to nobody."""
    return re.fullmatch(_SECRET_KEY, key) is not None


def without_secret_keys(yaml: str) -> str:
    """The text of a recipe with the values of such keys left out."""
    return re.sub(rf"(?m)^([\s-]*{_SECRET_KEY}\s*:).*$", r"\1 (not shown)", yaml)


def without_secrets(text: str, uri: str) -> str:
    """A library's message without the credentials of the URI or of MLflow's own variables."""
    text = text.replace(uri, shown_uri(uri))
    text = re.sub(r"://\S*@", "://", text)
    user_info = uri.partition("://")[2].rpartition("@")[0]
    secrets = [user_info.partition(":")[2], *(os.environ.get(f"MLFLOW_TRACKING_{name}", "") for name in _VARIABLES)]
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "…")
    return text


_VARIABLES = ("PASSWORD", "TOKEN")

# What urllib3, requests and SQLAlchemy say, as a person would.
_REASONS = (
    (r"Connection refused", "refuses connections"),
    (r"NameResolutionError|Name or service not known|name resolution", "can't be found: its name is not known"),
    (r"timed out|Timeout", "does not answer in time"),
    (r"Connection aborted|Connection reset|closed connection|RemoteDisconnected", "breaks the connection off"),
    (r"database or disk is full|No space left", "has no room: the disk is full"),
    (r"database is locked", "is locked by another program"),
    (r"readonly database|Permission denied|PERMISSION_DENIED", "refuses: permission denied"),
    (r"unable to open|No such file|Not a directory|Read-only file", "can't be opened: there is no such folder"),
    (r"error code:? (\d{3})", r"answers with HTTP status \1"),
    (r"too many (\d{3}) error", r"answers with HTTP status \1"),
)


def reason(error: BaseException, uri: str) -> str:
    """What is wrong with the server or the store, to be put behind its name."""
    if isinstance(error, InputError):
        return f"can't be used: {error}"
    chain: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(chain) < 10:
        chain.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    for pattern, words in _REASONS:
        if match := re.search(pattern, "\n".join(chain)):
            return match.expand(words)
    first = without_secrets(chain[0], uri).splitlines()[0]
    return f"fails ({first[:300]})"
