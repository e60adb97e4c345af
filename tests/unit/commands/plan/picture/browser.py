"""A page in a real Chromium, driven over its debugging protocol: keys, evaluated expressions, what it logs, screenshots."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CODES = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Page:
    """A page that is open. logged: its errors, console messages and the addresses that it asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket, self.number = socket, 0
        self.logged: list[str] = []
        self.asked: list[str] = []
        self.loaded = False

    async def do(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, and wait for its answer."""
        self.number += 1
        await self.socket.send_json({"id": self.number, "method": method, "params": params})
        while True:
            found = await self.socket.receive_json(timeout=900)
            self.note(found)
            if found.get("id") == self.number:
                assert "error" not in found, found
                return dict(found["result"])

    def note(self, found: dict[str, Any]) -> None:
        """Remember what the page says by itself."""
        method, params = found.get("method"), found.get("params", {})
        if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.logged.append(str(params))
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    async def open(
        self, path: Path | str, width: int = 1440, height: int = 900, dark: bool = False, mobile: bool = False
    ) -> None:
        """Load a file, or an address, in a window of this size."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.do(f"{domain}.enable")
        self.logged.clear()
        self.asked.clear()
        await self.size(width, height, mobile)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.do("Emulation.setEmulatedMedia", features=[feature])
        self.loaded = False
        await self.do("Page.navigate", url=path.as_uri() if isinstance(path, Path) else path)
        while not self.loaded:
            self.note(await self.socket.receive_json(timeout=900))

    async def size(self, width: int, height: int, mobile: bool = False) -> None:
        """Make the window this large."""
        await self.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )

    async def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = await self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def drawn(self) -> None:
        """Wait until what has changed is on the screen: a click goes to what was drawn last."""
        await self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other, as a person does."""
        for key in keys:
            typed = "\r" if key == "Enter" else key
            text = {"text": typed} if len(typed) == 1 else {}
            code = CODES.get(key, ord(key[0].upper()))
            named = {"key": key, "windowsVirtualKeyCode": code}
            await self.do("Input.dispatchKeyEvent", type="keyDown", **named, **text)
            await self.do("Input.dispatchKeyEvent", type="keyUp", **named)

    async def screenshot(self, path: Path) -> None:
        """Write what is in the window as PNG."""
        found = await self.do("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))


@contextlib.asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Page]:
    """A Chromium with one empty page; profile: a folder for what it writes."""
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
        "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        said, end = profile / "DevToolsActivePort", time.monotonic() + 900
        while not (said.exists() and said.read_text().count("\n")):
            assert process.poll() is None and time.monotonic() < end, "Chromium did not start"
            await asyncio.sleep(0.1)
        port = said.read_text().split("\n")[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                target = next(each for each in await answer.json() if each["type"] == "page")
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Page(socket)
    finally:
        process.terminate()
        process.wait()
