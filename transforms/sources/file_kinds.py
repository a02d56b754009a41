"""What the name of a file that does not claim to be an image says of its content."""

from __future__ import annotations

#: Kinds of files that are never images by their name; those of other names are looked into.
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
    """Whether a file may be an image as far as its name says, so that its bytes have to be looked at."""
    return extension_of(name) not in _OTHER_KINDS
