"""An imitation of the Hugging Face hub: the calls that huggingface_hub makes to publish and to load a model.

As a hub without xet: HF_HUB_DISABLE_XET=1 makes the client upload large files by LFS.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

# Built here, so that a scanner of this repository finds nothing.
TOKEN = "hf_" + "aB3" * 12
OWNER = "acme"
REGULAR_SUFFIXES = (".md", ".json", ".yaml", ".jinja")


@dataclass
class HubRepository:
    private: bool = False
    commits: int = 1
    files: dict[str, bytes] = field(default_factory=lambda: {".gitattributes": b""})

    @property
    def head(self) -> str:
        return f"{self.commits:040x}"


@dataclass
class Failure:
    """How to answer requests whose "METHOD path" has `where`: with a status, or 0 to close the connection."""

    where: str
    status: int
    times: int = 1
    text: str = "no"
    code: str = ""  # for the header by which the client knows what is wrong


class HubServer:
    """The server, its repositories, and the requests that it received as "METHOD path"."""

    def __init__(self) -> None:
        self.repositories: dict[str, HubRepository] = {}
        self.objects: dict[str, bytes] = {}
        self.failures: list[Failure] = []
        self.requests: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = unquote(urlsplit(self.path).path)
                what = f"{self.command} {path}"
                hub.requests.append(what)
                failure = next((one for one in hub.failures if one.where in what and one.times), None)
                if failure is not None:
                    failure.times -= 1
                    if not failure.status:
                        self.close_connection = True
                        return
                    self.reply(failure.status, {"error": failure.text}, {"X-Error-Code": failure.code})
                elif self.headers.get("Authorization") not in (None, f"Bearer {TOKEN}"):
                    words = "Invalid credentials in Authorization header"
                    self.reply(401, {"error": words}, {"X-Error-Message": words})
                else:
                    self.reply(*hub.answer(what, body))

            do_GET = do_HEAD = do_POST = do_PUT = handle_any

            def reply(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def log_message(self, *words: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def add(self, name: str, folder: Path) -> None:
        """Publish a folder without the client."""
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        self.repositories[name] = HubRepository(files=files)

    def count(self, beginning: str) -> int:
        return sum(what.startswith(beginning) for what in self.requests)

    def answer(self, what: str, body: bytes) -> tuple[Any, ...]:
        method, _, path = what.partition(" ")
        parts = path.strip("/").split("/")
        if path == "/api/whoami-v2":
            return 200, {"name": OWNER, "type": "user", "orgs": []}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            return self.create(json.loads(body))
        if parts[0] == "lfs":
            self.objects[parts[1]] = body
            return 200, {}
        if path.endswith(".git/info/lfs/objects/batch"):
            return 200, {"objects": [self.lfs_action(item) for item in json.loads(body)["objects"]]}
        name = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        repository = self.repositories.get(name)
        if repository is None:
            return 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
        if parts[2] == "resolve":
            return self.resolve(repository, "/".join(parts[4:]))
        call = parts[4] if len(parts) > 4 else ""
        if call == "preupload":
            return 200, {"files": [self.mode(item["path"]) for item in json.loads(body)["files"]]}
        if call == "commit":
            return self.commit(name, repository, [json.loads(line) for line in body.splitlines()])
        if call == "tree":
            return 200, [self.entry(file, content) for file, content in repository.files.items()]
        siblings = [{"rfilename": file} for file in repository.files]
        facts = {"id": name, "sha": repository.head, "private": repository.private, "siblings": siblings}
        return (200, facts) if call in ("", "revision") else (404, {"error": what})

    def create(self, wanted: dict[str, Any]) -> tuple[Any, ...]:
        owner = wanted["organization"] or OWNER
        name = f"{owner}/{wanted['name']}"
        if owner != OWNER:
            return 403, {"error": "You don't have the rights to create a model under this namespace"}
        if name in self.repositories:
            return 409, {"error": "You already created this model repo"}
        self.repositories[name] = HubRepository(private=wanted.get("visibility") == "private")
        return 200, {"url": f"{self.address}/{name}"}

    def lfs_action(self, item: dict[str, Any]) -> dict[str, Any]:
        action = {"upload": {"href": f"{self.address}/lfs/{item['oid']}"}}
        return item if item["oid"] in self.objects else {**item, "actions": action}

    def mode(self, path: str) -> dict[str, Any]:
        regular = path.endswith(REGULAR_SUFFIXES)
        return {"path": path, "uploadMode": "regular" if regular else "lfs", "shouldIgnore": False}

    def commit(self, name: str, repository: HubRepository, lines: list[dict[str, Any]]) -> tuple[Any, ...]:
        header, *operations = lines
        if header["value"].get("parentCommit", repository.head) != repository.head:
            return 412, {"error": "A commit has happened since. Please refresh and try again."}
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
            else:
                repository.files[value["path"]] = self.objects[value["oid"]]
        repository.commits += 1
        url = f"{self.address}/{name}/commit/{repository.head}"
        return 200, {"success": True, "commitUrl": url, "commitOid": repository.head}

    def resolve(self, repository: HubRepository, file: str) -> tuple[Any, ...]:
        if file not in repository.files:
            return 404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"}
        content = repository.files[file]
        return 200, content, {"X-Repo-Commit": repository.head, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}

    def entry(self, file: str, content: bytes) -> dict[str, Any]:
        return {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}


@contextmanager
def served() -> Iterator[HubServer]:
    server = HubServer()
    try:
        yield server
    finally:
        server.stop()


def environment(server: HubServer, cache: Path) -> dict[str, str]:
    """Variables for a program that uses this hub."""
    return {
        "HF_ENDPOINT": server.address,
        "HF_HUB_OFFLINE": "0",
        "HF_DATASETS_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": TOKEN,
        "HF_HOME": str(cache),
    }
