"""The report in a real browser: no errors, no requests, no sideways scrolling on a phone, working filters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.headless import CHROMIUM, CONTRASTS, CUT_OFF, Browser
from helpers.report_samples import HOSTILE, made_up

from shardwright.core.report.render import render

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

_SMALL_PHONE, _PHONE, _DESK = 360, 390, 1280


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report in which every name is hostile."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(made_up(HOSTILE, charts=True)))
    return path.as_uri()


@pytest.mark.parametrize("width", [_PHONE, _DESK])
def test_the_page_loads_nothing_reports_no_errors_and_fits_the_window(
    browser: Browser, page: str, width: int
) -> None:
    browser.open(page, width)
    browser.run("for (const details of document.querySelectorAll('details')) details.open = true")
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:image/jpeg")] == [page]
    browser.run("for (const image of document.images) image.loading = 'eager'")
    broken = browser.run(
        "Promise.all([...document.images].map((image) => image.decode().then(() => 0, () => 1)))"
        ".then((all) => all.reduce((a, b) => a + b))"
    )
    assert broken == 0
    assert browser.run("document.images.length") > 50


@pytest.mark.parametrize("width", [_SMALL_PHONE, _PHONE, 700, _DESK])
def test_no_text_is_cut_off_without_a_hint(browser: Browser, page: str, width: int) -> None:
    browser.open(page, width)
    browser.run("for (const details of document.querySelectorAll('details')) details.open = true")
    assert browser.run(CUT_OFF) == []
    # The test can detect text that is cut off: without line breaks, much of it is.
    browser.run("document.querySelectorAll('main *').forEach((e) => { e.style.whiteSpace = 'nowrap' })")
    assert browser.run(CUT_OFF)


def test_an_injected_script_does_not_run(browser: Browser, tmp_path: Path, page: str) -> None:
    # The policy is the second defence: insert a script by hand, and check that it does not run.
    text = render(made_up(("a",))).replace("</main>", "<script>document.title = 'broken'</script></main>")
    (tmp_path / "broken.html").write_text(text)
    browser.open((tmp_path / "broken.html").as_uri(), _DESK)
    assert browser.run("document.title") == "a: dataset report"
    assert any("Content Security Policy" in str(complaint) for complaint in browser.complaints())


def test_the_page_has_landmarks_and_headings_for_screen_readers(browser: Browser, page: str) -> None:
    browser.open(page, _DESK)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    roles = [node["role"]["value"] for node in nodes if not node.get("ignored") and "role" in node]
    for landmark in ("banner", "navigation", "main", "contentinfo"):
        assert roles.count(landmark) == 1
    names = [
        node.get("name", {}).get("value") for node in nodes if node.get("role", {}).get("value") == "region"
    ]
    assert {"Findings", "Images", "Sizes"} <= set(names) and all(names)
    wanted = ("image", "link", "button", "searchbox", "checkbox")
    unnamed = [
        node
        for node in nodes
        if not node.get("ignored")
        and node.get("role", {}).get("value") in wanted
        and not node.get("name", {}).get("value")
    ]
    assert unnamed == []


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_has_enough_contrast(browser: Browser, page: str, dark: bool) -> None:
    browser.open(page, _DESK, dark=dark)
    ratio, where = browser.run(CONTRASTS)
    assert ratio >= 4.5, where


def test_findings_can_be_filtered(browser: Browser, page: str) -> None:
    browser.open(page, _DESK)
    shown = "[...document.querySelectorAll('tr[data-severity]')].filter((row) => !row.hidden).length"
    every = browser.run(shown)
    assert browser.run("document.querySelector('#filter').hidden") is False
    browser.run("document.querySelector('input[value=note]').click()")
    assert 0 < browser.run(shown) < every
    assert browser.run("document.querySelector('details[data-code=DARK]').hidden") is True
    browser.run("document.querySelector('input[value=note]').click()")
    browser.run(
        "(() => { const box = document.querySelector('input[type=search]'); box.value = 'leak';"
        " box.dispatchEvent(new Event('input', {bubbles: true})) })()"
    )
    assert browser.run(shown) == 5
    assert (
        browser.run("document.querySelector('#filter output').textContent") == f"5 of {every} listed findings"
    )
    assert browser.complaints() == []


def test_everything_is_visible_without_scripts(browser: Browser, page: str) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page, _PHONE)
        assert browser.run("document.querySelector('#filter').hidden") is True
        assert browser.run("document.querySelectorAll('tr[data-severity]').length") > 50
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_the_page_can_be_printed(browser: Browser, page: str, tmp_path: Path) -> None:
    browser.open(page, 800)
    browser.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    browser.open(page, 800, media="print")
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
