"""The server's paths, what they take, and what they answer. OpenAPI's description of it stands at /docs."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rlvr.errors import InputError
from rlvr.reward_server.judge_endpoint import Programs
from rlvr.reward_server.limits import Refused, ServerLimits
from rlvr.reward_server.metrics import Metrics
from rlvr.reward_server.middleware import RequestGuard
from rlvr.reward_server.openrlhf import Labels, completion_of, refusal
from rlvr.reward_server.reward_endpoint import Asked, Rows, ServedRewards
from rlvr.reward_server.schemas import (
    CheckAsked,
    JudgeAsked,
    RewardAsked,
    RewardAskedByOpenRLHF,
    ScoreAsked,
    describe,
    read,
    takes,
)
from rlvr.reward_server.stored_tests import References
from rlvr.scoring.call import WIRE_STATUS
from rlvr.scoring.failures import reply_of
from rlvr.scoring.reward import apply_gates_and_mask, total
from rlvr.workers.pool import TaskResult

_Result = TypeVar("_Result")
_Request = TypeVar("_Request", bound=BaseModel)


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
        self.allowance: ServerLimits = rewards.allowance
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
            results.append({"reward": one.name, "values": values, "outcomes": [_on_wire(outcome) for outcome in found]})
        return {"results": results, "seconds": time.perf_counter() - begun}

    def _called(self, asked: Sequence[Asked], rows: Rows, request: ScoreAsked) -> list[list[TaskResult]]:
        most = self.allowance.deadline_s
        return self.rewards.score(
            asked,
            rows,
            one_by_one=request.one_by_one,
            deadline_s=min(request.deadline_s or most, most),
            budget_s=min(request.budget_s or most, most),
        )

    def _count(self, name: str, outcomes: Sequence[TaskResult], values: Sequence[float | None]) -> None:
        add = self.metrics.add
        add("grpo_rows_total", name, by=len(values))
        add("grpo_rows_unscored_total", name, by=sum(value is None for value in values))
        add("grpo_reward_sum_total", name, by=sum(value for value in values if value is not None and value > 0))
        each = len(values) / max(len(outcomes), 1)
        for outcome in outcomes:
            reply = reply_of(outcome)
            add("grpo_calls_total", name, (reply.kind or "done") if reply is not None else WIRE_STATUS[outcome.status])
            for what, figure, value in reply.notes if reply is not None else ():
                if what == "metric" and isinstance(value, int | float) and math.isfinite(value) and value >= 0:
                    add("grpo_figure_sum_total", figure, by=value * each)
                    add("grpo_figure_rows_total", figure, by=each)

    def check(self, request: CheckAsked) -> dict[str, Any]:
        rows = {len(values) for values in request.columns.values()}
        if len(rows) > 1:
            raise Refused(422, f"The columns have {' and '.join(map(str, sorted(rows)))} entries. Give one a row each.")
        asked = Asked(request.name, request.options)
        columns = {name: self.references.resolve(name, values) for name, values in request.columns.items()}
        self.rewards.check([asked], columns)
        return {"faults": self.rewards.check_rows(asked, columns, self.allowance.deadline_s)}

    def judge(self, request: JudgeAsked) -> dict[str, Any]:
        deadline_s = min(request.deadline_s or self.allowance.deadline_s, self.allowance.deadline_s)
        judgements = self.programs.judge(
            request.submissions, self.references, reasons=request.reasons, deadline_s=deadline_s
        )
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
        settled = apply_gates_and_mask(list(zip(*by_reward, strict=True)), rewards)
        sums = [total(row, rewards) for row in settled]
        failed = [row for row, value in enumerate(sums) if value is None]
        if failed:
            raise refusal(
                failed,
                scored["results"],
                lambda name: self.check(CheckAsked(name=name, columns=columns))["faults"],
            )
        extra = {
            reward.label: [row[place] for row in settled] for place, reward in enumerate(rewards)
        }  # fmt: skip
        return {"rewards": sums, "scores": sums, "extra_logs": extra}


def make_app(service: Service, gate_of: Callable[[], RequestGuard], title: str) -> FastAPI:
    """The application without its gate.

    Args:
        gate_of: the gate before it, which knows whether it is ready.
    """
    app = FastAPI(title=title, description=__doc__ or "", version="1", redoc_url=None)
    refusals: dict[int | str, dict[str, Any]] = {
        status: {"description": text}
        for status, text in (
            (400, "No JSON."), (401, "The key is missing or wrong."), (404, "This server has no such reward or id."),
            (408, "The request took too long to arrive."), (413, "Too large."), (415, "Not said to be JSON."),
            (422, "Something in it is wrong."),
            (429, "Too busy: see Retry-After."), (503, "Starting, ending, or unable to: see Retry-After."),
        )
    }  # fmt: skip

    async def answered(request: Request, model: type[_Request], work: Callable[[_Request], Any]) -> Response:
        """Reads the body and works in a thread: megabytes of it, or of the answer, keep nobody else waiting."""
        body = await request.body()
        return await service.in_thread(lambda: _json(work(read(model, request.headers, body, service.allowance))))

    @app.post("/score", responses=refusals, openapi_extra=takes(ScoreAsked))
    async def score(request: Request) -> Response:
        """Scores completions with rewards of this server."""
        return await answered(request, ScoreAsked, service.score)

    @app.post("/check", responses=refusals, openapi_extra=takes(CheckAsked))
    async def check(request: Request) -> Response:
        """What a reward's own file has against rows of the data, before training: a sentence or null each."""
        return await answered(request, CheckAsked, service.check)

    @app.post("/judge", responses=refusals, openapi_extra=takes(JudgeAsked))
    async def judge(request: Request) -> Response:
        """Runs programs against tests, confined, and says how they did."""
        return await answered(request, JudgeAsked, service.judge)

    @app.post("/get_reward", responses=refusals, openapi_extra=takes(RewardAskedByOpenRLHF))
    async def get_reward(request: Request) -> Response:
        """OpenRLHF's protocol for a remote reward model: the weighted sum of this server's rewards."""
        return await answered(request, RewardAskedByOpenRLHF, service.get_reward)

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

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _json({"detail": str(error.detail)}, error.status_code, dict(error.headers or {}))

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            describe(FastAPI.openapi(app))
        return FastAPI.openapi(app)  # which keeps it

    app.openapi = described  # type: ignore[method-assign]
    return app


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    # Not FastAPI's own: a figure that a function logs may be NaN, and text may hold lone surrogates.
    return Response(json.dumps(content), status, dict(headers or {}), "application/json")


def _asked(reward: RewardAsked | str) -> Asked:
    if isinstance(reward, str):
        return Asked(reward)
    return Asked(reward.name, reward.options, reward.reads, tuple(reward.seed or ()))


def _on_wire(outcome: TaskResult) -> dict[str, Any]:
    return {**vars(outcome), "status": WIRE_STATUS[outcome.status]}  # asdict would copy every value


def _values(outcomes: Sequence[TaskResult], rows: int) -> list[float | None]:
    """The values of all rows; None where there is none, whatever the reason."""
    if len(outcomes) == rows and rows != 1:
        return [value for outcome in outcomes for value in _values([outcome], 1)]
    reply = reply_of(outcomes[0])
    if reply is None or reply.kind:
        return [None] * rows
    return [None if isinstance(value, str) else value for value in reply.values]
