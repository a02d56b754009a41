"""Reads Dockerfiles, as far as the tests need it."""

from __future__ import annotations

import re
from pathlib import Path


def steps_of(path: Path) -> list[tuple[str, str]]:
    """Returns every instruction of a Dockerfile and the text after it, including continuation lines."""
    joined = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def instructions(path: Path, name: str) -> list[list[str]]:
    """Returns the words of every instruction of a kind."""
    return [rest.split() for kind, rest in steps_of(path) if kind == name]


def allowed_files(path: Path) -> set[str]:
    """Returns what the .dockerignore beside a Dockerfile does not ignore."""
    lines = path.with_name("Dockerfile.dockerignore").read_text().splitlines()
    return {line[1:] for line in lines if line.startswith("!")}


def copied_files(path: Path) -> set[str]:
    """Returns what a Dockerfile copies from the repository."""
    copies = [words for words in instructions(path, "COPY") if not words[0].startswith("--from")]
    return {source for words in copies for source in words[:-1]}
