"""Judges by their names whether files without an image's extension could be images."""

from __future__ import annotations

#: Extensions of files that are never images; the first bytes of all other files are checked.
_OTHER_KINDS = frozenset(
    """txt json jsonl xml csv tsv md html htm yaml yml toml ini cfg log py ipynb js css sh bat c h cpp java
    pdf doc docx xls xlsx ppt pptx mp3 wav flac ogg mp4 avi mov mkv webm npy npz pkl pickle pt pth h5 hdf5
    mat parquet tfrecord db sqlite cls caption sha256 md5""".split()  # noqa: SIM905
)


def extension_of(name: str) -> str:
    """Returns a file name's extension in lower case; empty if it has none."""
    stem, dot, extension = name.rpartition(".")
    return extension.lower() if stem and dot else ""


def could_be_image(name: str) -> bool:
    """Returns whether a file with this name could be an image, so that its bytes must be checked."""
    return extension_of(name) not in _OTHER_KINDS
