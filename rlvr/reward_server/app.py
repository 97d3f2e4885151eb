"""The server's paths. Their OpenAPI description is at /openapi.json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rlvr.reward_server.errors import json_response
from rlvr.reward_server.metrics import CONTENT_TYPE
from rlvr.reward_server.middleware import OPEN_PATHS, RequestGuard
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
from rlvr.workers.pool import Caller

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": text}
    for status, text in (
        (400, "Invalid JSON."),
        (401, "The key is missing or wrong."),
        (404, "Unknown reward, id or column."),
        (408, "The request took too long to arrive."),
        (411, "No Content-Length."),
        (413, "Too large."),
        (415, "Not application/json."),
        (422, "Invalid content."),
        (429, "Too many requests: see Retry-After."),
        (503, "Starting, shutting down, or failed: see Retry-After."),
    )
}


class _MetricsPage(Response):
    media_type = CONTENT_TYPE


_CLOSE = {"connection": "close"}  # open to all: a client without a key keeps no connection


def make_app(service: RewardService, guard: RequestGuard) -> FastAPI:
    """Make the application behind the guard."""
    # No pages: FastAPI's load their scripts from other hosts.
    app = FastAPI(
        title="grpo-recipes reward server", description=__doc__ or "", version="1", docs_url=None, redoc_url=None
    )

    def post(path: str, model: type[Model], run: Callable[[Model, Caller], Any], summary: str) -> None:
        async def endpoint(request: Request) -> Response:
            def work(body: bytearray, caller: Caller) -> Response:
                return json_response(run(parse_body(model, request.headers, body, service.limits), caller))

            return await guard.answer(request, work)

        name = path.strip("/")
        app.post(path, name=name, description=summary, responses=_ERRORS, openapi_extra=openapi_body(model))(endpoint)

    post("/score", ScoreRequest, service.score, "Score completions with rewards of this server.")
    post("/check", CheckRequest, service.check, "Check rows of the data before training: a message or null each.")
    post("/judge", JudgeRequest, service.judge, "Run programs against tests in the sandbox; return their verdicts.")
    post("/get_reward", OpenRLHFRequest, service.get_reward, "OpenRLHF's remote reward model: the weighted sum.")

    @app.get("/rewards")
    async def rewards() -> Response:
        """The rewards of this server and its limits. Clients compare them with their own."""
        return json_response(service.describe())

    @app.get("/metrics", response_class=_MetricsPage)
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return _MetricsPage(service.metrics.page())

    @app.get("/healthz")
    async def healthz() -> Response:
        """Liveness."""
        return json_response({"status": "ok"}, headers=_CLOSE)

    @app.get("/readyz")
    async def readyz() -> Response:
        """Readiness: 503 while the workers start, and during shutdown."""
        state = "ending" if guard.draining else "ready" if guard.ready else "starting"
        return json_response({"status": state}, 200 if state == "ready" else 503, _CLOSE)

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> Response:
        """Answer requests of unknown paths and methods."""
        kind = "unknown-path" if error.status_code == 404 else "wrong-method"
        return json_response({"detail": error.detail, "kind": kind}, error.status_code, dict(error.headers or {}))

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = FastAPI.openapi(app)  # FastAPI caches it
            add_schemas(schema)
            schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"key": []}]
            for path in OPEN_PATHS:
                schema["paths"][path]["get"]["security"] = []
        return FastAPI.openapi(app)

    app.openapi = openapi  # type: ignore[method-assign]
    return app
