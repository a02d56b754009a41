"""Shared code for the tests of archives: makes zips and tars, and lists and reads them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import zstandard

from helpers.hostile import picture
from helpers.listing import found_in
from shardwright.core import storage
from shardwright.core.images.read import read_image
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId

PACKERS = {
    ".tar": bytes,
    ".tar.gz": lambda data: gzip.compress(data, 1, mtime=0),
    ".tar.bz2": bz2.compress,
    ".tar.xz": lzma.compress,
    ".tar.zst": lambda data: zstandard.ZstdCompressor().compress(data),
}
#: Forms of tars.
FORMS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
#: Some members in class folders.
PICTURES = {
    f"{name}/{i}.png": picture(i) for i, name in enumerate(("ant", "bee", "ant", "bee", "cat", "cat"))
}
Members = Mapping[str, bytes] | Iterable[tuple[str | zipfile.ZipInfo, bytes]]


def _pairs(members: Members) -> list[tuple[Any, bytes]]:
    return list(members.items() if isinstance(members, Mapping) else members)


def zip_of(members: Members, method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"") -> bytes:
    """Returns a zip as the standard library writes it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.comment = comment
        for name, data in _pairs(members):
            info = name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            archive.writestr(info, data, method if info.compress_type == zipfile.ZIP_STORED else None)
    return buffer.getvalue()


def tar_info(name: str, size: int = 0, **values: Any) -> tarfile.TarInfo:
    """Returns a tar header with its own time."""
    info = tarfile.TarInfo(name)
    info.size, info.mtime = size, 1_600_000_000
    for field, value in values.items():
        setattr(info, field, value)
    return info


def tar_of(members: Members, form: int = tarfile.PAX_FORMAT) -> bytes:
    """Returns a tar as the standard library writes it; a name may be a whole `TarInfo`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, encoding="utf-8") as archive:
        for name, data in _pairs(members):
            info = name if isinstance(name, tarfile.TarInfo) else tar_info(name, len(data))
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def tree_members(root: Path, top: str = "") -> dict[str, bytes]:
    """Returns the files of a folder by their paths in it."""
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return {top + path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def list_refs(path: Path | str, source: str = "archives", **settings: Any) -> list[Any]:
    """Returns all references in an input, listed in parts as workers do."""
    remote = storage.is_remote(str(path))
    directory = Path(tempfile.mkdtemp()) if remote else Path(path).parent / "spool-of-test"
    directory.mkdir(exist_ok=True)  # like the command; workers never create a removed folder again
    return found_in(path, settings, source, directory)[1]


def by_key(found: Iterable[ImageRef | ClassId]) -> dict[str, ImageRef]:
    """Returns references by key; no key may occur twice."""
    refs = [ref for ref in found if isinstance(ref, ImageRef)]
    keys = {ref.key: ref for ref in refs}
    assert len(keys) == len(refs), sorted(ref.key for ref in refs)
    return keys


def read_all(refs: Mapping[str, ImageRef]) -> dict[str, bytes | str]:
    """Returns the bytes of all candidates, or the reason code if one has a fault."""
    read: dict[str, bytes | str] = {}
    for key, ref in refs.items():
        if ref.is_candidate:
            try:
                read[key] = read_image(ref, 10**8)
            except ImageFault as fault:
                read[key] = str(fault.reason)
        else:
            read[key] = ref.reason
    return read


def listed(tmp_path: Path, data: bytes, name: str) -> dict[str, bytes | str]:
    """Returns the outcome of each member of an archive, by its key without the archive's name."""
    path = tmp_path / name
    path.write_bytes(data)
    return {key.removeprefix(f"{name}!"): value for key, value in read_all(by_key(list_refs(path))).items()}
