"""A real browser for the tests of pages: Chromium without a window, driven over its own debugging protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = (
    "--disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --hide-scrollbars --force-color-profile=srgb"
)


class Tab:
    """One tab: `messages` is whatever it wrote to its console, which is where a forbidden request is reported, too."""

    def __init__(self, socket: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.socket, self.loop = socket, loop
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.number = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol, and its result."""
        self.number += 1
        number = self.number
        self._run(self.socket.send_json({"id": number, "method": method, "params": parameters}))
        while True:
            said = json.loads(self._run(self.socket.receive(), 60).data)
            if said.get("id") == number:
                assert "error" not in said, said
                return said["result"]
            self._note(said.get("method"), said.get("params", {}))

    def _note(self, method: str | None, said: dict[str, Any]) -> None:
        if method == "Runtime.consoleAPICalled":
            self.messages.append(" ".join(str(item.get("value")) for item in said["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(said["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.messages.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    def _run(self, what: Any, timeout: float = 60) -> Any:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(what, timeout), self.loop).result()

    def open(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Opens a page and waits until its script is done."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Page.navigate", url=page.resolve().as_uri())
        ready = "document.readyState === 'complete' && document.documentElement.dataset.ready === 'true'"
        assert self.wait_for(ready), f"the page was not ready: {self.messages}"

    def evaluate(self, expression: str) -> Any:
        """The value of JavaScript, run beside the page's own (its policy doesn't hold for the debugger)."""
        said = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def wait_for(self, expression: str, tries: int = 200) -> bool:
        wait = "new Promise((done) => setTimeout(done, 50))"
        return any(self.evaluate(expression) or self.evaluate(wait) for _ in range(tries))

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        codes = {"ArrowDown": 40, "ArrowUp": 38, "Tab": 9, "End": 35, "Home": 36, "Enter": 13}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}), **code)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(taken["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """A fresh Chromium with its profile in `folder`, and its one tab."""
    import aiohttp

    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", *QUIET.split(), f"--user-data-dir={folder / 'profile'}"]
    process = subprocess.Popen(
        [*command, "--remote-debugging-port=0", "about:blank"], stderr=subprocess.PIPE, text=True
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, loop).result(60)

    async def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession()

    try:
        assert process.stderr is not None
        place = next(match[1] for line in process.stderr if (match := re.search(r"listening on ws://([^/]+)/", line)))
        threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would stop it
        client = run(session())
        try:

            async def pages() -> list[dict[str, Any]]:
                async with client.get(f"http://{place}/json/list") as answer:
                    return await answer.json()

            address = next(page["webSocketDebuggerUrl"] for page in run(pages()) if page["type"] == "page")
            driven = Tab(run(client.ws_connect(address, max_msg_size=0)), loop)
            for domain in ("Page", "Runtime", "Log", "Network"):
                driven.call(f"{domain}.enable")
            yield driven
            driven.call("Browser.close")  # in order: its processes stop writing to the profile
        finally:
            run(client.close())
    finally:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
