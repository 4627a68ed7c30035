"""A browser that tests operate: keys, sizes of the window, colour schemes, values of the page.

Commands go through two pipes, in the protocol of Chromium's developer tools.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.browser import BROWSER, QUIET

_WAIT_S = 30.0

# The browser reads from its descriptor 3 and writes to 4.
_START = """
import os, sys
for number, descriptor in enumerate(sys.argv[1:3], 3):
    os.dup2(int(descriptor), number)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Tab:
    """One tab of a browser of its own."""

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = [BROWSER, *QUIET, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(theirs_in), str(theirs_out), *command, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._number, self._session = b"", 0, ""
        self.messages: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._out)
        os.close(self._in)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result; messages of the page are kept."""
        self._number += 1
        sent: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            sent["sessionId"] = self._session
        os.write(self._out, json.dumps(sent).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                assert "error" not in found, found["error"]
                result: dict[str, Any] = found["result"]
                return result
            if found.get("method") == "Log.entryAdded":
                self.messages.append(found["params"]["entry"]["text"])
            elif found.get("method") == "Runtime.exceptionThrown":
                self.messages.append(str(found["params"]["exceptionDetails"]))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def value(self, expression: str) -> Any:
        """Value of a JavaScript expression, awaited if it is a promise."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + _WAIT_S
        while not self.value(f"Boolean({condition})"):
            assert time.monotonic() < end, f"still not: {condition}; {self.value('document.body.innerText')[:2000]}"
            time.sleep(0.02)

    def open(self, address: str, ready: str) -> None:
        """Open an address, and wait until an expression is true."""
        self.call("Page.navigate", url=address)
        self.wait(f"location.href.startsWith({json.dumps(address.partition('#')[0])}) && ({ready})")

    def keys(self, *names: str) -> None:
        """Press keys, by the names that their events have."""
        codes = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40, "Tab": 9}
        for name in names:
            text = {"Enter": "\r"}.get(name, name if len(name) == 1 else "")
            key = {"key": name, "windowsVirtualKeyCode": codes.get(name, ord(name[0].upper()))}
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **key)
            self.call("Input.dispatchKeyEvent", type="keyUp", **key)

    def show(self, width: int, height: int = 900, *, dark: bool = False, phone: bool = False) -> None:
        """Set the size of the window and the colour scheme."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self) -> bytes:
        """Return the window as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
