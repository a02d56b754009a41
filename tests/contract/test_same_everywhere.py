"""For every source, threads, the order of listings, the input's place and a resumed run change nothing.

The input's place is another folder, or a bucket.
"""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers.annotation_sets import coco, voc, yolo
from helpers.annotation_sets.formats import FORMATS, Format
from helpers.annotation_sets.manifest_rows import put_imagenet, row_of
from helpers.array_files import colors, digits, grays, write_cifar10, write_mnist
from helpers.cloud import storage_emulator, upload
from helpers.embedded import HUGGING_FACE
from helpers.hostile import check_books, document, shard_hashes
from helpers.listing import listed, put_photos
from helpers.manifests import write_jsonl
from helpers.packing import PACKERS, tar_of, tree_members, zip_of
from helpers.repository import PHOTOS
from helpers.tfrecords import JPEGS, write

from shardwright.pipelines.convert import convert
from shardwright.schemas.configuration.kinds import SOURCES

_PICTURES = sorted(path for path in PHOTOS.rglob("*") if path.is_file())[::6]


def _class_folders(root: Path) -> Path:
    for path in _PICTURES:
        (root / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path.parent.name / path.name)
    (root / "notes.txt").write_text("no image")
    (root / "birds" / "bad.jpg").write_bytes(b"\xff\xd8\xff\xe0 and no more")
    return root


def _file_names(root: Path) -> Path:
    root.mkdir()
    for number, path in enumerate(_PICTURES):
        shutil.copy(path, root / f"{path.parent.name}{number}{path.suffix}")
    return root


def _manifest(root: Path) -> Path:
    _class_folders(root)
    with (root / "list.csv").open("w", newline="") as file:
        rows = [(f"{path.parent.name}/{path.name}", path.parent.name) for path in _PICTURES]
        csv.writer(file).writerows([("path", "label"), *rows, ("nowhere.jpg", "birds")])
    return root / "list.csv"


def _archive(name: str, pack: Callable[[Mapping[str, bytes]], bytes]) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        members = tree_members(_class_folders(root / "tree"))
        shutil.rmtree(root / "tree")
        (root / name).write_bytes(pack(members))
        return root

    return make


def _webdataset(root: Path) -> Path:
    root.mkdir()
    for shard in range(2):
        members = {}
        for number, path in enumerate(_PICTURES[shard::2]):
            members[f"{number:06d}{path.suffix}"] = path.read_bytes()
            members[f"{number:06d}.cls"] = str(number % 3).encode()
        (root / f"shard-{shard:03d}.tar").write_bytes(tar_of(members))
    return root


def _tfrecord(root: Path) -> Path:
    for number in range(4):
        records = [{"image": data, "label": i, "image/filename": f"{i // 2}"} for i, data in enumerate(JPEGS)]
        write(root / f"part-{number}.tfrecord.gz", records, "gzip" if number % 2 else "none")
    return root


def _arrays(root: Path) -> Path:
    root.mkdir()
    flat = colors(12, 16).transpose(0, 3, 1, 2).reshape(12, -1)
    np.savez_compressed(root / "a.npz", images=np.asfortranarray(flat), labels=digits(12))
    return root


def _embedded(name: str) -> Callable[[Path], Path]:
    return lambda root: Path(shutil.copytree(HUGGING_FACE / name, root))


def _stored_npz(root: Path) -> Path:
    root.mkdir()
    np.savez(root / "a.npz", x_train=np.asfortranarray(grays(20)), y_train=digits(20))
    return root / "a.npz"


def _cifar(root: Path) -> Path:
    write_cifar10(root / "cifar-10-batches-py")
    shutil.make_archive(str(root / "cifar-10-python"), "gztar", root, "cifar-10-batches-py")
    shutil.rmtree(root / "cifar-10-batches-py")
    return root / "cifar-10-python.tar.gz"


def _darknet(root: Path) -> Path:
    yolo.put_darknet(root, yolo.DARKNET, "data/")
    (root / "train.txt").write_text("C:\\old\\eagle.jpg\ndata/obj_train_data/apple.jpg\n/old/house.jpg\n")
    return root


def _moved(root: Path) -> Path:
    document = coco.coco_of(put_photos(root / "data"))
    document["images"][1]["file_name"] = "C:\\photos\\apple.jpg"
    document["images"][2]["file_name"] = "/home/ann/house.jpg"
    return coco.save(root / "labels.json", document).parent


def _voc_pair(root: Path) -> Path:
    voc.put_xml(root / "labels", put_photos(root / "data"))
    (root / "labels" / "apple.xml").rename(root / "labels" / "7.xml")
    return root


def _path_lists(root: Path) -> Path:
    put_imagenet(root)
    return root


def _faulty(form: Format) -> Callable[[Path], Path]:
    """Writes a set of which an image is missing, and another one has bad annotations."""

    def make(root: Path) -> Path:
        form.put(root)
        form.image_in(root, "eagle").unlink()
        if form.damage:
            form.damage.apply(root)
        return root / form.folder

    return make


class Case(NamedTuple):
    """A kind of input: how to create it, its settings (`{}` is its folder), and whether it has masks."""

    make: Callable[[Path], Path]
    settings: Mapping[str, str] = MappingProxyType({})
    has_masks: bool = False


_SOURCES = {
    "class_folders": Case(_class_folders),
    "file_names": Case(_file_names, {"source": "file_names", "label_regex": r"(?P<label>[a-z]+)\d+.*"}),
    "manifest": Case(_manifest),
    "zip": Case(_archive("a.zip", zip_of)),
    "tar": Case(_archive("a.tar", tar_of)),
    "tar.gz": Case(_archive("a.tar.gz", lambda members: PACKERS[".tar.gz"](tar_of(members)))),
    "webdataset": Case(_webdataset),
    "tfrecord": Case(_tfrecord),
    "parquet": Case(_embedded("hub")),
    "arrow": Case(_embedded("saved")),
    "arrays": Case(_arrays, {"source": "arrays", "pixel_shape": "16x16x3"}),
    "npz": Case(_stored_npz, {"source": "arrays"}),
    "cifar": Case(_cifar, {"source": "arrays"}),
    "mnist": Case(lambda root: write_mnist(root, packed=True), {"source": "arrays"}),
    "path lists": Case(_path_lists),
    "objects": Case(
        lambda root: write_jsonl(root / "rows.jsonl", map(row_of, put_photos(root))), {"layout": "detection"}
    ),
}
_CASES = {
    **_SOURCES,
    "darknet": Case(_darknet, {"layout": "detection"}),
    "paths of another machine": Case(_moved, {"layout": "detection"}),
    "voc in two folders": Case(_voc_pair, {"layout": "detection"}),
    **{
        name: Case(_faulty(form), {"layout": form.layout, **form.settings}, bool(form.mask))
        for name, form in FORMATS.items()
    },
}


class _Backwards(contextlib.AbstractContextManager[Any], Iterator["os.DirEntry[str]"]):
    """Returns the result of `os.scandir` in reverse order."""

    def __init__(self, entries: Iterator[os.DirEntry[str]]) -> None:
        with contextlib.closing(entries):  # type: ignore[type-var]
            self._entries = iter(sorted(entries, key=lambda entry: entry.name, reverse=True))

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)

    def close(self, *_: object) -> None:
        pass

    __exit__ = close


def _list_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reverses the listings of folders, and the references of each part."""
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path=".": _Backwards(scan(path)))
    for name in SOURCES:
        module = import_module(f"shardwright.core.sources.{name}")
        lists = {field: _backwards(getattr(module.SOURCE, field)) for field in ("list_part", "parts")}
        monkeypatch.setattr(module, "SOURCE", replace(module.SOURCE, **lists))


def _backwards(items: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
    return lambda *given: reversed(list(items(*given)))


Made = tuple[str, dict[str, str], dict[str, Any]]


def _put(name: str, tmp_path: Path) -> tuple[str, Callable[[object], dict[str, str]]]:
    """Makes the input of a kind below `home`; returns its path there, and its settings for any home."""
    case = _CASES[name]
    (tmp_path / "home").mkdir()
    path = case.make(tmp_path / "home" / "in").relative_to(tmp_path / "home")
    return str(path), lambda home: {
        name: text.replace("{}", f"{home}/in") for name, text in case.settings.items()
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", _CASES)
def test_the_dataset_is_the_same_everywhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes, listings in another order and the input elsewhere end what threads began."""
    path, settings_in = _put(name, tmp_path)
    out = tmp_path / "out"

    def made(home: Path, pool: str, **more: Any) -> Made:
        settings = {"splits": "a=0.6,b=0.4", "shards": 2, "max_bad_fraction": 1, **settings_in(home), **more}
        convert(input=home / path, output=out, verify="none", beam_options=[f"--pool={pool}"], **settings)
        check_books(out)
        ledger = document(out)["ledger"]
        assert ledger["written"] >= 2
        return document(out)["fingerprint"], shard_hashes(out), ledger

    first = made(tmp_path / "home", "threads")
    kept, *others = sorted(out.glob("*.tfrecord"), key=lambda path: -path.stat().st_size)
    for shard in others:
        shard.unlink()
    state = kept.stat()
    (tmp_path / "home").rename(tmp_path / "elsewhere")
    _list_backwards(monkeypatch)
    assert made(tmp_path / "elsewhere", "processes", resume=True) == first
    # References hold the paths of masks, so images with masks are converted again after a move.
    if not _CASES[name].has_masks:
        assert kept.stat().st_mtime_ns == state.st_mtime_ns, "the finished shard is not used again"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    with storage_emulator() as made:
        yield made


@pytest.mark.parametrize("name", _SOURCES)
def test_an_input_in_a_bucket_gives_the_same_records(name: str, tmp_path: Path, bucket: Any) -> None:
    """That all formats of annotations are listed in a bucket is shown by `test_annotation_sources.py`."""
    path, settings_in = _put(name, tmp_path)
    found = []
    for home in (str(tmp_path / "home"), upload(bucket, tmp_path / "home", f"home of {name}")):
        spool = tmp_path / f"spool{len(found)}"
        spool.mkdir()
        settings = {"layout": "classification", **settings_in(home)}
        made = listed(f"{home}/{path}", spool=spool, **settings).converted().items()
        found.append({key: (item.example, item.entry.outcome, item.entry.reason) for key, item in made})
    assert found[0] == found[1] and sum(bool(example) for example, *_ in found[0].values()) >= 2
