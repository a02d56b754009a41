"""The page of all versions: its content, that no name breaks it, and that every link has a target."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.examples import examples
from helpers.html_pages import Page
from helpers.report_samples import HOSTILE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardwright.core.report.gather import place_of
from shardwright.core.report.index_page import (
    MAX_VERSIONS,
    IndexData,
    gather_index,
    render_index,
    write_index,
)
from shardwright.core.versions import accept_command
from shardwright.schemas.codes import Severity
from shardwright.schemas.dataset import DIGEST, with_digest
from shardwright.schemas.findings import Violation
from shardwright.schemas.version import (
    Pointer,
    VersionRecord,
    VersionState,
    next_version,
)

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


def index_of(records: dict[str, VersionRecord], latest: str = "", **fields: Any) -> IndexData:
    files = dict.fromkeys(records, ("report.html", "diff.json", "dataset.json"))
    pointer = Pointer(latest, "f" * 64, _NOW) if latest else None
    return IndexData(
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
    page = render_index(index_of(records, fourth))
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
    page = render_index(index_of(records, second))
    assert "the first version" in row_of(page, first) and "no image" in row_of(page, second)
    text = Page(render_index(index_of({}))).text
    assert "There are no versions here" in text and "Nothing is published" in text


@pytest.mark.parametrize("field", ["output", "gate", "name", "message", "fingerprint", "previous"])
def test_names_are_shown_as_text_everywhere(field: str) -> None:
    for name in HOSTILE:
        parts = {"gate": "drift", "name": "a", "message": "b", field: name}
        violations = (Violation(parts["gate"], parts["name"], Severity.ERROR, parts["message"]),)
        made = {key: name for key in ("fingerprint", "previous") if key == field}
        records = records_of(2, state=VersionState.REFUSED, refusals=violations, accepted=(name,), **made)
        outer = {field: name} if field == "output" else {}
        page = render_index(index_of(records, **outer))
        read = Page(page)
        assert page.count("<script") == 1 and page.count("<style") == 1
        assert not any(attribute.startswith("on") for attribute in [name for _, name, _ in read.attributes])
        assert "\u202e" not in page and "\x00" not in page
        assert all(re.fullmatch(r"versions/\w+/[\w.]+", link) for link in read.links)
        page.encode()
        if field in ("message", "name") and name.isprintable() and len(name) < 60:
            assert name in read.text


def test_a_page_of_many_versions_stays_small() -> None:
    records = records_of(1_000)
    old = sorted(records)[0]
    page = render_index(index_of(records, old))
    assert len(page.encode()) < 1_000_000
    assert re.findall(r'id="v-(\w+)"', page) == [*sorted(records, reverse=True)[: MAX_VERSIONS - 1], old]
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
        (output / "versions" / version).mkdir(parents=True)
        document = {**json.loads(good.dumps()), "version": version, **values}
        (output / "versions" / version / "version.json").write_text(json.dumps(document))
    (output / "versions" / "20260105T000000Z").mkdir()
    (output / "versions" / "20260106T000000Z").mkdir()
    (output / "versions" / "20260106T000000Z" / "version.json").write_bytes(b"\xff{[")
    (output / "versions" / "no version").mkdir()
    (output / "latest.json").write_text('{"format_version": 1, "version": "x"}')
    write_index(str(output))
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
        directory.mkdir(parents=True)
        (directory / "version.json").write_text(record.dumps())
        (directory / "dataset.json").write_text("{}")
    (tmp_path / "versions" / second / "report.html").write_text("")
    (tmp_path / "versions" / second / "pinned.json").write_text("{}")
    (tmp_path / "latest.json").write_text(Pointer(second, "f" * 64, _NOW).dumps())
    page = render_index(gather_index(str(tmp_path), _NOW))
    links = Page(page).links
    assert len(links) == 4 and all((tmp_path / link).is_file() for link in links)
    assert "pinned" in row_of(page, second) and "pinned" not in row_of(page, third)
    assert "drawn 2026-11-21 02:00 UTC" in page
    write_index(str(tmp_path))
    assert render_index(gather_index(str(tmp_path), _NOW)) == page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "latest.json", "versions"]


def test_a_pointer_to_a_missing_version_is_reported(tmp_path: Path) -> None:
    (tmp_path / "latest.json").write_text(Pointer("20260101T000000Z", "f" * 64, _NOW).dumps())
    data = gather_index(str(tmp_path), _NOW)
    text = Page(render_index(data)).text
    assert "Readers get nothing" in text and "20260101T000000Z, which is missing" in text
    assert f"shardwright rollback {tmp_path}" in text


def test_bars_show_how_many_records_versions_have() -> None:
    records = records_of(4)
    last = sorted(records)[-1]
    records[last] = replace(records[last], state=VersionState.REFUSED, records=501)
    page = render_index(index_of(records))
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
        ("/a/versions/1", ("/a/versions/1", "")),
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
    (tmp_path / "versions" / version).mkdir(parents=True, exist_ok=True)
    (tmp_path / "versions" / version / "version.json").write_text(json.dumps(with_digest(document)))
    (tmp_path / "latest.json").write_text(Pointer(version, "f" * 64, _NOW).dumps())
    write_index(str(tmp_path))
    assert row_of((tmp_path / "index.html").read_text(), version)


def test_the_page_loads_nothing_and_runs_only_its_own_script() -> None:
    page = render_index(index_of(records_of(3)))
    assert "default-src 'none'" in page.replace("&#39;", "'")
    assert not Page(page).of("src") and "@import" not in page and "url(" not in page.replace("url(#", "")
    assert "http://" not in page and "https://" not in page
