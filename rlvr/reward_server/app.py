"""The server's paths. Their OpenAPI description is at /openapi.json."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rlvr.errors import InputError
from rlvr.reward_server.request_limits import RequestError, json_response
from rlvr.reward_server.schemas import JudgeRequest, ScoreRequest
from rlvr.reward_server.server_metrics import CONTENT_TYPE
from rlvr.reward_server.service import RewardService

MAX_ERRORS = 5  # of an invalid body, in the answer
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": HTTPStatus(status).phrase} for status in (400, 401, 404, 408, 413, 422, 429, 500, 503)
}
_KINDS = {400: "invalid-json", 404: "unknown-path", 405: "wrong-method"}


class _MetricsPage(Response):
    media_type = CONTENT_TYPE


def make_app(service: RewardService) -> FastAPI:
    """Make the application, which works behind a `RequestGuard`."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = service.limits.max_requests
        yield

    # No pages: FastAPI's load their scripts from other hosts.
    title, description = "grpo-recipes reward server", __doc__ or ""
    app = FastAPI(title=title, description=description, docs_url=None, redoc_url=None, lifespan=lifespan)
    keyed = APIRouter(dependencies=[Depends(HTTPBearer(auto_error=False))])  # describes the key; the guard checks it

    @keyed.post("/score", responses=_ERRORS)
    def score(body: ScoreRequest, request: Request) -> Response:
        """Score completions with rewards of this server."""
        return json_response(service.score(body, request.scope["cancelled"]))

    @keyed.post("/judge", responses=_ERRORS)
    def judge(body: JudgeRequest, request: Request) -> Response:
        """Run programs against tests in the sandbox; return their verdicts."""
        return json_response(service.judge(body, request.scope["cancelled"]))

    @keyed.get("/rewards")
    async def rewards() -> Response:
        """The rewards of this server and its limits. Clients compare them with their own."""
        return json_response(service.describe())

    @keyed.get("/metrics", response_class=_MetricsPage)
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return _MetricsPage(service.metrics.page())

    @app.get("/healthz")
    async def healthz() -> Response:
        """Liveness."""
        return json_response({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        """Readiness: 503 while the workers start."""
        return json_response({"status": "ready"}) if service.ready else json_response({"status": "starting"}, 503)

    app.include_router(keyed)
    for error, handler in (
        (RequestError, _refuse),
        (InputError, _refuse_input),
        (RequestValidationError, _refuse_body),
        (HTTPException, _refuse_path),
    ):
        app.add_exception_handler(error, handler)
    return app


async def _refuse(_: Request, error: Any) -> Response:
    return RequestError.response(error)


async def _refuse_input(_: Request, error: Any) -> Response:
    return RequestError(422, str(error), kind=error.kind).response()


async def _refuse_body(_: Request, error: Any) -> Response:
    """Quote the first errors of a body, without its values, which may be megabytes."""
    first, *_ = errors = error.errors()
    if first["type"] == "json_invalid":
        return RequestError(
            400, f"The body is not valid JSON: {first['ctx']['error']}.", kind="invalid-json"
        ).response()
    detail = "; ".join(f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}"[:300] for one in errors[:MAX_ERRORS])
    if first["loc"] == ("body",):
        detail = "Send a JSON object with Content-Type: application/json."
    return RequestError(422, detail, kind="invalid-body").response()


async def _refuse_path(_: Request, error: Any) -> Response:
    content = {"detail": error.detail, "kind": _KINDS.get(error.status_code, "refused")}
    return json_response(content, error.status_code, dict(error.headers or {}))
