"""The documentation site is built without a warning; its pages and tables show what the code has."""

from __future__ import annotations

import html
import json
import re
import runpy
from collections import Counter
from pathlib import Path

import pytest
from helpers.fewer_imports import late
from helpers.headless import CHROMIUM
from helpers.repository import ROOT
from markdown_it import MarkdownIt
from PIL import Image

from shardwright import loader, transforms
from shardwright.pipelines.cli import COMMANDS
from shardwright.schemas.codes import ExitCode, FilterReason, FindingCode, QuarantineReason
from shardwright.schemas.configuration.gates import Thresholds
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS
from shardwright.schemas.ledger import Entry, ShardHeader
from shardwright.schemas.sidecars import SIDE_FILES

mkdocs_build = late("mkdocs.commands.build")
mkdocs_config = late("mkdocs.config")

#: Pages in the repository and on the site.
PAGES = {
    "README.md": "index.html",
    "CHANGELOG.md": "CHANGELOG.html",
    "CONTRIBUTING.md": "CONTRIBUTING.html",
    **{
        path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
    },
}
#: What a page consists of. A list or table that one of the two readers of Markdown does not see becomes text.
PARTS = ("table", "tr", "td", "li", "pre", "h2", "h3", "img")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    # It is strict, so a warning ends it.
    config = mkdocs_config.load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
    mkdocs_build.build(config)
    return folder


def article(site: Path, page: str) -> str:
    """Returns the HTML of a page without the frame that all pages have."""
    return (site / page).read_text().partition("<article")[2].partition("</article>")[0]


def words(site: Path, page: str) -> str:
    return html.unescape(re.sub("<[^>]+>", "", article(site, page)))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_same_parts_on_the_site_as_in_the_repository(site: Path, page: str) -> None:
    in_repository = MarkdownIt("commonmark").enable("table").render((ROOT / page).read_text())
    on_site = re.sub("<nav.*?</nav>", "", article(site, PAGES[page]), flags=re.DOTALL)
    expected, found = (Counter(re.findall(r"<(\w+)", text)) for text in (in_repository, on_site))
    assert {part: found[part] for part in PARTS} == {part: expected[part] for part in PARTS}


def test_tables_have_no_bar_inside_a_cell() -> None:
    """On the site, a bar in code belongs to the cell; in the repository it begins the next one."""
    for page in PAGES:
        for block in re.findall(r"(?:^\|.*\n)+", (ROOT / page).read_text(), re.MULTILINE):
            assert len({line.count("|") for line in block.splitlines()}) == 1, f"{page}: {block[:200]}"


def test_graphs_are_left_for_mermaid_to_draw(site: Path) -> None:
    graphs = (ROOT / "docs" / "ARCHITECTURE.md").read_text().count("```mermaid")
    assert article(site, "ARCHITECTURE.html").count('<pre class="mermaid"><code>flowchart') == graphs > 0


def test_the_reference_has_every_command_and_option(site: Path) -> None:
    text = words(site, "reference/commands.html")
    for name in COMMANDS:
        assert f"shardwright {name}" in text
    for name in CONVERT_SETTINGS:
        assert f"--{name}" in text, name
    for option in ("--job", "--fail_on", "--against", "--thresholds", "--contact_sheet", "--pin"):
        assert option in text, option
    assert "NAME|FILE" in text and r"[a-z]+)\d+\.jpg" in text
    assert "{none,gzip,zlib}" in text.replace(", ", ",")


def test_the_reference_has_every_key_of_the_files_that_users_write(site: Path) -> None:
    text = words(site, "reference/configuration.html")
    keys = ("keep_days", "hooks.on_failure", "min_images_per_split", "features.NAME.fill")
    for name in (*keys, *Thresholds.model_fields):
        assert name in text, name


def test_the_reference_has_every_public_name(site: Path) -> None:
    text = article(site, "reference/api.html")
    for module, names in (("loader", loader.__all__), ("transforms", transforms.__all__)):
        for name in names:
            assert f'id="shardwright.{module}.{name}"' in text, name


def test_pages_link_to_files_of_the_repository_that_are_on_the_site(site: Path) -> None:
    home = article(site, "index.html")
    for target in re.findall(r'(?:href|src)="([^"#:]+)', home):
        assert (site / target).is_file(), target
    assert "examples/custom_pipeline.py" in home and "converting.html" in home


TEXT = (ROOT / "docs" / "dataset.md").read_text()
#: Files of the first table that are not at the top of a dataset, and the shards.
DEEPER = {
    "train-00000-of-00016.tfrecord",
    "_card/.samples.jpg",
    "_index/train-00000-of-00016.idx",
    "_shards/train-00000-of-00016.jsonl.gz",
    "_work/outcome.json",
    "_work/lease.json",
}


def first_cells(text: str) -> set[str]:
    """Returns the words in code in the first cells of the tables of a text."""
    cells = re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def section(heading: str) -> str:
    """Returns a section of the page, with those below it."""
    level = heading.partition(" ")[0]
    found = re.search(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", TEXT, re.DOTALL | re.MULTILINE
    )
    assert found is not None, heading
    return found[1]


def test_every_file_of_a_dataset_is_listed() -> None:
    listed = first_cells(TEXT.partition("\n### ")[0]) | first_cells(section("## A directory of versions"))
    listed = {name.removeprefix(".../").rstrip("/") for name in listed}
    assert {
        name for name in SIDE_FILES if not name.startswith(("_card", "_index", "_shards", "_work"))
    } <= listed
    assert first_cells(TEXT.partition("\n### ")[0]) <= set(SIDE_FILES) | DEEPER


def test_a_real_dataset_has_only_listed_files(measured_dataset: Path) -> None:
    listed = first_cells(TEXT.partition("\n### ")[0])
    shard = re.compile(r"(train|validation|test)-\d{5}-of-\d{5}")
    for path in measured_dataset.rglob("*"):
        name = shard.sub("train-00000-of-00016", path.relative_to(measured_dataset).as_posix())
        assert path.is_dir() or name in listed, name


def test_the_fields_of_the_files_are_listed(measured_dataset: Path) -> None:
    for file, heading in (("dataset.json", "## dataset.json"), ("findings.json", "## findings.json")):
        fields = first_cells(section(heading).partition("\n### ")[0])
        # A dataset has provenance only if the user states it, and types of samples only with some settings.
        left_out = {"format_version", "provenance", "dtypes"}
        assert set(json.loads((measured_dataset / file).read_text())) - left_out == fields - left_out, file


def test_the_fields_of_a_ledger_are_listed() -> None:
    header, lines = section("## A shard's ledger").split("Each further line")
    assert first_cells(header) == {*ShardHeader.__dataclass_fields__, "ledger_version"}
    assert first_cells(lines) | {"key", "outcome"} == set(Entry._fields)


def test_every_code_is_in_its_table() -> None:
    filtered, quarantined = section("## Reasons").split("Quarantined, because", 1)
    assert first_cells(filtered) == set(FilterReason)
    assert first_cells(quarantined) - {"TOO_MANY_..."} == set(QuarantineReason)
    findings = section("## Findings of a validation")
    assert first_cells(findings) | {FindingCode.EXPECTATION} == set(FindingCode)
    assert f"`{FindingCode.EXPECTATION}`" in findings


def test_every_exit_code_is_in_its_table() -> None:
    text = (ROOT / "docs" / "converting.md").read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == sorted(ExitCode)


#: The repository stays small.
MAX_BYTES = 150_000


def take_picture(target: Path) -> None:
    script = runpy.run_path(str(ROOT / "docs" / "site_build" / "report_screenshot.py"))
    assert script["main"]([str(target)]) == 0


@pytest.mark.parametrize("name", ["report.webp", "demo.png"])
def test_a_stored_picture_is_small(name: str) -> None:
    picture = ROOT / "docs" / name
    assert picture.stat().st_size <= MAX_BYTES
    with Image.open(picture) as image:
        assert min(image.size) > 500


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.slow
def test_the_picture_shows_the_report(tmp_path: Path) -> None:
    target = tmp_path / "report.webp"
    take_picture(target)
    assert target.stat().st_size <= MAX_BYTES
    with Image.open(target) as image, Image.open(ROOT / "docs" / "report.webp") as stored:
        assert image.size == stored.size
        left, right = image.crop((0, 0, 1200, 1380)), image.crop((1200, 0, 2400, 1380))
    assert all(len(half.convert("RGB").getcolors(1 << 24)) > 200 for half in (left, right))


def test_without_chromium_the_picture_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.webp"
    target.write_bytes(b"stored")
    monkeypatch.setenv("PATH", "")
    take_picture(target)
    assert "stays as it is, because Chromium is not installed" in capsys.readouterr().out
    assert target.read_bytes() == b"stored"
