"""The list of versions in a real browser: no errors, no requests, fits a phone, links to the reports."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.headless import CHROMIUM, CONTRASTS, Browser

from shardwright.core.report.index_page import write_index
from shardwright.pipelines.report import report
from shardwright.schemas.codes import Severity
from shardwright.schemas.findings import Violation
from shardwright.schemas.version import Pointer, VersionRecord, VersionState

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

_PHONE, _DESK = 390, 1200
_GOOD, _REFUSED, _BUILDING = "20261119T020000Z", "20261120T020000Z", "20261121T020000Z"
_LONG = "<b>" + "w" * 200


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture(scope="module")
def output(sound_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions: one is published, one refused with long names, one is being built."""
    made = tmp_path_factory.mktemp("versions") / "pets & <i>more"
    (made / "versions" / _BUILDING).mkdir(parents=True)
    fingerprint = json.loads((sound_dataset / "dataset.json").read_text())["fingerprint"]
    violations = (
        *(Violation("drift", f"max_rise.{_LONG}", Severity.ERROR, f"{_LONG} rose {n}") for n in range(3)),
        Violation("findings", "SPLIT_LEAKAGE", Severity.WARNING, "two pictures are in two splits"),
    )
    for version, state in ((_GOOD, VersionState.PUBLISHED), (_REFUSED, VersionState.REFUSED)):
        directory = made / "versions" / version
        shutil.copytree(sound_dataset, directory)
        refused = state is VersionState.REFUSED
        record = VersionRecord(
            version, state, 0, previous=_GOOD if refused else "", fingerprint=fingerprint, records=61,
            total_bytes=10**9, work={"shards": 5, "converted": 61}, changes={"added": 7} if refused else {},
            refusals=violations if refused else (),
        )  # fmt: skip
        (directory / "version.json").write_text(record.dumps())
        report(str(directory))
    (made / "latest.json").write_text(Pointer(_GOOD, fingerprint, 1_795_053_661).dumps())
    write_index(str(made))
    return made


@pytest.fixture
def page(output: Path) -> str:
    return (output / "index.html").as_uri()


@pytest.mark.parametrize("width", [_PHONE, 820, _DESK])
def test_the_page_loads_nothing_reports_no_errors_and_fits_the_window(
    browser: Browser, page: str, width: int
) -> None:
    browser.open(page, width)
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.complaints() == [] and len(browser.requests()) == 1
    assert browser.run("document.querySelectorAll('tbody').length") == 3
    sticking_out = browser.run(
        "[...document.querySelectorAll('main *')].filter((e) => e.checkVisibility()"
        " && !e.closest('.sr, thead') && e.getBoundingClientRect().right > innerWidth).length"
    )
    assert sticking_out == 0
    drawn = "[...document.querySelectorAll('.stack i')].filter((bar) => bar.checkVisibility()).length"
    assert browser.run(drawn) == 2


@pytest.mark.parametrize("name", ["index.html", f"versions/{_REFUSED}/report.html"])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [_PHONE, _DESK])
def test_all_text_has_enough_contrast(
    browser: Browser, output: Path, name: str, dark: bool, width: int
) -> None:
    browser.open((output / name).as_uri(), width, dark=dark)
    ratio, where = browser.run(CONTRASTS)
    assert ratio >= 4.5, where
    assert browser.run("document.documentElement.scrollWidth") == width


def test_every_link_has_a_target_that_links_back(browser: Browser, page: str) -> None:
    browser.open(page, _DESK)
    links = browser.run("[...document.querySelectorAll('td a')].map((a) => a.href)")
    assert len(links) == 4  # two reports and two datasets; there is no comparison
    browser.open(next(link for link in links if link.endswith("report.html")), _PHONE)
    assert browser.run("document.title").endswith(f"report of version {_REFUSED}")
    assert browser.complaints() == []
    assert browser.run("document.querySelector('.eyebrow a').href") == page


def test_screen_readers_find_the_table_on_a_phone(browser: Browser, page: str) -> None:
    for width in (_PHONE, _DESK):
        browser.open(page, width)
        nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
        roles = [node["role"]["value"] for node in nodes if not node.get("ignored") and "role" in node]
        assert roles.count("table") == 1 and roles.count("rowheader") == 3
        assert roles.count("columnheader") == 7
        names = [
            node["name"]["value"]
            for node in nodes
            if node.get("role", {}).get("value") == "link" and node.get("name", {}).get("value")
        ]
        assert f"report of {_GOOD}" in names and len(set(names)) == len(names)


def test_times_are_also_shown_in_local_time(browser: Browser, page: str) -> None:
    browser.call("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
    try:
        browser.open(page, _DESK)
        text = browser.run(f"document.querySelector('#v-{_GOOD} time').textContent")
    finally:
        browser.call("Emulation.setTimezoneOverride", timezoneId="UTC")
    assert text.startswith("2026-11-19 02:00 UTC, ") and "11:00" in text
    browser.open(page, _DESK)
    assert browser.run(f"document.querySelector('#v-{_GOOD} time').textContent") == "2026-11-19 02:00 UTC"
