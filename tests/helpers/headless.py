"""Drives a headless Chromium over a pair of pipes with the DevTools protocol; needs only the browser."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
#: The browser reads from descriptor 3 and writes to 4.
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 20) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_PATIENCE = 60
#: Contrast between each piece of text and its background, by WCAG's formula; the lowest values.
CONTRASTS = """
(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, style, svg")) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    found.push([(Math.max(a, b) + .05) / (Math.min(a, b) + .05), element.className || element.tagName]);
  }
  return found.sort((x, y) => x[0] - y[0])[0];
})()
"""

#: Texts that are cut off at an edge without an ellipsis or a table's shadow.
CUT_OFF = """
(() => {
  const hints = (style) => style.textOverflow === "ellipsis" || style.webkitLineClamp !== "none"
    || (style.overflowX === "auto" && style.backgroundAttachment.includes("local"));
  const cut = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, style, .sr, .skip, thead")) continue;
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    for (const rect of range.getClientRects()) {
      if (!rect.width || !rect.height) continue;
      let hinted = false;
      for (let e = element; e && e !== document.body; e = e.parentElement) {
        const style = getComputedStyle(e), box = e.getBoundingClientRect();
        if (style.overflowX === "visible" && style.overflowY === "visible") continue;
        const over = rect.right > box.right + 1 || rect.left < box.left - 1
          || rect.top > box.bottom - 1 || rect.bottom < box.top + 1;
        if (over && hints(style)) { hinted = true; break; }
        if (over) cut.push([e.className || e.tagName, walker.currentNode.data.slice(0, 60)]);
      }
      if (!hinted && (rect.right > document.documentElement.clientWidth + 1 || rect.left < -1))
        cut.push(["page", walker.currentNode.data.slice(0, 60)]);
    }
  }
  return cut;
})()
"""


class Browser:
    """A tab of a browser, with its messages and requests."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        command = [CHROMIUM, *_OPTIONS, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(to_read), str(to_write), *command],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)
        os.close(self._from)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the protocol; events that arrive meanwhile are stored."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "the browser has gone"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def open(self, url: str, width: int, height: int = 900, dark: bool = False, media: str = "") -> None:
        """Opens a page in a window of some size and waits until it is loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 500)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=url)
        end = time.monotonic() + _PATIENCE
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            assert time.monotonic() < end, "the page does not load"
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        """Returns the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def complaints(self) -> list[Any]:
        """Returns the messages that the page wrote to the console, and its errors."""
        wanted = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event for event in self.events if event.get("method") in wanted]

    def requests(self) -> list[str]:
        """Returns the requests of the page."""
        sent = (event for event in self.events if event.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"][:200] for event in sent]

    def screenshot(self, path: Path, clip: tuple[int, int, int, int] | None = None) -> None:
        """Writes a picture of the whole page, or of a part of it (x, y, width, height)."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        x, y, width, height = clip or (0, 0, int(size["width"]), int(size["height"]))
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True,
                         clip={"x": x, "y": y, "width": width, "height": height, "scale": 1})  # fmt: skip
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path: Path) -> None:
        """Prints the page."""
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))
