"""What happens to a job, as it happens: changes of its status, the log lines of all its hosts, its figures, its end.

    for event in watch(job):
        …

The SDK's own log reader shows nothing until every host has a stream, and stops with the job's status, when the last
lines, a traceback for instance, are still on their way. This one shows each stream as it appears, and goes on reading
until nothing more has come for a while.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from rlvr.console import duration
from rlvr.sagemaker import aws
from rlvr.sagemaker.cloudwatch_metrics import STEP_LINE
from rlvr.sagemaker.job import DONE, Job

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
POLL_S = 5.0
# How long after the end no line must have come: CloudWatch takes some seconds to show one.
SETTLE_S = 15.0
# How the service ends the reason of a job whose recipe or data were found wrong (exit code 2 of run_grpo.py).
_RECIPE_IS_WRONG = re.compile(r"exit code: 2\s*$")
_ATTEMPTS = 3  # of reading in a row that may fail before it is given up


@dataclass(frozen=True)
class Status:
    """A change of the job's status: "Starting", "Downloading", "Training", "Interrupted" …, and what is said of it."""

    name: str
    message: str = ""


@dataclass(frozen=True)
class Line:
    """A line of a host's log; `time` in Unix seconds."""

    host: str
    text: str
    time: float


@dataclass(frozen=True)
class Figures:
    """What a step's line says; NaN where a number was none."""

    step: int
    steps: int
    reward: float
    length: float | None = None
    clipped: float | None = None
    left: str | None = None


@dataclass(frozen=True)
class End:
    """The job is over.

    Attributes:
        status: "Completed", "Failed" or "Stopped".
        reason: why it failed, in full.
        seconds, billed: how long it trained, and how much of that is paid for; None where that isn't known.
        spot: whether it ran on spot capacity.
    """

    status: str
    reason: str = ""
    seconds: int | None = None
    billed: int | None = None
    spot: bool = False


Event = Status | Line | Figures | End


@dataclass
class _Streams:
    """The log streams of a job and how far each has been read."""

    job: Job
    client: Any
    tokens: dict[str, str | None] = field(default_factory=dict)

    def read(self) -> list[Line]:
        """The lines that came since, in the order of their time."""
        lines = []
        for stream in self._names():
            while True:
                token = self.tokens.get(stream)
                asked = {"nextToken": token} if token else {}
                page = self.client.get_log_events(
                    logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True, **asked
                )
                host = stream.partition("/")[2]
                found = re.match(r"algo-\d+", host)
                for event in page["events"]:
                    # A carriage return draws a bar anew; what stands after the last one is its latest state.
                    text = event["message"].rstrip().rpartition("\r")[2]
                    lines.append(Line(found[0] if found else host, text, event["timestamp"] / 1000))
                ahead = page.get("nextForwardToken")
                self.tokens[stream] = ahead
                if ahead == token or not page["events"]:
                    break
        return sorted(lines, key=lambda line: line.time)

    def _names(self) -> list[str]:
        pages = self.client.get_paginator("describe_log_streams").paginate(
            logGroupName=LOG_GROUP, logStreamNamePrefix=f"{self.job.name}/"
        )
        try:
            return sorted(one["logStreamName"] for page in pages for one in page["logStreams"])
        except Exception as error:
            if aws.code_of(error) == "ResourceNotFoundException":  # the group is made with the account's first job
                return []
            raise


def watch(job: Job, *, poll_s: float = POLL_S, settle_s: float = SETTLE_S) -> Iterator[Event]:
    """Everything that has happened and happens to a job, until it is over and its log has been read to the end.

    Raises:
        InputError: the job is gone, or may not be seen.
    """
    streams = _Streams(job, aws.client("logs", job.region))
    told = 0
    failures = 0
    quiet_since: float | None = None
    first = True
    while True:
        description = job.describe()
        transitions = description.get("SecondaryStatusTransitions", [])
        for change in transitions[told:]:
            yield Status(change["Status"], change.get("StatusMessage", ""))
        told = max(told, len(transitions))
        lines: list[Line] = []
        try:
            lines = streams.read()
            failures = 0
        except Exception as error:
            failures += 1
            if failures >= _ATTEMPTS:
                with aws.explained(f"Reading the log of {job.name}"):
                    raise error
        for line in lines:
            yield line
            figures = figures_of(line.text)
            if figures is not None:
                yield figures
        if description["TrainingJobStatus"] in DONE:
            if first:  # it was over before: so long its lines have been there
                quiet_since = time.monotonic() - _over_for_s(description)
            elif quiet_since is None or lines:
                quiet_since = time.monotonic()
            if time.monotonic() - quiet_since >= settle_s and not failures:
                yield _end(description)
                return
            time.sleep(min(poll_s, settle_s / 3))
        else:
            time.sleep(poll_s)
        first = False


def _over_for_s(description: Mapping[str, Any]) -> float:
    """How long a job has been over, by the service's own clock; 0 where it doesn't say."""
    answered = description.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    changed = description.get("LastModifiedTime")
    if answered is None or changed is None:
        return 0.0
    try:
        return max(0.0, (parsedate_to_datetime(answered) - changed).total_seconds())
    except (TypeError, ValueError):
        return 0.0


def _end(description: dict[str, Any]) -> End:
    return End(
        description["TrainingJobStatus"],
        description.get("FailureReason", ""),
        description.get("TrainingTimeInSeconds"),
        description.get("BillableTimeInSeconds"),
        bool(description.get("EnableManagedSpotTraining")),
    )


def figures_of(text: str) -> Figures | None:
    """What a step's line says; None for another line."""
    found = STEP_LINE.search(text)
    if found is None:
        return None
    return Figures(
        int(found["step"]),
        int(found["steps"]),
        float(found["reward"]),
        float(found["length"]) if found["length"] else None,
        float(found["clipped"]) if found["clipped"] else None,
        found["left"],
    )


def end_lines(job: Job, end: End) -> list[str]:
    """What a person is told at the end, and what can be done next."""
    took = f" after {duration(end.seconds)}" if end.seconds is not None else ""
    lines = [f"{job.name}: {end.status}{took}"]
    if end.seconds and end.billed is not None:
        saved = f", {1 - end.billed / end.seconds:.0%} less than on demand" if end.spot else ""
        lines.append(f"  paid for {duration(end.billed)} of each host{saved}")
    if end.status == "Completed":
        lines.append(f"  python scripts/sagemaker.py fetch {job.name}")
        return lines
    if end.reason:
        lines += [f"  {line}" for line in end.reason.strip().splitlines()]
    lines.append(f"  log: {log_link(job)}")
    if _RECIPE_IS_WRONG.search(end.reason):
        # The same recipe would end the same way, and a mended one is another run: nothing was trained.
        lines.append(
            "  Nothing was trained: mend what the reason says in the recipe or the data, and start it anew with "
            "`submit`; `plan` finds most of this beforehand"
        )
    else:
        lines.append(
            f"  python scripts/sagemaker.py resume {job.name}     # goes on from its newest checkpoint, if it has one"
        )
    return lines


def log_link(job: Job) -> str:
    group = LOG_GROUP.replace("/", "$252F")
    return (
        f"https://{job.region}.console.aws.amazon.com/cloudwatch/home?region={job.region}"
        f"#logsV2:log-groups/log-group/{group}$3FlogStreamNameFilter$3D{job.name}"
    )
