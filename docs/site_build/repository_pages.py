"""Adds the README, the changelog and every other file that the pages of docs/ link to.

Links in the pages are right for somebody who reads them in the repository. On the site, the files of docs/
are at the top, the README is the home page, and other files keep their paths. So the links are rewritten.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent.parent
#: Pages of the site outside docs/, whether or not another page links to them.
ALWAYS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#:\s]+)(?=[#)])")


def site_path(path: str) -> str:
    """Returns where a file is on the site.

    >>> site_path("docs/dataset.md"), site_path("README.md"), site_path("examples/LICENSE.md")
    ('dataset.md', 'index.md', 'examples/LICENSE.md')
    """
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def linked_files(path: str) -> list[str]:
    """Returns the files that a page links to, by their paths in the repository."""
    folder = posixpath.dirname(path)
    links = _LINK.findall((ROOT / path).read_text(encoding="utf-8"))
    return [posixpath.normpath(posixpath.join(folder, link)) for link in links]


def with_site_links(text: str, path: str) -> str:
    """Returns the text of a page with the links that it needs on the site.

    Args:
      text: The page, in Markdown.
      path: Its path in the repository.
    """

    def replaced(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match["path"]))
        return posixpath.relpath(site_path(target), posixpath.dirname(site_path(path)) or ".")

    return _LINK.sub(replaced, text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files outside docs/ that a page links to, and those that they link to."""
    pages = [f"docs/{file.src_uri}" for file in files.documentation_pages()] + list(ALWAYS)
    seen = set(pages)
    for page in pages:  # grows while it is read
        found = [path for path in linked_files(page) if path not in seen and (ROOT / path).is_file()]
        seen.update(found)
        pages += [path for path in found if path.endswith(".md")]
    for path in sorted(seen):
        if not path.startswith("docs/"):
            files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites the links of a page, unless it was generated."""
    source = page.file.abs_src_path
    if source is None or not Path(source).is_relative_to(ROOT):
        return markdown
    return with_site_links(markdown, Path(source).relative_to(ROOT).as_posix())
