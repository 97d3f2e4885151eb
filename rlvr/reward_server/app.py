"""The server's paths. OpenAPI's description of them is at /docs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rlvr.errors import InputError
from rlvr.reward_server.errors import RequestError
from rlvr.reward_server.middleware import RequestGuard
from rlvr.reward_server.request_body import Model, parse_body
from rlvr.reward_server.schemas import (
    CheckRequest,
    JudgeRequest,
    OpenRLHFRequest,
    ScoreRequest,
    add_schemas,
    openapi_body,
)
from rlvr.reward_server.service import RewardService

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": text}
    for status, text in (
        (400, "Invalid JSON."), (401, "The key is missing or wrong."), (404, "Unknown reward, id or column."),
        (408, "The request took too long to arrive."), (413, "Too large."), (415, "Not application/json."),
        (422, "Invalid content."), (429, "Too many requests: see Retry-After."),
        (503, "Starting, shutting down, or failed: see Retry-After."),
    )
}  # fmt: skip


def make_app(
    service: RewardService, guard_of: Callable[[], RequestGuard], threads: ThreadPoolExecutor, title: str
) -> FastAPI:
    """Make the application behind the guard.

    Args:
        guard_of: returns the guard, which knows whether the server is ready.
        threads: run the requests.
    """
    app = FastAPI(title=title, description=__doc__ or "", version="1", redoc_url=None)

    def post(path: str, model: type[Model], run: Callable[[Model], Any], summary: str) -> None:
        async def endpoint(request: Request) -> Response:
            body = await request.body()

            def work() -> Response:
                return _json(run(parse_body(model, request.headers, body, service.limits)))

            # In a thread: megabytes of a body, or of an answer, would block the event loop.
            return await asyncio.get_running_loop().run_in_executor(threads, work)

        name = path.strip("/")
        app.post(path, name=name, description=summary, responses=_ERRORS, openapi_extra=openapi_body(model))(endpoint)

    post("/score", ScoreRequest, service.score, "Score completions with rewards of this server.")
    post("/check", CheckRequest, service.check, "Check rows of the data before training: a message or null each.")
    post("/judge", JudgeRequest, service.judge, "Run programs against tests in the sandbox; return their verdicts.")
    post("/get_reward", OpenRLHFRequest, service.get_reward, "OpenRLHF's remote reward model: the weighted sum.")

    @app.get("/rewards")
    async def rewards() -> Response:
        """The rewards of this server and its limits. Clients compare them with their own."""
        return _json(service.describe())

    @app.get("/metrics")
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(service.metrics.page(), media_type="text/plain; version=0.0.4")

    @app.get("/healthz")
    async def healthz() -> Response:
        """Liveness."""
        return _json({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        """Readiness: 503 while the workers start, and during shutdown."""
        guard = guard_of()
        state = "ending" if guard.draining else "ready" if guard.ready else "starting"
        return _json({"status": state}, 200 if state == "ready" else 503)

    @app.exception_handler(RequestError)
    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestError)
        return _json(error.content(), error.status, error.headers())

    @app.exception_handler(InputError)
    async def refuse_input(request: Request, error: Exception) -> Response:
        assert isinstance(error, InputError)
        return _json({"detail": str(error), "kind": error.kind}, 422)

    @app.exception_handler(HTTPException)
    async def refuse_path(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _json({"detail": str(error.detail)}, error.status_code, dict(error.headers or {}))

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            add_schemas(FastAPI.openapi(app))
        return FastAPI.openapi(app)  # cached by FastAPI

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    # Not FastAPI's JSONResponse: it rejects NaN, which a function may log, and lone surrogates.
    return Response(json.dumps(content), status, dict(headers or {}), "application/json")
