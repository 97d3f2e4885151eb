#!/usr/bin/env python
"""Serves rewards and the judge of programs over HTTP, for runs whose recipe says `where: http://host:port`.

    python scripts/serve_rewards.py --config recipes/demo-programs.yaml              # the rewards of a recipe
    python scripts/serve_rewards.py --rewards code_execution,code_format --port 8001
    GRPO_REWARDS_KEY=… python scripts/serve_rewards.py --config recipes/x.yaml --host 0.0.0.0
    python scripts/serve_rewards.py --judge-only --tests tests.jsonl                 # programs, tests by their id

It serves what it was started with and nothing else: a client names rewards, it can't bring any. Beyond the machine's
own loopback it listens only with a key. SIGTERM or Ctrl-C ends it once what it is doing is done. docs/reward-server.md
says the rest. Exit codes: 0 ended as told; 2 what it was started with is wrong.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # rlvr/, wherever this is started from

from rlvr import console
from rlvr.config.recipe import RewardSpec, load_recipe
from rlvr.errors import InputError


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", type=Path, metavar="RECIPE", help="serve the rewards of this recipe")
    what.add_argument(
        "--rewards", metavar="NAMES", help="serve these, as a recipe would name them, with commas between"
    )
    what.add_argument("--judge-only", action="store_true", help="serve no reward, only /judge")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on; default: this machine alone")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000; 0: any that is free")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="its content is the key; or set GRPO_REWARDS_KEY")
    parser.add_argument("--tests", type=Path, metavar="FILE", help="JSONL, rows with id and tests, to be referred to")
    parser.add_argument("--workers", type=int, metavar="N", help="processes a group of rewards; default: 2 to 4")
    parser.add_argument("--label-column", metavar="NAME", help="the column that OpenRLHF's labels are")
    parser.add_argument(
        "--grace-s", type=float, default=120.0, help="seconds to finish in, when told to end; default: 120"
    )
    limits = parser.add_argument_group("limits of what clients may ask")
    limits.add_argument("--most-body-mb", type=int, default=64, help="of a request; default: 64")
    limits.add_argument("--most-rows", type=int, default=8192, help="of a request; default: 8192")
    limits.add_argument("--most-requests", type=int, default=128, help="at the same time; default: 128")
    limits.add_argument(
        "--most-deadline-s", type=float, default=900.0, help="seconds of work on a request; default: 900"
    )
    limits.add_argument("--most-test-time-s", type=float, default=60.0, help="of a program, for a test; default: 60")
    limits.add_argument(
        "--most-test-memory-mb", type=float, default=4096.0, help="of a program, for a test; default: 4096"
    )
    limits.add_argument(
        "--allow-weak-sandbox", action="store_true", help="run programs that can't be confined, for clients that ask"
    )
    options, overrides = parser.parse_known_args(words)
    if overrides and options.config is None:
        parser.error(f"unrecognized arguments: {' '.join(overrides)}")
    console.silence_libraries()
    try:
        specs = _rewards(options, overrides)
        for name in ("most_body_mb", "most_rows", "most_requests", "workers"):
            if getattr(options, name) is not None and getattr(options, name) < 1:
                raise InputError(f"--{name.replace('_', '-')} is {getattr(options, name)}, but should be at least 1.")
        try:
            from rlvr.reward_server import server
        except ModuleNotFoundError as error:
            raise InputError(
                f"The reward server needs the package {error.name}: pip install 'grpo-recipes[serve]'."
            ) from error
        from rlvr.reward_server.limits import ServerLimits

        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
        return server.serve(
            server.ServerConfig(
                specs,
                host=options.host,
                port=options.port,
                key=server.read_key(options.key_file),
                tests=options.tests,
                workers=options.workers,
                label_column=options.label_column,
                grace_s=options.grace_s,
                allowance=ServerLimits(
                    body_bytes=options.most_body_mb << 20,
                    held_bytes=max(256, 2 * options.most_body_mb) << 20,
                    rows=options.most_rows,
                    requests=options.most_requests,
                    deadline_s=options.most_deadline_s,
                    test_time_s=options.most_test_time_s,
                    test_memory_mb=options.most_test_memory_mb,
                    weak_sandbox=options.allow_weak_sandbox,
                ),
            )
        )
    except InputError as error:
        console.error(str(error))
        return 2


def _rewards(options: argparse.Namespace, overrides: Sequence[str]) -> list[RewardSpec]:
    """What is to be served: of a recipe all rewards but those that the training process must call itself."""
    if options.judge_only:
        return []
    if options.rewards is not None:
        names = [name.strip() for name in options.rewards.split(",") if name.strip()]
        if not names:
            raise InputError("--rewards names no reward.")
        return [RewardSpec(name) for name in names]
    specs = load_recipe(options.config, overrides).rewards
    served = [spec for spec in specs if spec.where != "trainer"]
    for spec in specs:
        if spec.where == "trainer":
            console.info(f"Not served: {spec.name}, which the recipe has called in the training process.")
    if not served:
        raise InputError(f"{options.config}: every reward says where: trainer, so there is nothing to serve.")
    return served


if __name__ == "__main__":
    sys.exit(main())
