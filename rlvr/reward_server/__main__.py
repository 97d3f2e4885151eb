"""Serve rewards and the judge over HTTP, for runs whose recipe has `where: http://host:port`.

    python scripts/serve_rewards.py --config recipes/demo-programs.yaml              # the rewards of a recipe
    python scripts/serve_rewards.py --rewards code_execution,code_format --port 8001
    GRPO_REWARDS_KEY=… python scripts/serve_rewards.py --config recipes/x.yaml --host 0.0.0.0
    python scripts/serve_rewards.py --judge_only                                     # programs and their tests
    python -m rlvr.reward_server --rewards math_correctness                          # without a checkout

The server computes only the rewards that it was started with. Requests need its key: without another one it makes a key
in a file of this user, where runs on this machine find it. SIGTERM or Ctrl-C stops it after the requests in progress.
See docs/remote-rewards.md. Exit codes: 0 stopped; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from rlvr import console
from rlvr.config.recipe import load_recipe
from rlvr.config.specs import RewardSpec
from rlvr.console import positive_float, positive_int
from rlvr.errors import InputError

_LIMITS = ("max_body_mb", "max_rows", "max_requests", "max_deadline_s", "max_test_time_s", "max_test_memory_mb")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    arguments = sys.argv[1:] if arguments is None else arguments
    options, overrides = parser.parse_known_args(arguments)
    if overrides and options.config is None:
        parser.error(f"unrecognized arguments: {' '.join(overrides)}")
    console.silence_libraries()
    try:
        specs = _rewards(options, overrides)
        try:
            from rlvr.reward_server.server import serve
        except ModuleNotFoundError as error:
            message = f"The reward server needs the package {error.name}: pip install -e '.[serve]' -c constraints.txt."
            raise InputError(message, kind="package-not-installed") from error
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
        return serve(
            specs,
            {name: getattr(options, name) for name in (*_LIMITS, "allow_weak_sandbox")},
            workers=options.workers,
            host=options.host,
            port=options.port,
            key_file=options.key_file,
            no_key=options.no_key,
            shutdown_timeout_s=options.shutdown_timeout_s,
        )
    except InputError as error:
        console.error(str(error))
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=console.HelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", type=Path, metavar="RECIPE", help="serve the rewards of this recipe")
    what.add_argument("--rewards", metavar="NAMES", help="serve these rewards: names as in a recipe, comma-separated")
    what.add_argument("--judge_only", action="store_true", help="serve no reward, only /judge")
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on; default: loopback")
    add("--port", type=int, default=8000, help="default: 8000; 0: any free port")
    add("--key_file", type=Path, metavar="FILE", help="file with the key; default: GRPO_REWARDS_KEY, or a key is made")
    add("--no_key", action="store_true", help="answer without a key, on a loopback address")
    add("--workers", type=positive_int, metavar="N", help="processes for each group of rewards; default: 2 to 4")
    add("--shutdown_timeout_s", type=positive_float, default=120.0, help="for requests in progress; default: 120")
    add = parser.add_argument_group("limits of a request").add_argument
    add("--max_body_mb", type=positive_int, default=64, help="default: 64")
    add("--max_rows", type=positive_int, default=8192, help="default: 8192")
    add("--max_requests", type=positive_int, default=128, help="at the same time; default: 128")
    add("--max_deadline_s", type=positive_float, default=900.0, help="time of work on a request; default: 900")
    add("--max_test_time_s", type=positive_float, default=60.0, help="that a client may set; default: 60")
    add("--max_test_memory_mb", type=positive_float, default=4096.0, help="the same for memory; default: 4096")
    add("--allow_weak_sandbox", action="store_true", help="let clients run programs that can't be confined")
    return parser


def _rewards(options: argparse.Namespace, overrides: Sequence[str]) -> list[RewardSpec]:
    """The rewards to serve; of a recipe, all except those with `where: trainer`."""
    if options.judge_only:
        return []
    if options.rewards is not None:
        names = [name.strip() for name in options.rewards.split(",") if name.strip()]
        if not names:
            raise InputError("--rewards names no reward.", kind="no-reward", key="rewards")
        return [RewardSpec(name) for name in names]
    specs = load_recipe(options.config, overrides).rewards
    served = [spec for spec in specs if spec.where != "trainer"]
    for spec in specs:
        if spec.where == "trainer":
            console.info(f"Not served: {spec.name}, which the recipe calls in the training process (where: trainer).")
    return served


if __name__ == "__main__":
    sys.exit(main())
