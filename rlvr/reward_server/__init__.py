"""Reward server: rewards and the judge behind HTTP, for runs that compute them on another machine.

    python scripts/serve_rewards.py --config recipes/demo-programs.yaml --port 8000

A request passes `http_connection` (timeouts, no chunks), `middleware` (key, size, number, repeats, disconnects),
`request_body` (JSON to the models of `schemas`), `app` (the paths) and `service` (scores, checks, judgements).
`served_rewards` and `judge_service` call worker processes. `openrlhf` adapts OpenRLHF's protocol. The client is
rlvr/scoring/backends/http. docs/reward-server.md describes its use.
"""
