"""For every source, threads, the order of listings, the input's place and a resumed run change nothing."""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers.annotation_sets.box_table import HEADER as BOX_HEADER
from helpers.annotation_sets.box_table import put as put_box_table
from helpers.annotation_sets.box_table import rows_of as box_rows_of
from helpers.annotation_sets.cityscapes import put_city
from helpers.annotation_sets.coco import coco_of
from helpers.annotation_sets.coco import save as save_coco
from helpers.annotation_sets.cvat import put_set as put_cvat_set
from helpers.annotation_sets.json_exports import create_ml_of, put_class_columns, put_label_studio
from helpers.annotation_sets.kitti import put_kitti
from helpers.annotation_sets.labelme import put_labelme
from helpers.annotation_sets.objects_column import row_of
from helpers.annotation_sets.open_images import put_csv, rows_of
from helpers.annotation_sets.path_lists import put_imagenet
from helpers.annotation_sets.semantic_masks import put_set as put_masks
from helpers.annotation_sets.voc import put_voc
from helpers.annotation_sets.yolo import SPLITS as YOLO_SPLITS
from helpers.annotation_sets.yolo import YAML as YOLO_YAML
from helpers.annotation_sets.yolo import put_set as put_yolo
from helpers.array_files import colors, digits
from helpers.hostile import check_books, document, shard_hashes
from helpers.listing import put_photos
from helpers.manifests import write_jsonl
from helpers.packing import PACKERS, tar_of, tree_members, zip_of
from helpers.records import balanced
from helpers.repository import PHOTOS
from helpers.tfrecords import JPEGS, write

from shardwright.pipelines.convert import convert

_PICTURES = sorted(path for path in PHOTOS.rglob("*") if path.is_file())[::6]
_NAMES = ("eagle", "apple", "house", "seagull", "rose", "coach")
_DETECTION = {"layout": "detection"}


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


def _coco(root: Path) -> Path:
    return save_coco(
        root / "annotations" / "instances_val2017.json", coco_of(put_photos(root / "val2017", _NAMES))
    )


def _voc(root: Path) -> Path:
    put_voc(root, _NAMES)
    return root


def _yolo(root: Path) -> Path:
    put_yolo(root, YOLO_SPLITS, YOLO_YAML)
    return root


def _open_images(root: Path) -> Path:
    photos = put_photos(root / "images", _NAMES)
    return put_csv(root / "boxes.csv", rows_of(photos))


def _box_table(root: Path) -> Path:
    photos = put_photos(root / "images", _NAMES)
    return put_box_table(root / "train_labels.csv", BOX_HEADER, box_rows_of(photos)[::-1])


def _label_studio(root: Path) -> Path:
    return put_label_studio(root, put_photos(root / "images", _NAMES))


def _create_ml(root: Path) -> Path:
    return save_coco(root / "_annotations.createml.json", create_ml_of(put_photos(root, _NAMES)))


def _class_columns(root: Path) -> Path:
    return put_class_columns(root, put_photos(root, _NAMES))


def _cvat(root: Path) -> Path:
    put_cvat_set(root, _NAMES)
    return root


def _labelme(root: Path) -> Path:
    put_labelme(root, _NAMES)
    return root


def _kitti(root: Path) -> Path:
    put_kitti(root / "training", _NAMES)
    return root


def _cityscapes(root: Path) -> Path:
    put_city(root, "train", _NAMES)
    return root


def _objects(root: Path) -> Path:
    write_jsonl(root / "metadata.jsonl", [row_of(photo) for photo in put_photos(root, _NAMES)])
    return root


def _path_lists(root: Path) -> Path:
    put_imagenet(root)
    return root


def _semantic_masks(root: Path) -> Path:
    put_masks(root / "images", root / "masks", _NAMES)
    return root / "images"


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


class Case(NamedTuple):
    """A kind of input: how to create it, and its settings."""

    make: Callable[[Path], Path]
    source: str
    settings: dict[str, Any]


_CASES = {
    "class_folders": Case(_class_folders, "class_folders", {}),
    "file_names": Case(_file_names, "file_names", {"label_regex": r"(?P<label>[a-z]+)\d+.*"}),
    "manifest": Case(_manifest, "manifest", {}),
    "zip": Case(_archive("a.zip", zip_of), "archives", {}),
    "tar.gz": Case(_archive("a.tar.gz", lambda members: PACKERS[".tar.gz"](tar_of(members))), "archives", {}),
    "webdataset": Case(_webdataset, "webdataset", {}),
    "coco": Case(_coco, "coco", _DETECTION),
    "voc": Case(_voc, "voc", _DETECTION),
    "yolo": Case(_yolo, "yolo", _DETECTION),
    "cvat": Case(_cvat, "cvat", _DETECTION),
    "labelme": Case(_labelme, "labelme", _DETECTION),
    "kitti": Case(_kitti, "kitti", _DETECTION),
    "cityscapes": Case(_cityscapes, "cityscapes", _DETECTION),
    "objects": Case(_objects, "manifest", _DETECTION),
    "path lists": Case(_path_lists, "manifest", {}),
    "label_studio": Case(_label_studio, "label_studio", _DETECTION),
    "create_ml": Case(_create_ml, "create_ml", _DETECTION),
    "class_columns": Case(_class_columns, "class_columns", {"label_separator": "|", "unlabelled": "keep"}),
    "box_table": Case(_box_table, "box_table", _DETECTION),
    "open_images": Case(_open_images, "open_images", _DETECTION),
    "semantic_masks": Case(
        _semantic_masks,
        "semantic_masks",
        {"layout": "segmentation", "mask_dir": "masks", "class_names": "names"},
    ),
    "tfrecord": Case(_tfrecord, "tfrecord", {}),
    "arrays": Case(_arrays, "arrays", {"pixel_shape": "16x16x3"}),
}


class _Backwards:
    """Returns the result of `os.scandir` in reverse order."""

    def __init__(self, entries: Iterator[os.DirEntry[str]]) -> None:
        with contextlib.closing(entries):  # type: ignore[type-var]
            self._entries = iter(sorted(entries, key=lambda entry: entry.name, reverse=True))

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return self._entries

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)

    def __enter__(self) -> _Backwards:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


def _list_backwards(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Reverses the listings of folders, and the references of each part."""
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path=".": _Backwards(scan(path)))
    module = import_module(f"shardwright.transforms.sources.{source}")
    found = module.SOURCE

    def list_part(part: Any, context: Any) -> Iterator[Any]:
        return reversed(list(found.list_part(part, context)))

    def split(item: Any, context: Any) -> Iterator[Any]:
        return reversed(list(found.split(item, context)))

    monkeypatch.setattr(module, "SOURCE", replace(found, list_part=list_part, split=split))


Made = tuple[str, dict[str, str], dict[str, Any]]


def _maker(name: str, tmp_path: Path) -> Callable[..., Made]:
    """Makes the input of a kind; returns what converts it and tells what came of it."""
    case = _CASES[name]
    path = case.make(_home(tmp_path) / "in").relative_to(tmp_path / "home")
    (tmp_path / "home" / "names").write_text("".join(f"class {number}\n" for number in range(6)))

    def made(output: str, home: Path = tmp_path / "home", pool: str = "threads", **more: Any) -> Made:
        settings = {**case.settings}
        for setting, value in (("mask_dir", home / "in" / "masks"), ("class_names", home / "names")):
            if setting in settings:
                settings[setting] = value
        out = tmp_path / output
        settings |= {"splits": "a=0.6,b=0.4", "shards": 2, "max_bad_fraction": 0.9, **more}
        convert(input=home / path, output=out, beam_options=[f"--pool={pool}"], **settings)
        check_books(out)
        ledger = document(out)["ledger"]
        assert balanced(ledger) and ledger["written"] >= 5
        return document(out)["fingerprint"], shard_hashes(out), ledger

    return made


def _home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def _keep_one_shard(dataset: Path) -> Path:
    """Removes all shards but one that has records; returns that one."""
    kept, *others = sorted(dataset.glob("*.tfrecord"), key=lambda path: -path.stat().st_size)
    for shard in others:
        shard.unlink()
    return kept


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", _CASES)
def test_the_dataset_is_the_same_everywhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes, listings in another order and the input elsewhere end what threads began."""
    made = _maker(name, tmp_path)
    first = made("out")
    kept = _keep_one_shard(tmp_path / "out")
    state = kept.stat()
    shutil.move(tmp_path / "home", tmp_path / "elsewhere")
    _list_backwards(monkeypatch, _CASES[name].source)
    assert made("out", home=tmp_path / "elsewhere", pool="processes", resume=True) == first
    if "mask_dir" not in _CASES[name].settings:  # references hold the path of the masks, which moved
        assert kept.stat().st_mtime_ns == state.st_mtime_ns, "the finished shard is not used again"


@pytest.mark.slow
@pytest.mark.parametrize("name", _CASES)
def test_each_difference_alone(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _maker(name, tmp_path)
    first = made("one")
    assert made("processes", pool="processes") == first
    with monkeypatch.context() as patched:
        _list_backwards(patched, _CASES[name].source)
        assert made("backwards") == first
    _keep_one_shard(tmp_path / "one")
    assert made("one", resume=True) == first
    shutil.move(tmp_path / "home", tmp_path / "elsewhere")
    assert made("moved", home=tmp_path / "elsewhere") == first
