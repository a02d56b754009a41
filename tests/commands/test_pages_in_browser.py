"""The report and the list of versions in a real browser: no errors, no requests, readable on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.headless import CHROMIUM, CONTRASTS, CUT_OFF, OpenPage
from helpers.report_samples import HOSTILE, made_up
from helpers.versioned import V1, V2, V3, add_version, point_to, refusal
from playwright.sync_api import Browser, sync_playwright

from shardwright.core.report.index_page import write_index
from shardwright.core.report.render import render
from shardwright.pipelines.report import report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

_SMALL_PHONE, _PHONE, _DESK = 360, 390, 1280


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM)


@pytest.fixture(autouse=True)
def _close_pages(browser: Browser) -> Iterator[None]:
    yield
    for context in browser.contexts:
        context.close()


_GOOD, _REFUSED, _BUILDING = V1, V2, V3
_LONG = "<b>" + "w" * 200


@pytest.fixture(scope="module")
def output(sound_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions: one is published, one refused with long names, one is being built."""
    made = tmp_path_factory.mktemp("versions") / "pets & <i>more"
    add_version(made, sound_dataset, _GOOD, records=61, work={"shards": 5, "converted": 61})
    add_version(
        made, sound_dataset, _REFUSED, "refused", records=61, changes={"added": 7}, refusals=[
            *(refusal("drift", f"max_rise.{_LONG}{number}") for number in range(3)),
            refusal("findings", "SPLIT_LEAKAGE", "warning"),
        ],
    )  # fmt: skip
    for version in (_GOOD, _REFUSED):
        report(f"{made}/versions/{version}")
    add_version(made, None, _BUILDING, "building")
    point_to(made, _GOOD)
    write_index(str(made))
    return made


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report in which every name is hostile."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(made_up(HOSTILE, charts=True)))
    return path.as_uri()


@pytest.mark.parametrize(
    ("name", "width"),
    [
        *(("", width) for width in (_SMALL_PHONE, 700, _DESK)),
        *(("index.html", width) for width in (_PHONE, 820, _DESK)),
        *((f"versions/{_REFUSED}/report.html", width) for width in (_PHONE, _DESK)),
    ],
)
def test_a_page_loads_nothing_reports_no_errors_fits_the_window_and_can_be_read(
    browser: Browser, page: str, output: Path, name: str, width: int
) -> None:
    url = (output / name).as_uri() if name else page
    opened = OpenPage(browser, url, width)
    opened.run("for (const details of document.querySelectorAll('details')) details.open = true")
    assert opened.run("document.documentElement.scrollWidth") == width
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith("data:image/jpeg")] == [url]
    opened.run("for (const image of document.images) image.loading = 'eager'")
    broken = opened.run(
        "Promise.all([...document.images].map((image) => image.decode().then(() => 0, () => 1)))"
        ".then((all) => all.reduce((a, b) => a + b, 0))"
    )
    assert broken == 0
    for scheme in ("light", "dark"):
        opened.page.emulate_media(color_scheme=scheme)
        ratio, where = opened.run(CONTRASTS)
        assert ratio >= 4.5, (scheme, where)
        assert opened.run("document.documentElement.scrollWidth") == width
    assert opened.run(CUT_OFF) == []
    if not name:
        assert opened.run("document.images.length") > 50
        # The test can detect text that is cut off: without line breaks, much of it is.
        opened.run("document.querySelectorAll('main *').forEach((e) => { e.style.whiteSpace = 'nowrap' })")
        assert opened.run(CUT_OFF)


def test_an_injected_script_does_not_run(browser: Browser, tmp_path: Path, page: str) -> None:
    # The policy is the second defence: insert a script by hand, and check that it does not run.
    text = render(made_up(("a",))).replace("</main>", "<script>document.title = 'broken'</script></main>")
    (tmp_path / "broken.html").write_text(text)
    opened = OpenPage(browser, (tmp_path / "broken.html").as_uri(), _DESK)
    assert opened.run("document.title") == "a: dataset report"
    assert any("Content Security Policy" in str(complaint) for complaint in opened.complaints)


def test_the_page_has_landmarks_and_headings_for_screen_readers(browser: Browser, page: str) -> None:
    opened = OpenPage(browser, page, _DESK)
    nodes = opened.accessible()
    roles = [role for role, _ in nodes]
    for landmark in ("banner", "navigation", "main", "contentinfo"):
        assert roles.count(landmark) == 1
    regions = {name for role, name in nodes if role == "region"}
    assert {"Findings", "Images", "Sizes"} <= regions and all(regions)
    wanted = ("image", "link", "button", "searchbox", "checkbox")
    assert [node for node in nodes if node[0] in wanted and not node[1]] == []


def test_findings_can_be_filtered(browser: Browser, page: str) -> None:
    opened = OpenPage(browser, page, _DESK)
    shown = "[...document.querySelectorAll('tr[data-severity]')].filter((row) => !row.hidden).length"
    every = opened.run(shown)
    assert opened.run("document.querySelector('#filter').hidden") is False
    opened.run("document.querySelector('input[value=note]').click()")
    assert 0 < opened.run(shown) < every
    assert opened.run("document.querySelector('details[data-code=DARK]').hidden") is True
    opened.run("document.querySelector('input[value=note]').click()")
    opened.run(
        "(() => { const box = document.querySelector('input[type=search]'); box.value = 'leak';"
        " box.dispatchEvent(new Event('input', {bubbles: true})) })()"
    )
    assert opened.run(shown) == 5
    told = opened.run("document.querySelector('#filter output').textContent")
    assert told == f"5 of {every} listed findings"
    assert opened.complaints == []


def test_everything_is_visible_without_scripts(browser: Browser, page: str) -> None:
    opened = OpenPage(browser, page, _PHONE, java_script_enabled=False)
    assert opened.run("document.querySelector('#filter').hidden") is True
    assert opened.run("document.querySelectorAll('tr[data-severity]').length") > 50


def test_the_page_can_be_printed(browser: Browser, page: str) -> None:
    opened = OpenPage(browser, page, 800)
    assert opened.page.pdf().startswith(b"%PDF")
    opened.page.emulate_media(media="print")
    assert opened.run("getComputedStyle(document.querySelector('nav')).display") == "none"


def test_screen_readers_find_the_table_on_a_phone(browser: Browser, output: Path) -> None:
    for width in (_PHONE, _DESK):
        opened = OpenPage(browser, (output / "index.html").as_uri(), width)
        nodes = opened.accessible()
        roles = [role for role, _ in nodes]
        assert roles.count("table") == 1 and roles.count("rowheader") == 3
        assert roles.count("columnheader") == 7
        assert opened.run("document.querySelectorAll('tbody').length") == 3
        drawn = "[...document.querySelectorAll('.stack i')].filter((bar) => bar.checkVisibility()).length"
        assert opened.run(drawn) == 2
        names = [name for role, name in nodes if role == "link" and name]
        assert f"report of {_GOOD}" in names and len(set(names)) == len(names)


def test_times_are_also_shown_in_local_time(browser: Browser, output: Path) -> None:
    index = (output / "index.html").as_uri()
    text = f"document.querySelector('#v-{_GOOD} time').textContent"
    in_tokyo = OpenPage(browser, index, _DESK, timezone_id="Asia/Tokyo").run(text)
    assert in_tokyo.startswith("2026-11-21 02:00 UTC, ") and "11:00" in in_tokyo
    assert OpenPage(browser, index, _DESK, timezone_id="UTC").run(text) == "2026-11-21 02:00 UTC"
