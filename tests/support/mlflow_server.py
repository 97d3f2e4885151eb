"""A small MLflow tracking server that can simulate failures, for tests and benchmarks/tracking.py."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Server:
    """A minimal tracking server; its behaviour can be changed while it runs.

    Attributes:
        behaviour: "works"; "fails": answers 500; "hangs": holds every request until the behaviour changes, then
            answers; "forbids": answers 403.
        held: number of requests that it holds.
        delay_s: latency of every answer.
    """

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.behaviour = "works"
        self.held = 0
        self.delay_s = 0.0
        self.created = 0
        self.runs: dict[str, dict[str, Any]] = {}
        self.experiments: list[str] = []
        self.lock = threading.Lock()
        self.start(port)

    def start(self, port: int) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer({key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()})

            def do_POST(self) -> None:
                self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def answer(self, body: dict[str, Any]) -> None:
                time.sleep(server.delay_s)
                while server.behaviour == "hangs":
                    server.held += 1
                    while server.behaviour == "hangs":
                        time.sleep(0.01)
                content: dict[str, Any] | str
                if server.behaviour in ("fails", "forbids"):
                    status, content = (500 if server.behaviour == "fails" else 403), "<html>a proxy's page</html>"
                else:
                    with server.lock:
                        status, content = server.do(urlsplit(self.path).path.partition("/mlflow/")[2], body)
                data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *words: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        self.behaviour = "works" if self.behaviour == "hangs" else self.behaviour
        self.http.shutdown()
        self.http.server_close()

    @property
    def uri(self) -> str:
        return f"http://somebody:hush-hush@127.0.0.1:{self.port}"

    def do(self, call: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if call == "experiments/get-by-name" and body["experiment_name"] in self.experiments:
            experiment = {"experiment_id": "1", "name": body["experiment_name"], "lifecycle_stage": "active"}
            return 200, {"experiment": experiment}
        if call == "experiments/get":
            return 200, {"experiment": {"experiment_id": "1", "name": self.experiments[0], "lifecycle_stage": "active"}}
        if call == "experiments/create":
            self.experiments.append(body["name"])
            return 200, {"experiment_id": "1"}
        if call == "runs/create":
            run_id = f"run{self.created}"
            self.created += 1
            info = {"run_id": run_id, "run_name": body["run_name"], "experiment_id": "1", "status": "RUNNING"}
            info |= {"lifecycle_stage": "active", "artifact_uri": (self.folder / run_id).as_uri()}
            tags = {tag["key"]: tag["value"] for tag in body.get("tags", [])}
            self.runs[run_id] = {"info": info, "metrics": [], "params": {}, "tags": tags, "requests": 0}
            return 200, {"run": self.run_json(run_id)}
        run_id = str(body.get("run_id"))
        if run_id not in self.runs:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"No {call} {run_id}"}
        run = self.runs[run_id]
        if call == "runs/update":
            run["info"]["status"] = body["status"]
            return 200, {"run_info": run["info"]}
        if call == "runs/log-batch":
            if any(metric["key"] == "poison" for metric in body.get("metrics", [])):
                return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "poison is no name"}
            run["metrics"] += [(item["key"], item["step"], item["value"]) for item in body.get("metrics", [])]
            run["params"].update({item["key"]: item["value"] for item in body.get("params", [])})
            run["tags"].update({item["key"]: item["value"] for item in body.get("tags", [])})
            run["requests"] += 1
        return 200, {"run": self.run_json(run_id)}

    def run_json(self, run_id: str) -> dict[str, Any]:
        run = self.runs[run_id]
        pairs = {part: [{"key": key, "value": run[part][key]} for key in run[part]] for part in ("params", "tags")}
        latest = {key: {"key": key, "step": step, "value": value} for key, step, value in run["metrics"]}
        return {"info": run["info"], "data": pairs | {"metrics": list(latest.values())}}

    def metrics(self, run_id: str = "run0") -> list[tuple[str, int, float]]:
        return list(self.runs[run_id]["metrics"]) if run_id in self.runs else []
