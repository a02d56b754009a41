"""Conversions of every kind of source, layout, format and split, and the digests of their current results."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
from helpers.manifests import write_csv, write_parquet
from helpers.packing import tar_of, zip_of
from helpers.repository import EXAMPLES
from PIL import Image

from shardwright.core.images.byte_ranges import tiff_of
from shardwright.core.images.encode import codec_versions
from shardwright.pipelines.convert import convert
from shardwright.pipelines.rebuild import rebuild
from shardwright.schemas.dataset import DATASET_JSON

Settings = Mapping[str, Any]
_CATEGORIES = [{"id": 3, "name": "cat"}, {"id": 8, "name": "dog"}]


def pictures(count: int) -> list[Path]:
    """Returns some of the example pictures, JPEG and PNG, always the same."""
    return sorted(path for path in EXAMPLES.rglob("*") if path.suffix in (".jpg", ".png"))[::5][:count]


def _others() -> tuple[Path, ...]:
    """Returns a JPEG and a PNG that `pictures` never returns."""
    found = sorted(EXAMPLES.rglob("*"))
    return tuple(
        next(path for path in found if path.suffix == suffix and path not in pictures(len(found)))
        for suffix in (".jpg", ".png")
    )


def _class_folders(root: Path) -> Path:
    for i, path in enumerate(pictures(12)):
        _copy(path, root / ("ant", "bee", "cat")[i % 3] / f"{i}{path.suffix}")
    return root


def _split_folders(root: Path) -> Path:
    for i, path in enumerate(pictures(10)):
        _copy(path, root / ("train", "val")[i % 2] / ("ant", "bee")[i // 2 % 2] / f"{i}{path.suffix}")
    return root


def _file_names(root: Path) -> Path:
    for i, path in enumerate(pictures(8)):
        _copy(path, root / f"{('ant', 'bee')[i % 2]}_{i}{path.suffix}")
    return root


def _beside(root: Path) -> Path:
    for i, path in enumerate(pictures(6)):
        image = _copy(path, root / ("ant", "bee")[i % 2] / f"{i}{path.suffix}")
        image.with_suffix(".json").write_text(json.dumps({"width_of": i, "caption": f"text {i}"}))
    return root


def _manifest(root: Path) -> Path:
    rows: list[tuple[object, ...]] = [("image", "label", "split", "price", "who")]
    for i, path in enumerate(pictures(9)):
        name = _copy(path, root / f"{i}{path.suffix}").name
        rows.append((name, f"class {i % 3}", ("train", "test")[i % 2], i / 4, f"person{i // 3}"))
    return write_csv(root / "list.csv", rows)


def _parquet(root: Path) -> Path:
    names = [_copy(path, root / f"{i}{path.suffix}").name for i, path in enumerate(pictures(6))]
    return write_parquet(root / "list.parquet", image=names, label=["ant", "bee", "cat"] * 2)


def _path_list(root: Path) -> Path:
    lines = []
    for i, path in enumerate(pictures(6)):
        lines.append(f"images/{_copy(path, root / 'images' / f'{i}{path.suffix}').name} {i % 2}")
    (root / "train.txt").write_text("\n".join(lines))
    return root


def _objects(root: Path, count: int = 5) -> Iterator[tuple[int, str, int, int]]:
    """Copies pictures to `images/`; yields number, name, width and height of each."""
    for i, path in enumerate(pictures(count)):
        image = _copy(path, root / "images" / f"{i}{path.suffix}")
        with Image.open(image) as opened:
            yield i, image.name, *opened.size


def _coco(root: Path) -> Path:
    images, annotations, segments = [], [], []
    for i, name, width, height in _objects(root):
        images.append({"id": 100 + i, "file_name": name, "width": width, "height": height})
        outline = [[4, 4, 40, 4, 40, 30, 4, 30]]
        annotations += [
            {
                "id": 2 * i + k, "image_id": 100 + i, "category_id": (3, 8)[k], "iscrowd": 0,
                "bbox": [4, 4, 36 - k, 26], "area": 900 - k, "segmentation": outline,
            }
            for k in range(2)
        ]  # fmt: skip
        mask = Image.new("RGB", (width, height))
        mask.paste((9, 0, 0), (4, 4, 40, 30))
        mask.save(_made(root / "annotations" / "panoptic") / f"{i}.png")
        segment = {"id": 9, "category_id": 3, "iscrowd": 0, "area": 936, "bbox": [4, 4, 36, 26]}
        segments.append({"image_id": 100 + i, "file_name": f"{i}.png", "segments_info": [segment]})
    things = [{**item, "isthing": 1} for item in _CATEGORIES]
    (root / "annotations" / "instances.json").write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": _CATEGORIES})
    )
    (root / "annotations" / "panoptic.json").write_text(
        json.dumps({"images": images, "annotations": segments, "categories": things})
    )
    return root


def _coco_instances(root: Path) -> Path:
    shutil.rmtree(_coco(root) / "annotations" / "panoptic")
    (root / "annotations" / "panoptic.json").unlink()
    return root


def _panoptic(root: Path) -> Path:
    (_coco(root) / "annotations" / "instances.json").unlink()
    return root


def _yolo(root: Path) -> Path:
    names = []
    for i, name, _, _ in _objects(root):
        (_made(root / "labels") / f"{i}.txt").write_text("0 0.5 0.5 0.4 0.25\n1 0.25 0.5 0.125 0.5 0.875\n")
        names.append(f"./images/{name}")
    (root / "train.txt").write_text("\n".join(names[:3]))
    (root / "val.txt").write_text("\n".join(names[3:]))
    (root / "data.yaml").write_text("train: train.txt\nval: val.txt\nnames: [cat, dog]\n")
    return root


def _voc(root: Path) -> Path:
    for i, name, width, height in _objects(root):
        (_made(root / "annotations") / f"{i}.xml").write_text(
            f"<annotation><filename>{name}</filename><size><width>{width}</width><height>{height}</height>"
            "<depth>3</depth></size><object><name>dog</name><difficult>1</difficult><bndbox><xmin>5</xmin>"
            "<ymin>6</ymin><xmax>30</xmax><ymax>29</ymax></bndbox></object></annotation>"
        )
    return root


def _labelme(root: Path) -> Path:
    for i, path in enumerate(pictures(4)):
        image = _copy(path, root / f"{i}{path.suffix}")
        with Image.open(image) as opened:
            width, height = opened.size
        shape = {"label": "cat", "shape_type": "polygon", "points": [[3, 3], [40, 5], [20, 30]]}
        document = {"imagePath": image.name, "imageWidth": width, "imageHeight": height, "shapes": [shape]}
        image.with_suffix(".json").write_text(json.dumps(document))
    return root


def _box_table(root: Path) -> Path:
    lines = ["filename,width,height,class,xmin,ymin,xmax,ymax"]
    for i, name, width, height in _objects(root):
        lines += [f"{name},{width},{height},{('cat', 'dog')[k]},{5 + k},6,40,{30 + i}" for k in range(2)]
    (root / "labels.csv").write_text("\n".join(lines))
    return root


def _masks(root: Path) -> Path:
    for i, name, width, height in _objects(root):
        pixels = np.zeros((height, width), np.uint8)
        pixels[: height // 2] = 1 + i % 2
        Image.fromarray(pixels).save(_made(root / "masks") / Path(name).with_suffix(".png").name)
    return root


def _members() -> Iterator[tuple[str, bytes]]:
    for i, path in enumerate(pictures(6)):
        yield f"{i:03}{path.suffix}", path.read_bytes()


def _webdataset(root: Path) -> Path:
    members = {}
    for i, (name, data) in enumerate(_members()):
        members |= {name: data, f"{i:03}.cls": b"%d" % (i % 2), f"{i:03}.json": b'{"price": %d}' % i}
    (_made(root) / "00000.tar").write_bytes(tar_of(members))
    return root


def _zip(root: Path) -> Path:
    members = {f"{('ant', 'bee')[i % 2]}/{name}": data for i, (name, data) in enumerate(_members())}
    (_made(root) / "pictures.zip").write_bytes(zip_of(members, zipfile.ZIP_STORED))
    return root / "pictures.zip"


def _arrays(root: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (12, 9, 7, 3), np.uint8)
    np.savez(_made(root) / "data.npz", x_train=pixels, y_train=np.arange(12) % 3)
    return root / "data.npz"


def _deep(root: Path) -> Path:
    """Writes pictures of 16 bits in color, of floating-point numbers, and of 8 bits, without rounding."""
    y, x = np.mgrid[0:19, 0:31]
    for i in range(4):
        deep = np.stack([x * 2000 + i, y * 3000 + x, (x * y * 97 + i * 5000) % 65536], -1).astype(np.uint16)
        floats = ((x * 8 - y * i) / 16).astype(np.float32)[..., None]
        folder = _made(root / ("ant", "bee")[i % 2])
        (folder / f"{i}.png").write_bytes(imagecodecs.png_encode(deep, 6))
        (folder / f"{i}.tif").write_bytes(tiff_of(deep))
        (folder / f"{i}_floats.tif").write_bytes(tiff_of(floats))
        _copy(pictures(4)[i], folder / f"photo{pictures(4)[i].suffix}")
    return root


def _bands(root: Path) -> Path:
    y, x, band = np.mgrid[0:19, 0:31, 0:6]
    for i in range(3):
        data = tiff_of((x * 2000 + y * 77 + band * (i + 1) * 1009).astype(np.uint16))
        (_made(root / ("ant", "bee")[i % 2]) / f"{i}.tif").write_bytes(data)
    return root


def _tfrecord(root: Path) -> Path:
    made = root.with_name("tfrecord-source")
    convert(
        input=str(_class_folders(root.with_name("tfrecord-input"))), output=str(made), shards=2, resize="24"
    )
    for path in made.glob("*.tfrecord"):
        _copy(path, root / path.name)
    return root


def _copy(path: Path, to: Path) -> Path:
    _made(to.parent)
    return Path(shutil.copyfile(path, to))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


_OTHER_LAYOUTS = ("imagenet", "tfds", "tfrecorder", "minimal", "tutorial", "raw", "raw_with_shape")
THREE = "train=0.6,validation=0.2,test=0.2"
#: Name -> function that writes the input, and the settings that differ from the defaults.
CASES: Mapping[str, tuple[Callable[[Path], Path], Settings]] = {
    "class_folders": (_class_folders, {}),
    "class_folders_resized": (_class_folders, {"resize": "40"}),
    "class_folders_fit": (_class_folders, {"resize": "30x20", "fit": "fit", "quality": 80}),
    "class_folders_pad": (_class_folders, {"resize": "32", "fit": "pad", "background": "#336699"}),
    "class_folders_cover": (_class_folders, {"resize": "32", "fit": "cover", "resample": "bicubic"}),
    "class_folders_contain": (_class_folders, {"resize": "32", "fit": "contain", "resample": "box"}),
    "class_folders_png": (_class_folders, {"resize": "32", "image_format": "png"}),
    "class_folders_webp": (_class_folders, {"resize": "32", "image_format": "webp"}),
    "class_folders_raw": (_class_folders, {"resize": "16", "image_format": "raw"}),
    "class_folders_gray": (_class_folders, {"resize": "32", "color": "gray"}),
    "class_folders_color_keep": (_class_folders, {"color": "keep"}),
    "class_folders_stripped": (_class_folders, {"strip_metadata": True}),
    "deep": (_deep, {"depth": "keep", "color": "keep"}),
    "deep_resized": (_deep, {"depth": "keep", "resize": "12x10", "fit": "pad", "background": "#336699"}),
    "deep_channels": (_bands, {"depth": "keep", "channels": 6, "resize": "9", "resample": "lanczos"}),
    "class_folders_splits": (_class_folders, {"splits": THREE, "shards": 2}),
    "class_folders_shards": (_class_folders, {"shards": 3, "seed": 7}),
    "class_folders_shard_size": (_class_folders, {"shard_size": "100kB"}),
    "class_folders_groups": (_class_folders, {"splits": THREE, "split_by": "([0-9])"}),
    "class_folders_limit": (_class_folders, {"limit": 5, "shards": 2}),
    "class_folders_dedupe": (_class_folders, {"dedupe": "exact", "shards": 2}),
    "class_folders_renamed": (_class_folders, {"rename_labels": "ant=insect,bee=insect"}),
    "class_folders_gzip": (_class_folders, {"compression": "gzip", "resize": "24"}),
    "class_folders_zlib": (_class_folders, {"compression": "zlib", "resize": "24"}),
    "split_folders": (_split_folders, {}),
    "file_names": (_file_names, {"source": "file_names", "label_regex": "(?P<label>[a-z]+)_.*"}),
    "metadata_beside": (_beside, {"extra_columns": "width_of:int,caption:string"}),
    "manifest": (_manifest, {"split_column": "split", "extra_columns": "price:float"}),
    "manifest_groups": (_manifest, {"splits": THREE, "group_column": "who"}),
    "parquet": (_parquet, {"resize": "24"}),
    "path_list": (_path_list, {}),
    "coco_detection": (_coco_instances, {"layout": "detection"}),
    "coco_detection_cropped": (_coco_instances, {"layout": "detection", "resize": "32", "fit": "cover"}),
    "coco_vision": (_coco, {"layout": "vision"}),
    "coco_vision_padded": (_coco, {"layout": "vision", "resize": "48", "fit": "pad"}),
    "coco_panoptic": (_panoptic, {"layout": "panoptic", "resize": "40"}),
    "yolo": (_yolo, {"layout": "detection"}),
    "voc": (_voc, {"layout": "detection", "resize": "64"}),
    "labelme": (_labelme, {"layout": "detection"}),
    "box_table": (_box_table, {"layout": "detection"}),
    "semantic_masks": (_masks, {"layout": "segmentation", "mask_dir": "masks", "source": "semantic_masks"}),
    "webdataset": (_webdataset, {"extra_columns": "price:int"}),
    "zip": (_zip, {}),
    "arrays": (_arrays, {}),
    "arrays_raw": (_arrays, {"image_format": "raw"}),
    "tfrecord": (_tfrecord, {}),
    **{f"layout_{name}": (_class_folders, {"layout": name, "resize": "16"}) for name in _OTHER_LAYOUTS},
}
#: Cases that are rebuilt after two pictures of the input were replaced.
REBUILT = ("class_folders_splits", "class_folders_gzip", "manifest", "webdataset")


def digests(name: str, work: Path) -> dict[str, str]:
    """Converts a case; returns digests of the dataset, and of all its records in the order of the shards.

    Args:
      name: name of the case; `NAME+rebuild` is rebuilt.
      work: an empty folder.
    """
    name, _, again = name.partition("+")
    write, settings = CASES[name]
    source, out = write(work / "input"), work / "out"
    if not again:
        convert(input=_given(source, settings), output=str(out), verify="none", **_paths(source, settings))
        return _digests(out)
    values = {"input": _given(source, settings), "verify": "none", **_paths(source, settings)}
    rebuild(output=str(out), **values)
    for path in _others():
        _change(source, path)
    return _digests(Path(rebuild(output=str(out), **values).path))


def names() -> list[str]:
    """Returns the names of all cases."""
    return [*CASES, *(f"{name}+rebuild" for name in REBUILT)]


def _given(source: Path, settings: Settings) -> str:
    return str(source / "images") if settings.get("source") == "semantic_masks" else str(source)


def _paths(source: Path, settings: Settings) -> dict[str, Any]:
    return {key: str(source / value) if key == "mask_dir" else value for key, value in settings.items()}


def _change(source: Path, path: Path) -> None:
    """Replaces the bytes of one picture, and rewrites the file that contains the pictures."""
    folder = source.parent if source.is_file() else source
    images = sorted(item for item in folder.rglob("*") if item.suffix == path.suffix)
    if images:
        shutil.copyfile(path, images[0])
    else:
        members = {f"9{path.suffix}": path.read_bytes(), "9.cls": b"1", "9.json": b'{"price": 4}'}
        (folder / "00001.tar").write_bytes(tar_of(members))


def _digests(dataset: Path) -> dict[str, str]:
    unpack = {".gz": gzip.decompress, ".zlib": zlib.decompress}
    records = hashlib.sha256()
    for path in sorted(dataset.glob("*.tfrecord*")):
        records.update(path.name.encode() + unpack.get(path.suffix, bytes)(path.read_bytes()))
    fingerprint = json.loads((dataset / DATASET_JSON).read_bytes())["fingerprint"]
    return {"fingerprint": fingerprint, "records": records.hexdigest()}


def versions() -> dict[str, str]:
    """Returns what the bytes depend on besides this project; Python's zlib affects only compressed shards."""
    return {name: version for name, version in codec_versions().items() if name != "python_zlib"}
