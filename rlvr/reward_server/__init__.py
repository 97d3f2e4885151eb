"""Reward server: rewards and the judge behind HTTP, for runs that compute them on another machine.

    python scripts/serve_rewards.py --config recipes/demo-programs.yaml --port 8000

A request passes `server` (uvicorn), `guard` (key, number, size, time), `app` (paths and JSON) and `service` (scores,
judgements). `served_rewards` and `judge_service` call worker processes (`server_worker`).
The client is rlvr/scoring/backends/http_backend.py. docs/remote-rewards.md describes its use.
"""
