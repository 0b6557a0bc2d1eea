"""A headless Chromium, driven over a pipe in its own protocol: no driver, no port, no network."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

LIMIT = 60.0
"""Seconds after which an answer that has not come is a failure."""

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)  # fmt: skip

MOVE = """
import os, sys
own = [os.dup(int(number)) for number in sys.argv[1:3]]
for number, file in zip((3, 4), [os.dup2(file, 50 + i) for i, file in enumerate(own)]):
    os.dup2(file, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chromium reads commands from file 3 and answers into file 4, wherever its pipes were."""

FAULTS = {"Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"}


class Browser:
    """One tab. `events` holds all that the browser has told of the page since `open`."""

    def __init__(self, program: str, profile: Path) -> None:
        their_in, self._out = os.pipe()
        self._in, their_out = os.pipe()
        words = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", MOVE, str(their_in), str(their_out), *words],
            pass_fds=(their_in, their_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(their_in)
        os.close(their_out)
        self._rest, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)  # which ends it
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command, and its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self._out, content) :]
        while True:
            found = self._next()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                return dict(found["result"])

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + LIMIT
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._in, 1 << 20)
            if not part:
                raise RuntimeError("the browser has gone")
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        found = dict(json.loads(text))
        if "method" in found:
            self.events.append(found)
        return found

    def open(self, path: Path) -> None:
        """Load a file and wait until it is there."""
        self.events = []
        self.send("Page.navigate", url=path.as_uri())
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self._next()
        self.run("1")  # what the page had to say has been said by now

    def run(self, script: str, **params: Any) -> Any:
        """The value of JavaScript in the page, whatever its own policy forbids."""
        found = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, **params
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"].get("description", script))
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """One key, down and up."""
        codes = {"Tab": 9, "Enter": 13}
        down = {"type": "keyDown", "text": "\r"} if key == "Enter" else {"type": "rawKeyDown"}
        for event in (down, {"type": "keyUp"}):
            self.send(
                "Input.dispatchKeyEvent", key=key, code=key, windowsVirtualKeyCode=codes[key],
                **event,
            )  # fmt: skip

    def size(self, width: int, height: int = 900, scale: float = 1.0) -> None:
        """A window of this many CSS pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=scale, mobile=False,
        )  # fmt: skip

    @property
    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        asked = (e for e in self.events if e["method"] == "Network.requestWillBeSent")
        return [e["params"]["request"]["url"] for e in asked]

    @property
    def faults(self) -> list[dict[str, Any]]:
        """What the page wrote to the console, and what it was told there."""
        return [e for e in self.events if e["method"] in FAULTS]
