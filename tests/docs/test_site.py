"""The documentation site is built without a warning, and shows what the code has."""

from __future__ import annotations

import html
import logging
import re
from collections import Counter
from pathlib import Path

import pytest
from helpers.fewer_imports import late
from helpers.repository import ROOT
from markdown_it import MarkdownIt

from shardwright import loader, transforms
from shardwright.pipelines.cli import COMMANDS
from shardwright.schemas.configuration.settings_values import setting_fields
from shardwright.schemas.configuration.thresholds import Thresholds

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
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("mkdocs").addHandler(handler)
    try:
        config = mkdocs_config.load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
        mkdocs_build.build(config)
    finally:
        logging.getLogger("mkdocs").removeHandler(handler)
    assert not warnings
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
    for name in setting_fields():
        assert f"--{name}" in text, name
    for option in ("--job", "--fail_on", "--against", "--thresholds", "--contact_sheet", "--pin"):
        assert option in text, option
    assert "NAME|FILE" in text and r"[a-z]+)\d+\.jpg" in text
    assert "{none,gzip,zlib}" in text.replace(", ", ",")


def test_the_reference_has_every_key_of_the_files_that_users_write(site: Path) -> None:
    text = words(site, "reference/configuration.html")
    keys = ("keep_days", "hooks.on_failure", "min_images_per_split", "features.NAME.fill")
    for name in (*keys, *Thresholds.__dataclass_fields__):
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
