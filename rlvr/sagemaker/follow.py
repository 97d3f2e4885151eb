"""Follow a job: status changes, log lines of all hosts, metrics of each step, and its end.

    for event in watch(job):
        …

The SDK's log reader shows nothing until every host has a log stream, and stops as soon as the job has ended, when the
last lines (often the traceback) are still on their way. `watch` shows each stream as it appears, and reads on until no
more lines arrive.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from rlvr.console import duration
from rlvr.errors import InputError
from rlvr.sagemaker import aws
from rlvr.sagemaker.job import DONE, TrainingJob, has_checkpoint

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
POLL_S = 5.0
OUTAGE_S = 1800.0  # for which AWS may be unreachable
STEP_LINE = re.compile(r"step +(?P<step>[0-9]+)/(?P<steps>[0-9]+) +reward +(?P<reward>-?[0-9.]+|nan)")
SETTLE_S = 15.0  # without a new line after the end: CloudWatch delays lines by some seconds
# The end of a failure reason if the recipe or the data is wrong (exit code 2 of run_grpo.py).
_RECIPE_ERROR = re.compile(r"exit code: 2\s*$")
# That of a run which stopped with a checkpoint, as before max_runtime_s. For the service such a job has failed.
_STOPPED_ITSELF = re.compile(r"exit code: 75\s*$")


@dataclass(frozen=True)
class StatusChange:
    """A new secondary status of the job, such as "Starting" or "Interrupted"; or "Unreachable", of AWS itself."""

    name: str
    message: str = ""


@dataclass(frozen=True)
class LogLine:
    """A line of a host's log; `time` in seconds since 1970."""

    host: str
    text: str
    time: float


@dataclass(frozen=True)
class StepMetrics:
    """The numbers of a step line; NaN if the reward was not finite."""

    step: int
    steps: int
    reward: float


@dataclass(frozen=True)
class JobEnd:
    """The end of the job.

    Attributes:
        status: "Completed", "Failed" or "Stopped".
        reason: the full failure reason.
        seconds, billed: training time and billable time; None if unknown.
        spot: whether the job ran on spot capacity.
    """

    status: str
    reason: str = ""
    seconds: int | None = None
    billed: int | None = None
    spot: bool = False


Event = StatusChange | LogLine | StepMetrics | JobEnd


@dataclass
class _LogStreams:
    """The log streams of a job, and how far each has been read."""

    job: TrainingJob
    client: Any
    tokens: dict[str, str | None] = field(default_factory=dict)

    def read(self) -> list[LogLine]:
        """The lines since the last call that succeeded, in the order of their time."""
        lines, tokens = [], dict(self.tokens)
        for stream in self._names():
            host = stream.partition("/")[2]
            name = re.match(r"algo-\d+", host)
            while True:
                token = tokens.get(stream)
                page = self.client.get_log_events(
                    logGroupName=LOG_GROUP,
                    logStreamName=stream,
                    startFromHead=True,
                    **({"nextToken": token} if token else {}),
                )
                for event in page["events"]:
                    # A carriage return redraws a progress bar: only the text after the last one is current.
                    text = event["message"].rstrip().rpartition("\r")[2]
                    lines.append(LogLine(name[0] if name else host, text, event["timestamp"] / 1000))
                tokens[stream] = page.get("nextForwardToken")
                if tokens[stream] == token or not page["events"]:
                    break
        self.tokens = tokens
        return sorted(lines, key=lambda line: line.time)

    def _names(self) -> list[str]:
        pages = self.client.get_paginator("describe_log_streams").paginate(
            logGroupName=LOG_GROUP, logStreamNamePrefix=f"{self.job.name}/"
        )
        try:
            return sorted(stream["logStreamName"] for page in pages for stream in page["logStreams"])
        except Exception as error:
            if aws.error_code(error) == "ResourceNotFoundException":  # the account's first job creates the log group
                return []
            raise


def watch(job: TrainingJob, *, poll_s: float = POLL_S, settle_s: float = SETTLE_S) -> Iterator[Event]:
    """All past and future events of a job, until it has ended and its log is complete.

    Raises:
        InputError: the job does not exist, AWS refuses to show it, or AWS is unreachable for half an hour.
    """
    streams = _LogStreams(job, aws.client("logs", job.region))
    seen_transitions = 0
    unreachable_since: float | None = None
    quiet_since: float | None = None
    is_first_poll = True
    while True:
        try:
            description = job.describe()
            with aws.translate_errors(f"Reading the log of {job.name}"):
                lines = streams.read()
        except InputError as error:
            if error.kind != "aws-unreachable":
                raise
            if unreachable_since is None:
                unreachable_since = time.monotonic()
                yield StatusChange("Unreachable", f"{error} Trying again for {OUTAGE_S / 60:.0f} minutes.")
            elif time.monotonic() - unreachable_since >= OUTAGE_S:
                raise
            time.sleep(poll_s)
            continue
        unreachable_since = None
        transitions = description.get("SecondaryStatusTransitions", [])
        for transition in transitions[seen_transitions:]:
            yield StatusChange(transition["Status"], transition.get("StatusMessage", ""))
        seen_transitions = max(seen_transitions, len(transitions))
        for line in lines:
            yield line
            metrics = parse_step_line(line.text)
            if metrics is not None:
                yield metrics
        if description["TrainingJobStatus"] in DONE:
            if is_first_poll:  # the job ended earlier, so its lines have arrived since
                quiet_since = time.monotonic() - _seconds_since_end(description)
            elif quiet_since is None or lines:
                quiet_since = time.monotonic()
            if time.monotonic() - quiet_since >= settle_s:
                yield JobEnd(
                    description["TrainingJobStatus"],
                    description.get("FailureReason", ""),
                    description.get("TrainingTimeInSeconds"),
                    description.get("BillableTimeInSeconds"),
                    bool(description.get("EnableManagedSpotTraining")),
                )
                return
            time.sleep(min(poll_s, settle_s / 3))
        else:
            time.sleep(poll_s)
        is_first_poll = False


def _seconds_since_end(description: Mapping[str, Any]) -> float:
    """Seconds since a job ended, by the service's clock."""
    answered = parsedate_to_datetime(description["ResponseMetadata"]["HTTPHeaders"]["date"])
    return max(0.0, (answered - description["LastModifiedTime"]).total_seconds())


def parse_step_line(text: str) -> StepMetrics | None:
    """The metrics of a step line; None for any other line."""
    match = STEP_LINE.search(text)
    return StepMetrics(int(match["step"]), int(match["steps"]), float(match["reward"])) if match else None


def summary_lines(job: TrainingJob, end: JobEnd) -> list[str]:
    """How the job ended, what it cost, and the next command."""
    took = f" after {duration(end.seconds)}" if end.seconds is not None else ""
    lines = [f"{job.name}: {end.status}{took}"]
    if end.seconds and end.billed is not None:
        saving = f", {1 - end.billed / end.seconds:.0%} less than on demand" if end.spot else ""
        lines.append(f"  billed: {duration(end.billed)} of each host{saving}")
    if end.status == "Completed":
        lines.append(f"  python scripts/sagemaker.py fetch {job.name}")
        return lines
    if end.reason:
        lines += [f"  {line}" for line in end.reason.strip().splitlines()]
    lines.append(f"  log: {log_url(job)}")
    if _RECIPE_ERROR.search(end.reason) and not has_checkpoint(job):
        # Resuming would fail the same way, and a corrected recipe is a new run.
        lines.append(
            "  Nothing was trained. Correct the recipe or the data, check it with `plan`, and start a new job with "
            "`submit`."
        )
    else:
        lines.append(f"  python scripts/sagemaker.py resume {job.name}     # continues from its newest checkpoint")
    return lines


def exit_code(end: JobEnd) -> int:
    """0 completed; 75 stopped, by a request or by itself, and can be resumed; 1 failed."""
    if end.status == "Stopped" or _STOPPED_ITSELF.search(end.reason):
        return 75
    return 0 if end.status == "Completed" else 1


def log_url(job: TrainingJob) -> str:
    group = LOG_GROUP.replace("/", "$252F")
    return (
        f"https://{job.region}.console.aws.amazon.com/cloudwatch/home?region={job.region}"
        f"#logsV2:log-groups/log-group/{group}$3FlogStreamNameFilter$3D{job.name}"
    )
