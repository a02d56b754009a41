"""Opens pages in a headless Chromium, and says what is wrong with them."""

from __future__ import annotations

import shutil
from typing import Any

from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
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


class OpenPage:
    """A page in a window of its own, with its messages and requests.

    Args:
      browser: The browser.
      url: Address of the page.
      width: Width of the window; a narrow one is that of a phone.
      **options: Options of the window, as Playwright calls them.
    """

    def __init__(self, browser: Browser, url: str, width: int, **options: Any) -> None:
        window = {"width": width, "height": 900}
        self.page = browser.new_page(viewport=window, is_mobile=width < 500, **options)
        #: What the page wrote to the console, and its errors.
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url[:200]))
        self.page.goto(url)

    def run(self, script: str) -> Any:
        """Returns the value of an expression in the page."""
        return self.page.evaluate(script)

    def accessible(self) -> list[tuple[str, str]]:
        """Returns role and name of everything that a screen reader gets."""
        nodes = self.page.context.new_cdp_session(self.page).send("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored") and "role" in node
        ]
