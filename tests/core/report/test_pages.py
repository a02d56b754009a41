"""The report and the page of all versions: escaped, with fitting charts, and every link has a target."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from helpers.examples import examples
from helpers.html_pages import Page
from helpers.report_samples import HOSTILE, dataset_of, drift_of, made_up
from helpers.trees import put_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardwright.core.report import index_page
from shardwright.core.report.gather import ReportData, place_of
from shardwright.core.report.measures import histogram
from shardwright.core.report.pages import MAX_PAGE_BYTES, environment, shortened
from shardwright.core.report.render import AMOUNTS, class_tables, render
from shardwright.core.versions import accept_command
from shardwright.schemas.codes import FilterReason, FindingCode, Severity
from shardwright.schemas.dataset import DIGEST, STATISTICS_JSON, with_digest
from shardwright.schemas.drift import Change, Changes, Distance, Drift, Kind, OfSplits, Pair, drift_tables
from shardwright.schemas.findings import Violation
from shardwright.schemas.version import (
    Pointer,
    VersionRecord,
    VersionState,
    next_version,
)


def outline_of(page: str) -> Page:
    """Reads a page; fails if it has a duplicate id, a reference to nothing, or something from elsewhere."""
    outline = Page(page)
    ids = outline.of("id")
    references = " ".join(outline.of("aria-labelledby", "data-copy")).split()
    assert len(set(ids)) == len(ids) and not outline.links
    assert {*references, *(link[1:] for link in outline.of("href"))} <= set(ids)
    assert all(source.startswith("data:image/jpeg;base64,") for source in outline.of("src"))
    return outline


def parts_of(page: str) -> set[tuple[str, str]]:
    """Returns the elements of a page with the names of their attributes."""
    return {(element, name) for element, name, _ in outline_of(page).attributes}


def test_names_from_the_data_are_shown_as_text_everywhere() -> None:
    page = render(made_up(HOSTILE, charts=True))
    text = outline_of(page).text
    for name in HOSTILE[:6]:
        assert name in text
    assert page.count("<script") == 1
    harmless = tuple(f"class {number}" for number in range(len(HOSTILE)))
    assert parts_of(page) == parts_of(render(made_up(harmless, charts=True)))
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1 and "alert" not in scripts[0]
    assert "\u202e" not in page and "\\u202e" in page
    assert "\x00" not in page and "x" * 200 not in page
    page.encode()


@given(st.text(max_size=300), st.integers(1, 200))
def test_shown_texts_are_visible_and_short(text: str, letters: int) -> None:
    result = shortened(text, letters)
    assert result.isprintable()
    assert len(result) <= letters * len("\\U0010ffff") + len("…")
    if text.isprintable() and len(text) <= letters:
        assert result == text


def test_the_largest_page_is_below_the_limit() -> None:
    names = tuple(f"{'<&> long ' * 30}class {number}" for number in range(1_000))
    codes = tuple(FindingCode)[:20]
    page = render(made_up(names, per_code=200, codes=codes, noisy=True, records=20_000_000))
    assert len(page.encode()) <= MAX_PAGE_BYTES
    outline = outline_of(page)
    text = outline.text
    assert all(code.value in text and code.meaning in text for code in codes)
    assert FilterReason.DOTFILE.meaning in text
    assert "class 999" not in text or "1,000" in text
    assert "of the 400,000 images" in text and "All 22 images" not in text


def test_pictures_are_left_out_before_the_page_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    data = made_up(tuple(f"class {number}" for number in range(30)), noisy=True)
    whole = render(data)
    monkeypatch.setattr("shardwright.core.report.pages.MAX_PAGE_BYTES", len(whole.encode()) // 2)
    smaller = render(data)
    assert 0 < smaller.count("<img") < whole.count("<img")
    assert "fewer images" in smaller and "fewer images" not in whole
    monkeypatch.setattr("shardwright.core.report.pages.MAX_PAGE_BYTES", 1)
    least = render(data)
    assert "<img" not in least and "class 29" in least
    outline_of(least)


def test_headings_are_in_order_and_landmarks_exist() -> None:
    data = made_up(("a", "b", "c"))
    assert data.dataset is not None
    plan = replace(data.dataset.plan, labels=("a", "b", "c", "without records"))
    page = render(replace(data, dataset=replace(data.dataset, plan=plan)))
    assert "the lowest hashes of each class" in page and "1 class without records" in page
    assert "<dt>classes</dt><dd>4</dd>" in page
    outline = outline_of(page)
    levels = outline.headings
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for landmark in ("<header", "<nav aria-label", "<main", "<footer"):
        assert page.count(landmark) == 1
    assert page.count("<th") == len(re.findall(r'<th scope="(?:col|row)"', page)) + page.count("<thead")
    assert page.count("<img") == len(re.findall(r'<img [^>]*alt="[^"]+"', page))
    assert 'lang="en"' in page and 'class="skip" href="#main"' in page


def test_missing_parts_name_the_command_that_adds_them() -> None:
    page = render(ReportData(name="pets", place="data/pets", dataset=dataset_of({}, {"train": 0})))
    text = outline_of(page).text
    assert "Not validated" in text
    assert "shardwright validate --dataset data/pets" in text
    assert "shardwright validate --dataset data/pets --quality" in text
    assert STATISTICS_JSON not in text


def test_classes_with_equally_many_records_share_a_row() -> None:
    names = [f"kind{number:02d}" for number in range(12)]
    counts = {name: 30 if number < 9 else number for number, name in enumerate(names)}
    dataset = dataset_of(
        {
            "train": {name: count - number % 2 for number, (name, count) in enumerate(counts.items())},
            "test": {name: number % 2 for number, name in enumerate(names)},
        },
        {"train": 246, "test": 54},
    )
    tables = class_tables(dataset, AMOUNTS[0])
    assert tables is not None
    assert [(row.names, row.total, row.counts, row.most) for row in tables["largest"]] == [
        (tuple(names[:9]), 30, (29, 0), (30, 1)),
        (("kind11",), 11, (10, 1), (10, 1)),
        (("kind10",), 10, (10, 0), (10, 0)),
        (("kind09",), 9, (8, 1), (8, 1)),
    ]
    page = render(ReportData("pets", dataset=dataset))
    assert "9 classes with equally many records" in page and "29 to 30" in page
    assert all(name in page for name in names)
    alike = ReportData("pets", dataset=dataset_of({"train": dict.fromkeys(names, 5)}, {"train": 60}))
    assert "The largest of 12 classes has 30 records, the one in the middle 30, the smallest 9." in page
    assert "the one in the middle" not in render(alike)


def test_sections_without_content_are_left_out() -> None:
    page = render(ReportData("pets", dataset=dataset_of({"train": {"a": 1}}, {"train": 1})))
    sections = re.findall(r'<section id="(\w+)"', page)
    assert sections == re.findall(r'<li><a href="#(\w+)">', page) == ["findings", "classes"]


def test_an_empty_dataset_gives_a_page_which_is_the_same_every_time() -> None:
    outline_of(render(ReportData(name="")))
    first, second = (render(made_up(("a", "b", "c" * 40), charts=True)) for _ in range(2))
    assert first == second


def _spread(counts: list[int], edges: list[float]) -> dict[str, Any]:
    summary = {
        "min": edges[0],
        "median": 2.0,
        "mean": 2.5,
        "max": edges[-1],
        "std": 1.0,
        "count": sum(counts),
    }
    return {**summary, "histogram": {"counts": counts, "edges": edges}}


def test_measurements_become_charts_with_tables_and_a_line_to_copy() -> None:
    measured = {
        "records": 10,
        "bytes": _spread([3, 7], [1000, 2000, 4000]),
        "width": _spread([4, 6], [10, 20, 30]),
        "height": _spread([10], [7, 8]),
        "aspect_ratio": _spread([5, 5], [0.5, 1, 2]),
        "scores": {"brightness": _spread([1, 9], [0, 0.5, 1])},
        "pixels": {"images": 10, "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]},
    }
    of_all = {"all": measured}
    statistics = {"splits": {"train": of_all, "test": of_all}, "total": of_all}
    page = render(made_up(("a", "b"), charts=True, statistics=statistics))
    outline_of(page)
    assert "transforms.Normalize(mean=[0.1000, 0.2000, 0.3000], std=[0.4000, 0.5000, 0.6000])" in page
    assert "1.0 kB to 2.0 kB" in page and "Brightness" in page
    assert page.count('class="chart"') == 4


def test_samples_are_shown_in_their_own_units() -> None:
    floats = {
        "images": 2, "min": [-1.5, None], "max": [2500.25, None], "mean": [30.0, None], "std": [4.0, None],
        "nan": [7, 1200], "infinite": [0, 3],
    }  # fmt: skip
    deep = {"images": 1990, "min": [3], "max": [65535], "mean": [21845.1], "std": [700.5]}
    of_all = {"all": {"samples": {"float32": {"2": floats}, "uint16": {"1": deep}}, "records": 1992}}
    page = render(made_up(("a",), statistics={"splits": {"train": of_all}, "total": of_all}))
    outline_of(page)
    for text in ("1 of 2", "-1.5", "2500.25", "7 NaN", "1,200 NaN, 3 infinite", "none", "65535", "1,990"):
        assert f">{text}</td>" in page or f">{text}</span></td>" in page or f"<bdi>{text}</bdi></td>" in page
    assert "floats stretched" in page


def test_drift_is_shown_as_in_the_report_of_diff() -> None:
    changes = Changes(unchanged=7, relabels=Counter({("cat", "<dog>"): 2}), moves=Counter({("a", "b"): 4}))
    distance = OfSplits(Distance(0.25, "cat", 0.125), {})
    classes = replace(
        drift_of().classes, distance=distance, new=("<i>new</i>",), shifts={"cat": Pair(0.5, 0.25)}
    )
    drift = drift_of(
        datasets=Pair("old<b>", "new"), changes=changes, records={"train": Pair(10, 12)}, classes=classes,
        made={"settings": {"resize": Pair("224", "256")}},
    )  # fmt: skip
    text = outline_of(render(made_up(("a",), drift=drift))).text
    for part in ("old<b>", "<dog>", "<i>new</i>", "0.1250", "50.00%", "25.00%", "256", "+20.0%"):
        assert part in text
    assert "Nothing is different" in render(made_up(("a",), drift=drift_of(fingerprints=Pair("a", "a"))))


def test_bars_are_as_long_as_their_counts_and_named_by_their_bins() -> None:
    chart = histogram("Width", "pixels", [0, 10, 20, 40], [10, 0, 40])
    assert chart.bars == (("0 to 10", 10, 25), ("10 to 20", 0, 0), ("20 to 40", 40, 100))
    drawn = environment().get_template("macros.html").module.chart(chart)
    assert re.findall("width:([0-9.]+)%", drawn) == ["25.0", "100.0"]
    sizes = histogram("Bytes", "bytes", [0, 1e6, 2e6], [1, 2])
    assert [bar.text for bar in sizes.bars] == ["0 B to 1.0 MB", "1.0 MB to 2.0 MB"]
    single = histogram("Objects", "objects", range(4), [5, 1, 2], whole=True)
    assert [bar.text for bar in single.bars] == ["0", "1", "2"]
    wider = histogram("Objects", "objects", [0, 2, 4], [5, 1], whole=True)
    assert [bar.text for bar in wider.bars] == ["0 to 1", "2 to 3"]


def rows_of(drift: Drift) -> dict[str, list[tuple[object, ...]]]:
    return {table.title: table.rows for table in drift_tables(json.loads(json.dumps(drift.as_json())))}


def test_only_differing_findings_and_measures_are_shown() -> None:
    rows = rows_of(
        drift_of(
            quality={
                "DARK": Pair(0.01, 0.5),
                "LIGHT": Pair(0.2, 0.1),
                "BLURRY": Pair(0.1, 0.1),
                "GRAYSCALE": Pair(None, 0.1),
            },
            statistics={
                "total.all.width.mean": Pair(224.0, 128.25),
                "total.all.height.mean": Pair(224.0, 224.0),
                "total.all.width.max": Pair(1, 2),
                "total.all.pixels.per_image.mean.0": Pair(1, 2),
                "splits.train.all.width.mean": Pair(1, 2),
            },
        )
    )
    assert rows["Findings per record"] == [("DARK", "1.0000%", "50.0000%"), ("LIGHT", "20.0000%", "10.0000%")]
    assert rows["Measured on all images"] == [("width.mean", "224", "128.25")]


def test_images_are_counted_by_kind_and_split_with_some_of_their_keys() -> None:
    changes = Changes(unchanged=7)
    for name in "dcab":
        changes.note(Kind.RENAMED, "train", Change(f"b/{name}.png", f"a/{name}.png", f"b/{name}.png"))
    changes.note(Kind.RELABELLED, "test", Change("x.png", "cat\x1fdog", ""))
    rows = rows_of(drift_of(changes=changes))
    such_as = ", ".join(f"a/{name}.png -> b/{name}.png" for name in "abc")
    assert rows["Images"] == [
        ("unchanged", 7, "", "", ""),
        ("renamed (same source, different key)", 4, 4, 0, f"{such_as}, ..."),
        ("other classes", 1, 0, 1, "x.png (cat, dog -> none)"),
    ]


def test_long_tables_say_how_many_rows_are_left_out() -> None:
    new = tuple(f"class {i}" for i in range(25))
    relabels = Counter({(str(i), "x"): 1 for i in range(1_100)})
    drift = drift_of(classes=replace(drift_of().classes, new=new), changes=Changes(relabels=relabels))
    tables = {table.title: table for table in drift_tables(drift.as_json())}
    assert [len(table.rows) for table in tables.values()] == [1, 1, 20, 1, 20]
    assert tables["New classes"].more == 5 and tables["Images with other classes"].more == 1_080


_NOW = 1_795_226_400.0  # 2026-11-21 02:00 UTC


def records_of(count: int, **fields: Any) -> dict[str, VersionRecord]:
    """Returns this many published versions, one per day."""
    found: dict[str, VersionRecord] = {}
    previous = ""
    for number in range(count):
        version = next_version(_NOW + 86_400 * number, found)
        found[version] = VersionRecord(
            **{
                "version": version, "state": VersionState.PUBLISHED, "created": _NOW, "finished": _NOW,
                "previous": previous, "fingerprint": f"{number:064x}", "records": 1_000 + number,
                "total_bytes": 10**9, "changes": {"added": 12, "removed": 3, "unchanged": 900},
                "work": {"shards": 8, "reused_shards": 6, "copied": 230, "converted": 12, "quarantined": 1},
                **fields,
            }
        )  # fmt: skip
        previous = version
    return found


def refusal(name: str, message: str = "too much", gate: str = "drift", error: bool = True) -> Violation:
    return Violation(gate, name, Severity.ERROR if error else Severity.WARNING, message)


def index_of(records: dict[str, VersionRecord], latest: str = "", **fields: Any) -> index_page.IndexData:
    files = set(product(records, ("report.html", "diff.json", "dataset.json")))
    pointer = Pointer(latest, "f" * 64, _NOW) if latest else None
    return index_page.IndexData(
        **{"output": "data/pets", "records": records, "files": files, "pointer": pointer, **fields}
    )


def row_of(page: str, version: str) -> str:
    """Returns the text of a version's row."""
    found = re.search(rf'<tbody [^>]*id="v-{version}".*?</tbody>', page, re.DOTALL)
    assert found
    return " ".join(Page(found[0]).text.split())


def test_versions_are_listed_newest_first_with_their_state() -> None:
    records = records_of(5)
    _, second, third, fourth, fifth = records
    refusals = (refusal("SPLIT_LEAKAGE", gate="findings", error=False), refusal("max_count_drop"))
    records[third] = replace(records[third], state=VersionState.WITHDRAWN)
    records[fourth] = replace(records[fourth], pinned=True)
    records[fifth] = replace(records[fifth], state=VersionState.REFUSED, refusals=refusals)
    page = index_page.render_index(index_of(records, fourth))
    assert re.findall(r'id="v-(\w+)"', page) == sorted(records, reverse=True)
    assert "the first version" not in row_of(page, second)
    row = row_of(page, fourth)
    for words in ("✓ published", "latest", "pinned", "1,003", "1.0 GB", "+12 added", "−3 removed",
                  "6 of 8 shards reused", "230 records copied", "12 images converted", "1 quarantined",
                  "report diff dataset.json", "2026-11-24 02:00 UTC", f"{3:064x}"[:12]):  # fmt: skip
        assert words in row
    assert "withdrawn" in row_of(page, third) and "latest" not in row_of(page, third)
    row = row_of(page, fifth)
    assert "✗ refused" in row and row.index("max_count_drop") < row.index("SPLIT_LEAKAGE")
    command = f"shardwright publish data/pets@{fifth} --accept max_count_drop"
    assert command in row and page.count(command) == 2  # also at the top of the page
    text = Page(page).text
    assert "The newest version was refused" in text and "1 error and 1 warning" in text
    assert f"Readers get {fourth}" in text
    assert f"shardwright rollback data/pets {second}" in text  # not to the withdrawn version


def test_pages_without_changes_or_versions_say_so() -> None:
    records = records_of(2, changes={}, work={})
    first, second = records
    page = index_page.render_index(index_of(records, second))
    assert "the first version" in row_of(page, first) and "no image" in row_of(page, second)
    text = Page(index_page.render_index(index_of({}))).text
    assert "There are no versions here" in text and "Nothing is published" in text


@pytest.mark.parametrize(
    "draw", [lambda: render(made_up(("a", "b"))), lambda: index_page.render_index(index_of(records_of(3)))]
)
def test_a_page_loads_nothing_and_its_policy_allows_its_own_script_and_nothing_else(
    draw: Callable[[], str],
) -> None:
    page = draw()
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert script and policy
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    rules = dict(rule.split(" ", 1) for rule in policy[1].replace("&#39;", "'").split("; "))
    assert rules == {
        "default-src": "'none'", "img-src": "data:", "style-src": "'unsafe-inline'",
        "script-src": f"'sha256-{digest}'", "base-uri": "'none'", "form-action": "'none'",
    }  # fmt: skip
    assert "http://" not in page.replace("http://www.w3.org/", "") and "https://" not in page
    assert "@import" not in page and "url(" not in page.replace("url(#", "")
    assert all(source.startswith("data:image/jpeg;base64,") for source in Page(page).of("src"))


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_shown_as_text_everywhere(name: str) -> None:
    refusals = (Violation(name, name, Severity.ERROR, name),)
    parts = {"accepted": (name,), "fingerprint": name, "previous": name}
    records = records_of(2, state=VersionState.REFUSED, refusals=refusals, **parts)
    version, record = next(iter(records.items()))
    report = replace(made_up(("a",)), of_version=record, place=f"{name}@{version}")
    for page in (index_page.render_index(index_of(records, output=name)), render(report)):
        read = Page(page)
        assert page.count("<script") == 1 and page.count("<style") == 1
        assert not any(attribute.startswith("on") for _, attribute, _ in read.attributes)
        assert "\u202e" not in page and "\x00" not in page
        assert all(re.fullmatch(r"versions/\w+/[\w.]+", link) for link in read.links)
        page.encode()
        if name.isprintable() and len(name) < 60:
            assert name in read.text


def test_a_page_of_many_versions_stays_small() -> None:
    records = records_of(1_000)
    old = sorted(records)[0]
    page = index_page.render_index(index_of(records, old))
    assert len(page.encode()) < 1_000_000
    assert re.findall(r'id="v-(\w+)"', page) == [
        *sorted(records, reverse=True)[: index_page.MAX_VERSIONS - 1],
        old,
    ]
    text = Page(page).text
    assert "300 of 1,000 versions" in " ".join(text.split())


def test_documents_with_nonsense_give_a_page(tmp_path: Path) -> None:
    output = tmp_path / "out"
    good = next(iter(records_of(1).values()))
    nonsense: dict[str, dict[str, Any]] = {
        "20260102T000000Z": {"records": 10**400, "total_bytes": -5, "created": 1e308, "accepted": [1, None]},
        "99999999T999999Z": {},
        "00010101T000000Z": {"version": "../../../etc"},
    }
    for version, values in nonsense.items():
        document = {**json.loads(good.dumps()), "version": version, **values}
        put_files(output / "versions", {f"{version}/version.json": json.dumps(document)})
    put_files(output / "versions", {"20260106T000000Z/version.json": b"\xff{["})
    for empty in ("20260105T000000Z", "no version"):
        (output / "versions" / empty).mkdir()
    put_files(output, {"latest.json": '{"format_version": 1, "version": "x"}'})
    index_page.write_index(str(output))
    page = (output / "index.html").read_text()
    assert set(re.findall(r'id="v-(\w+)"', page)) == {*nonsense, "20260105T000000Z", "20260106T000000Z"}
    assert "Readers get nothing" in page and "rollback" in page
    assert "building" in row_of(page, "20260105T000000Z")
    assert "cannot be read" in row_of(page, "20260106T000000Z")
    assert "etc" not in Page(page).text


def test_only_existing_files_are_linked(tmp_path: Path) -> None:
    records = records_of(3)
    _, second, third = records
    for version, record in records.items():
        directory = tmp_path / "versions" / version
        put_files(directory, {"version.json": record.dumps(), "dataset.json": "{}"})
    put_files(tmp_path / "versions" / second, {"report.html": "", "pinned.json": "{}"})
    (tmp_path / "latest.json").write_text(Pointer(second, "f" * 64, _NOW).dumps())
    page = index_page.render_index(index_page.gather_index(str(tmp_path), _NOW))
    links = Page(page).links
    assert len(links) == 4 and all((tmp_path / link).is_file() for link in links)
    assert "pinned" in row_of(page, second) and "pinned" not in row_of(page, third)
    assert "drawn 2026-11-21 02:00 UTC" in page
    index_page.write_index(str(tmp_path))
    assert index_page.render_index(index_page.gather_index(str(tmp_path), _NOW)) == page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "latest.json", "versions"]


def test_a_pointer_to_a_missing_version_is_reported(tmp_path: Path) -> None:
    (tmp_path / "latest.json").write_text(Pointer("20260101T000000Z", "f" * 64, _NOW).dumps())
    data = index_page.gather_index(str(tmp_path), _NOW)
    text = Page(index_page.render_index(data)).text
    assert "Readers get nothing" in text and "20260101T000000Z, which is missing" in text
    assert f"shardwright rollback {tmp_path}" in text


def test_bars_show_how_many_records_versions_have() -> None:
    records = records_of(4)
    last = sorted(records)[-1]
    records[last] = replace(records[last], state=VersionState.REFUSED, records=501)
    page = index_page.render_index(index_of(records))
    assert re.findall(r"width:([0-9.]+)%", page) == ["50.0", "100.0", "99.9", "99.8"]


@pytest.mark.parametrize(
    ("names", "accepted", "command"),
    [
        (["max_count_drop"], (), "shardwright publish 'a b@V' --accept max_count_drop"),
        (["one", "one", "two"], (), "shardwright publish 'a b@V' --accept one,two"),
        (["one", "two"], ("two",), "shardwright publish 'a b@V' --accept one"),
        (["one", "two"], ("drift",), "shardwright publish 'a b@V'"),
        (["$(rm -rf /)"], (), "shardwright publish 'a b@V' --accept drift"),
        (list("abcdef"), (), "shardwright publish 'a b@V' --accept drift"),
    ],
)
def test_the_command_accepts_exactly_the_refusals(
    names: list[str], accepted: tuple[str, ...], command: str
) -> None:
    violations = (*(refusal(name) for name in names), refusal("warned", error=False))
    record = VersionRecord("V", VersionState.REFUSED, 0, refusals=violations, accepted=accepted)
    assert accept_command("a b@V", record) == command


@pytest.mark.parametrize(
    ("directory", "place"),
    [
        ("/a/pets/versions/20261121T020000Z/", ("/a/pets@20261121T020000Z", "20261121T020000Z")),
        ("gs://b/pets/versions/20261121T020000Z", ("gs://b/pets@20261121T020000Z", "20261121T020000Z")),
        ("/a/pets", ("/a/pets", "")),
        ("/a/pets/20261121T020000Z", ("/a/pets/20261121T020000Z", "")),
    ],
)
def test_a_dataset_directory_is_distinguished_from_a_version(directory: str, place: tuple[str, str]) -> None:
    assert place_of(directory) == place


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(
        st.sampled_from(["created", "previous", "fingerprint", "records", "total_bytes", "work", "changes"]),
        _JSON,
    ),
    st.sampled_from(list(VersionState)),
    _JSON,
)
def test_any_document_gives_a_page(
    tmp_path: Path, fields: dict[str, Any], state: VersionState, text: Any
) -> None:
    refusals = [{"gate": text, "name": text, "severity": "error", "message": text}]
    (version, record), *_ = records_of(1).items()
    document = {**json.loads(record.dumps()), **fields, "state": state, "refusals": refusals}
    del document[DIGEST]
    put_files(tmp_path / "versions" / version, {"version.json": json.dumps(with_digest(document))})
    (tmp_path / "latest.json").write_text(Pointer(version, "f" * 64, _NOW).dumps())
    index_page.write_index(str(tmp_path))
    assert row_of((tmp_path / "index.html").read_text(), version)
