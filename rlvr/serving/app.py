"""The server's paths, what they take, and what they answer. OpenAPI's description of it stands at /docs."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rlvr.errors import InputError
from rlvr.faults import reply_of
from rlvr.rewarding import settle, total
from rlvr.serving.allowance import Allowance, Refused
from rlvr.serving.gate import Gate
from rlvr.serving.metrics import Metrics
from rlvr.serving.openrlhf import Labels, completion_of
from rlvr.serving.programs import Programs, Submitted
from rlvr.serving.references import References
from rlvr.serving.rewards import Asked, Rows, ServedRewards
from rlvr.workers import Outcome

_Result = TypeVar("_Result")
Seconds = Annotated[float, Field(gt=0, le=86400)]
MOST_REWARDS = 64  # of one request


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RewardAsked(_Strict):
    """One reward of the request."""

    name: str = Field(max_length=500, description="As the server's recipe writes it.")
    options: dict[str, Any] | None = Field(
        default=None, description="Options of the function; null: those that the server was started with."
    )
    reads: list[str] | None = Field(default=None, description="The columns it is to see; null: all of them.")
    seed: list[int | str] | None = Field(
        default=None, max_length=16, description="What random numbers that it draws depend on."
    )


class ScoreAsked(_Strict):
    """Completions, and the rewards that are to score them."""

    rewards: list[RewardAsked | str] = Field(min_length=1, max_length=MOST_REWARDS)
    prompts: list[Any] = Field(description="One a row: text, or a list of chat messages.")
    completions: list[Any] = Field(description="One a row: text, or a list of chat messages.")
    columns: dict[str, list[Any]] = Field(
        default_factory=dict,
        description='Of the data, by name, one entry a row. An entry {"id": "…"} stands for what the file that the '
        "server was started with (--tests) holds in that column under that id.",
    )
    trainer_state: dict[str, int | float | str | bool | None] = Field(default_factory=dict)
    one_by_one: bool = Field(default=False, description="Whether each row is a call of its own.")
    rows: list[int] | None = Field(default=None, description="The rows' numbers in the batch, for `one_by_one`.")
    deadline_s: Seconds | None = Field(default=None, description="Seconds that one call may take.")
    budget_s: Seconds | None = Field(default=None, description="Seconds that all of it may take, waiting included.")


class CheckAsked(_Strict):
    """Rows of the data that a reward is to look through before training."""

    name: str = Field(max_length=500, description="As the server's recipe writes it.")
    options: dict[str, Any] | None = None
    columns: dict[str, list[Any]] = Field(default_factory=dict)


class JudgeAsked(_Strict):
    """Programs, and the tests that they are judged by."""

    submissions: list[Submitted] = Field(min_length=1)
    deadline_s: Seconds | None = Field(default=None, description="Seconds that all of it may take, waiting included.")
    reasons: bool = Field(
        default=False,
        description="Whether to say why tests failed. It quotes expected outputs: not for the eyes of a policy.",
    )


class RewardAskedByOpenRLHF(BaseModel):
    """What OpenRLHF sends to a remote reward model; keys of other versions are passed over."""

    query: list[str] = Field(description="Prompt and completion together, as the tokenizer decodes them.")
    prompts: list[str]
    labels: list[Any] = Field(
        default_factory=list,
        description="One a row: the value of the one column that the rewards read, or an object of several (also as "
        "JSON).",
    )


class Service:
    """What the paths have in common: the rewards, the judge, and threads in which their work is waited for."""

    def __init__(
        self, rewards: ServedRewards, programs: Programs, references: References, labels: Labels, metrics: Metrics
    ) -> None:
        self.rewards = rewards
        self.programs = programs
        self.references = references
        self.labels = labels
        self.metrics = metrics
        self.allowance: Allowance = rewards.allowance
        self._threads = ThreadPoolExecutor(max_workers=self.allowance.requests, thread_name_prefix="request")
        metrics.watch("grpo_workers", lambda: rewards.workers)
        pools = [*rewards.pools, programs.pool]
        metrics.watch("grpo_workers_busy", lambda: sum(pool.load()[0] for pool in pools))
        metrics.watch("grpo_calls_waiting", lambda: sum(pool.load()[1] for pool in pools))

    async def in_thread(self, work: Callable[..., _Result], *arguments: Any) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    # ------------------------------------------------------------------------------------------------------------------

    def score(self, request: ScoreAsked) -> dict[str, Any]:
        begun = time.perf_counter()
        rows = len(request.completions)
        if rows > self.allowance.rows:
            raise Refused(413, f"{rows:,} rows, but a request may have {self.allowance.rows:,}. Send fewer at a time.")
        for name, values in (("prompts", request.prompts), *request.columns.items()):
            if len(values) != rows:
                raise Refused(422, f"{rows} completions, but {len(values)} entries in {name}. Give one each.")
        numbers = list(range(rows)) if request.rows is None else request.rows
        if len(numbers) != rows:
            raise Refused(422, f"{rows} completions, but {len(numbers)} numbers in rows. Give one each.")
        asked = [_asked(reward) for reward in request.rewards]
        columns = {name: self.references.resolve(name, values) for name, values in request.columns.items()}
        self.rewards.check(asked, columns)
        if rows == 0:
            return {"results": [{"reward": one.name, "values": [], "outcomes": []} for one in asked], "seconds": 0.0}
        state = {"global_step": 0, "max_steps": 1, "epoch": 0.0, **request.trainer_state}
        outcomes = self._called(asked, Rows(request.prompts, request.completions, columns, numbers, state), request)
        results = []
        for one, found in zip(asked, outcomes, strict=True):
            values = _values(found, rows)
            self._count(one.name, found, values)
            # By vars, and not asdict, which copies every value.
            results.append({"reward": one.name, "values": values, "outcomes": [vars(outcome) for outcome in found]})
        return {"results": results, "seconds": time.perf_counter() - begun}

    def _called(self, asked: Sequence[Asked], rows: Rows, request: ScoreAsked) -> list[list[Outcome]]:
        most = self.allowance.deadline_s
        return self.rewards.score(
            asked,
            rows,
            one_by_one=request.one_by_one,
            deadline_s=min(request.deadline_s or most, most),
            budget_s=min(request.budget_s or most, most),
        )

    def _count(self, name: str, outcomes: Sequence[Outcome], values: Sequence[float | None]) -> None:
        add = self.metrics.add
        add("grpo_rows_total", name, by=len(values))
        add("grpo_rows_unscored_total", name, by=sum(value is None for value in values))
        add("grpo_reward_sum_total", name, by=sum(value for value in values if value is not None and value > 0))
        each = len(values) / max(len(outcomes), 1)
        for outcome in outcomes:
            reply = reply_of(outcome)
            add("grpo_calls_total", name, (reply.kind or "done") if reply is not None else outcome.status)
            for what, figure, value in reply.notes if reply is not None else ():
                if what == "metric" and isinstance(value, int | float) and math.isfinite(value) and value >= 0:
                    add("grpo_figure_sum_total", figure, by=value * each)
                    add("grpo_figure_rows_total", figure, by=each)

    def check(self, request: CheckAsked) -> dict[str, Any]:
        rows = {len(values) for values in request.columns.values()}
        if len(rows) > 1:
            raise Refused(422, f"The columns have {' and '.join(map(str, sorted(rows)))} entries. Give one a row each.")
        if max(rows, default=0) > self.allowance.rows:
            raise Refused(413, f"{max(rows):,} rows, but a request may have {self.allowance.rows:,}.")
        asked = Asked(request.name, request.options)
        columns = {name: self.references.resolve(name, values) for name, values in request.columns.items()}
        self.rewards.check([asked], columns)
        return {"faults": self.rewards.check_rows(asked, columns, self.allowance.deadline_s)}

    def judge(self, request: JudgeAsked) -> dict[str, Any]:
        submissions = request.submissions
        if len(submissions) > self.allowance.rows:
            raise Refused(
                413, f"{len(submissions):,} programs, but a request may have {self.allowance.rows:,}. Send fewer."
            )
        deadline_s = min(request.deadline_s or self.allowance.deadline_s, self.allowance.deadline_s)
        judgements = self.programs.judge(submissions, self.references, reasons=request.reasons, deadline_s=deadline_s)
        return {"judgements": judgements}

    def get_reward(self, request: RewardAskedByOpenRLHF) -> dict[str, Any]:
        if not self.rewards.rewards:
            raise Refused(404, "This server was started without rewards.")
        rows = len(request.query)
        if len(request.prompts) != rows:
            raise Refused(422, f"{rows} entries in query, but {len(request.prompts)} in prompts. Give one each.")
        completions = [
            completion_of(query, prompt, row)
            for row, (query, prompt) in enumerate(zip(request.query, request.prompts, strict=True))
        ]
        columns = self.labels.columns(request.labels, rows)
        rewards = self.rewards.rewards
        scored = self.score(
            ScoreAsked(
                rewards=[reward.name for reward in rewards],
                prompts=list(request.prompts),
                completions=completions,
                columns=columns,
            )
        )
        by_reward = [result["values"] for result in scored["results"]]
        settled = settle(list(zip(*by_reward, strict=True)), rewards)
        sums = [total(row, rewards) for row in settled]
        failed = [row for row, value in enumerate(sums) if value is None]
        if failed:
            # Its protocol has no word for "cannot say": a number would be learnt from.
            why = next(
                (text for result in scored["results"] for outcome in result["outcomes"] if (text := _why(outcome))), ""
            )
            raise Refused(503, f"Row {failed[0]} and {len(failed) - 1} others could not be scored. {why}".strip(), 1.0)
        extra = {
            reward.label: [row[place] for row in settled] for place, reward in enumerate(rewards)
        }  # fmt: skip
        return {"rewards": sums, "scores": sums, "extra_logs": extra}


def make_app(service: Service, gate_of: Callable[[], Gate], title: str) -> FastAPI:
    """The application without its gate.

    Args:
        gate_of: the gate before it, which knows whether it is ready.
    """
    app = FastAPI(title=title, description=__doc__ or "", version="1", redoc_url=None)
    refusals: dict[int | str, dict[str, Any]] = {
        status: {"description": text}
        for status, text in (
            (400, "No JSON."), (401, "The key is missing or wrong."), (404, "This server has no such reward or id."),
            (408, "The request took too long to arrive."), (413, "Too large."), (422, "Something in it is wrong."),
            (429, "Too busy: see Retry-After."), (503, "Starting, ending, or unable to: see Retry-After."),
        )
    }  # fmt: skip

    @app.post("/score", responses=refusals)
    async def score(request: ScoreAsked) -> Response:
        """Scores completions with rewards of this server."""
        return _json(await service.in_thread(service.score, request))

    @app.post("/check", responses=refusals)
    async def check(request: CheckAsked) -> Response:
        """What a reward's own file has against rows of the data, before training: a sentence or null each."""
        return _json(await service.in_thread(service.check, request))

    @app.post("/judge", responses=refusals)
    async def judge(request: JudgeAsked) -> Response:
        """Runs programs against tests, confined, and says how they did."""
        return _json(await service.in_thread(service.judge, request))

    @app.post("/get_reward", responses=refusals)
    async def get_reward(request: RewardAskedByOpenRLHF) -> Response:
        """OpenRLHF's protocol for a remote reward model: the weighted sum of this server's rewards."""
        return _json(await service.in_thread(service.get_reward, request))

    @app.get("/rewards")
    async def rewards() -> Response:
        """What this server serves, by which a client sees whether it has the same; and its limits."""
        allowance = service.allowance
        limits = {"rows": allowance.rows, "body_bytes": allowance.body_bytes, "deadline_s": allowance.deadline_s}
        told = {"rewards": service.rewards.described(), "limits": limits, "workers": service.rewards.workers}
        return _json({**told, "conditions": service.rewards.conditions, "sandbox": service.programs.sandbox()})

    @app.get("/metrics")
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(service.metrics.page(), media_type="text/plain; version=0.0.4")

    @app.get("/healthz")
    async def healthz() -> Response:
        """Whether the process lives."""
        return _json({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        """Whether requests are taken: 503 while the workers start, and once the server is about to end."""
        gate = gate_of()
        state = "ending" if gate.draining else "ready" if gate.ready else "starting"
        return _json({"status": state}, 200 if state == "ready" else 503)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        headers = {"retry-after": str(max(1, round(error.retry_after_s)))} if error.retry_after_s is not None else {}
        return _json({"detail": str(error)}, error.status, headers)

    @app.exception_handler(InputError)
    async def wrong(request: Request, error: Exception) -> Response:
        return _json({"detail": str(error)}, 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        # Without what was sent: that may be megabytes.
        said = [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"[:300] for fault in error.errors()]
        more = f" (and {len(said) - 5} more)" if len(said) > 5 else ""
        return _json({"detail": "; ".join(said[:5]) + more}, 422)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _json({"detail": str(error.detail)}, error.status_code, dict(error.headers or {}))

    return app


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    # Not FastAPI's own: a figure that a function logs may be NaN, and text may hold lone surrogates.
    return Response(json.dumps(content), status, dict(headers or {}), "application/json")


def _asked(reward: RewardAsked | str) -> Asked:
    if isinstance(reward, str):
        return Asked(reward)
    return Asked(reward.name, reward.options, reward.reads, tuple(reward.seed or ()))


def _values(outcomes: Sequence[Outcome], rows: int) -> list[float | None]:
    """The values of all rows; None where there is none, whatever the reason."""
    if len(outcomes) == rows and rows != 1:
        return [value for outcome in outcomes for value in _values([outcome], 1)]
    reply = reply_of(outcomes[0])
    if reply is None or reply.kind:
        return [None] * rows
    return [None if isinstance(value, str) else value for value in reply.values]


def _why(outcome: Mapping[str, Any]) -> str:
    value = outcome["value"]
    return str(value["said"]) if isinstance(value, dict) and value.get("kind") else str(outcome["why"])
