"""The reward server: rewards and the judge behind HTTP, for runs that compute them on another machine.

    python scripts/serve_rewards.py --config recipes/demo-programs.yaml --port 8000

docs/reward-server.md says how it is used. In a request's own order: `gate` lets it in or refuses it (key, size, number,
repeats), `app` reads it, `rewards` and `programs` have workers do what it asks, `openrlhf` speaks another trainer's
protocol, and `metrics` counts. The client's side is rlvr/elsewhere.
"""
