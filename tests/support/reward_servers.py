"""Real reward servers for the tests: scripts/serve_rewards.py in a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
# Adds a line to the file that the first completion names, so that calls can be counted, and waits for another file.
WAITING_REWARD = """
import os, time

def waits(completions, *, until: str = "/", **kwargs):
    with open(completions[0], "a") as file:
        file.write("called\\n")
    while not os.path.exists(until):
        time.sleep(0.02)
    return [1.0] * len(completions)
"""
PATIENCE_S = 300.0  # timeout of a start; the machine may be very busy


def accept(listening: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """Serve each connection to a socket in a thread of its own, until the socket is closed."""

    def work() -> None:
        while True:
            try:
                line = listening.accept()[0]
            except OSError:
                return
            threading.Thread(target=serve, args=(line,), daemon=True).start()

    threading.Thread(target=work, daemon=True).start()


class RewardServer:
    """A server in a process of its own.

    Args:
        words: of its command line.
        makes_key: let the server make a key. By default it has none, except that of `env`.
        within: a command that runs the server's command.

    Attributes:
        port, url: where it listens.
    """

    def __init__(
        self,
        *words: str | Path,
        port: int = 0,
        env: Mapping[str, str] | None = None,
        ready: bool = True,
        within: Sequence[str] = (),
        makes_key: bool = False,
    ) -> None:
        keyless = not makes_key and not (env or {}).get("GRPO_REWARDS_KEY")
        self.words = [*map(str, words), *(["--no_key"] if keyless else [])]
        self.within = within
        self.env = {**os.environ, **(env or {})}
        self.output = tempfile.TemporaryFile("w+")  # noqa: SIM115 (it lives as long as the server)
        self.port = port
        self.start(ready=ready)

    def start(self, *, ready: bool = True) -> None:
        """Start the server, on its previous port if it had one."""
        begun = self.output.tell()
        self.process = subprocess.Popen(
            [*self.within, sys.executable, "scripts/serve_rewards.py", *self.words, "--port", str(self.port)],
            cwd=REPOSITORY,
            env=self.env,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            self._wait(begun, ready)
        except BaseException:
            self.kill()
            raise

    def _wait(self, begun: int, ready: bool) -> None:
        """Wait until the server listens, and with `ready` until it accepts requests."""
        end = time.monotonic() + PATIENCE_S
        while True:
            said = self.said(begun)
            if "Serving on http://" in said:
                break
            assert self.process.poll() is None and time.monotonic() < end, said
            time.sleep(0.02)
        self.port = int(said.split("Serving on ")[1].split()[0].rpartition(":")[2])
        self.url = f"http://127.0.0.1:{self.port}"
        while ready and self.get("/readyz")[0] != 200:
            assert self.process.poll() is None and time.monotonic() < end, self.said(begun)
            time.sleep(0.02)

    def said(self, place: int = 0) -> str:
        """The output, from a position on."""
        return os.pread(self.output.fileno(), 1 << 20, place).decode()

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        return self.ask("GET", path, None, **headers)

    def post(self, path: str, content: Any, **headers: str) -> tuple[int, Any]:
        """Send bytes as they are, anything else as JSON; return the status and the content of the answer."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.ask("POST", path, body, **{"Content-Type": "application/json", **headers})

    def ask(self, method: str, path: str, body: bytes | None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            text = answer.read().decode()
            self.headers = {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()
        return answer.status, json.loads(text) if "json" in self.headers.get("content-type", "") else text

    def figure(self, name: str) -> float:
        """A value of /metrics, by its name and labels; 0 if it is missing."""
        return self.figure_with(None, name)

    def figure_with(self, key: str | None, name: str) -> float:
        page = self.get("/metrics", **({"Authorization": f"Bearer {key}"} if key is not None else {}))[1]
        return next((float(line.split()[-1]) for line in page.splitlines() if line.rpartition(" ")[0] == name), 0.0)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """SIGTERM; return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        finally:
            self.kill()

    def __enter__(self) -> RewardServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()
        self.output.close()


def waiting_recipe(folder: Path) -> Path:
    """Write WAITING_REWARD, and a recipe with it."""
    (folder / "rewards_of_a_test.py").write_text(WAITING_REWARD, encoding="utf-8")
    return recipe_of(folder / "recipe.yaml", [f"{folder}/rewards_of_a_test.py:waits"])


def waiting_call(folder: Path, file: Path, until: Path = Path("/")) -> dict[str, Any]:
    """A request for one row, whose reward returns as soon as `until` is there."""
    reward = {"name": f"{folder}/rewards_of_a_test.py:waits", "options": {"until": str(until)}}
    return {"rewards": [reward], "prompts": ["p"], "completions": [str(file)]}


def recipe_of(path: Path, rewards: list[Any]) -> Path:
    """Write a recipe with these rewards."""
    lines = json.dumps(rewards)
    path.write_text(
        f"model_name_or_path: models/tiny-arithmetic\ntask: {{name: arithmetic}}\nrewards: {lines}\n", encoding="utf-8"
    )
    return path
