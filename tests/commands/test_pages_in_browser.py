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
    opened = OpenPage(browser, page, width)
    opened.run("for (const details of document.querySelectorAll('details')) details.open = true")
    assert opened.run("document.documentElement.scrollWidth") == width
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith("data:image/jpeg")] == [page]
    opened.run("for (const image of document.images) image.loading = 'eager'")
    broken = opened.run(
        "Promise.all([...document.images].map((image) => image.decode().then(() => 0, () => 1)))"
        ".then((all) => all.reduce((a, b) => a + b))"
    )
    assert broken == 0
    assert opened.run("document.images.length") > 50


@pytest.mark.parametrize("width", [_SMALL_PHONE, _PHONE, 700, _DESK])
def test_no_text_is_cut_off_without_a_hint(browser: Browser, page: str, width: int) -> None:
    opened = OpenPage(browser, page, width)
    opened.run("for (const details of document.querySelectorAll('details')) details.open = true")
    assert opened.run(CUT_OFF) == []
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
    assert (
        opened.run("document.querySelector('#filter output').textContent") == f"5 of {every} listed findings"
    )
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


@pytest.fixture
def index(output: Path) -> str:
    return (output / "index.html").as_uri()


@pytest.mark.parametrize("width", [_PHONE, 820, _DESK])
def test_the_list_of_versions_loads_nothing_reports_no_errors_and_fits_the_window(
    browser: Browser, index: str, width: int
) -> None:
    opened = OpenPage(browser, index, width)
    assert opened.run("document.documentElement.scrollWidth") == width
    assert opened.complaints == [] and len(opened.requests) == 1
    assert opened.run("document.querySelectorAll('tbody').length") == 3
    sticking_out = opened.run(
        "[...document.querySelectorAll('main *')].filter((e) => e.checkVisibility()"
        " && !e.closest('.sr, thead') && e.getBoundingClientRect().right > innerWidth).length"
    )
    assert sticking_out == 0
    drawn = "[...document.querySelectorAll('.stack i')].filter((bar) => bar.checkVisibility()).length"
    assert opened.run(drawn) == 2


@pytest.mark.parametrize("name", ["", "index.html", f"versions/{_REFUSED}/report.html"])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [_PHONE, _DESK])
def test_all_text_has_enough_contrast(
    browser: Browser, page: str, output: Path, name: str, dark: bool, width: int
) -> None:
    scheme = "dark" if dark else "light"
    url = (output / name).as_uri() if name else page
    opened = OpenPage(browser, url, width, color_scheme=scheme)
    ratio, where = opened.run(CONTRASTS)
    assert ratio >= 4.5, where
    assert opened.run("document.documentElement.scrollWidth") == width


def test_every_link_has_a_target_that_links_back(browser: Browser, index: str) -> None:
    opened = OpenPage(browser, index, _DESK)
    links = opened.run("[...document.querySelectorAll('td a')].map((a) => a.href)")
    assert len(links) == 4  # two reports and two datasets; there is no comparison
    opened = OpenPage(browser, next(link for link in links if link.endswith("report.html")), _PHONE)
    assert opened.run("document.title").endswith(f"report of version {_REFUSED}")
    assert opened.complaints == []
    assert opened.run("document.querySelector('.eyebrow a').href") == index


def test_screen_readers_find_the_table_on_a_phone(browser: Browser, index: str) -> None:
    for width in (_PHONE, _DESK):
        opened = OpenPage(browser, index, width)
        nodes = opened.accessible()
        roles = [role for role, _ in nodes]
        assert roles.count("table") == 1 and roles.count("rowheader") == 3
        assert roles.count("columnheader") == 7
        names = [name for role, name in nodes if role == "link" and name]
        assert f"report of {_GOOD}" in names and len(set(names)) == len(names)


def test_times_are_also_shown_in_local_time(browser: Browser, index: str) -> None:
    text = f"document.querySelector('#v-{_GOOD} time').textContent"
    in_tokyo = OpenPage(browser, index, _DESK, timezone_id="Asia/Tokyo").run(text)
    assert in_tokyo.startswith("2026-11-21 02:00 UTC, ") and "11:00" in in_tokyo
    assert OpenPage(browser, index, _DESK, timezone_id="UTC").run(text) == "2026-11-21 02:00 UTC"
