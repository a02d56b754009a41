"""What a source is: how it knows its inputs, takes them apart, and lists what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.spool import Spool

#: What `--source` may name, in the order in which `auto` asks them: each is the module of that name
#: in this package.
SOURCES: Mapping[str, str] = {
    "file_names": "a folder whose file names say the class, taken apart by --label_regex",
    "semantic_masks": "a folder of images whose masks lie in --mask_dir under the same names",
    "box_table": "CSV with a row for each box, such as filename,width,height,class,xmin,ymin,xmax,ymax",
    "manifest": "CSV, TSV, JSON Lines or Parquet with a row for each image",
    "cvat": "CVAT's XML (CVAT for images 1.1), or a folder with it and the images",
    "labelme": "LabelMe: a JSON file for each image",
    "kitti": "KITTI: label_2/ and image_2/, in training/ or at the top",
    "cityscapes": "Cityscapes: leftImg8bit/ and gtFine/ or gtCoarse/",
    "coco": "COCO's JSON of instances, captions or panoptic segments, or a folder with it",
    "open_images": "Open Images' CSV of boxes, or a folder with it",
    "voc": "Pascal VOC: XML files in Annotations/ or beside the images",
    "yolo": "YOLO: data.yaml or a folder with it, or classes.txt with images and labels",
    "arrays": "images as arrays: MNIST's idx files, CIFAR's batches, .npy and .npz, with their labels",
    "webdataset": "tars with members KEY.jpg, KEY.cls, KEY.json, KEY.txt, or a folder of them",
    "archives": "a zip or a tar (gz, bz2, xz, zst too) with class folders inside, or a folder of them",
    "tfrecord": "TFRecord files: a dataset of Shardwright, or others with an image in each record",
    "class_folders": "a folder with one sub-folder per class",
}


class Input(NamedTuple):
    """One input.

    Attributes:
      path: where it is.
      prefix: what its keys begin with: empty, or `name/`.
      source: the name of the source that reads it.
      detected_as: what that source takes it for, for people.
      is_file: whether it is a single file.
    """

    path: str
    prefix: str
    source: str = ""
    detected_as: str = ""
    is_file: bool = False


class InputSplit(NamedTuple):
    """A part of an input that a worker lists by itself.

    Attributes:
      item: the input.
      path: the file or folder to list.
      begin: of a stretch of that file: a byte or the number of a row group, as the source has it.
      end: of the stretch; -1 for the end of the file.
      number: of the first row in the stretch, from 1.
      detail: whatever else the source needs to know of it.
    """

    item: Input
    path: str
    begin: int = 0
    end: int = -1
    number: int = 1
    detail: str = ""


@dataclass(frozen=True)
class Context:
    """What listing needs besides the part: checked settings, and a place for spool files."""

    settings: ConvertSettings
    spool: Spool


def whole(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields an input as one part."""
    yield InputSplit(item, item.path)


@dataclass(frozen=True)
class Source:
    """A kind of input, as functions; `docs/sources.md` shows how to add one.

    Attributes:
      name: what `--source` calls it, and the module that holds it.
      provides: what it can say of an image.
      accepts: whether an input looks like one of this kind (asked by `--source auto`).
      describe: what the input is taken for, in a few words; raises UsageError if it cannot be read
        as such, or the settings do not go with it.
      list_part: yields a reference for everything in a part, in no particular order, and the ids of
        classes where the source has ids of its own.
      split: yields the parts of an input, listed side by side.
      unique_keys: whether no key can stand twice in one input, as with the files of a folder.
      names_images: whether a file of this kind names images instead of holding them.
      has_columns: whether it can say more of an image, for `--extra_columns` and columns of layouts.
      names_classes_by_folder: whether classes are folders, of which `--label_depth` takes several.
      settings: of those that some sources use and others do not, the ones that this source uses.
      metadata_settings: more of them that it uses where metadata files lie beside the images.
    """

    name: str
    provides: frozenset[Needs]
    accepts: Callable[[InputProbe, ConvertSettings], bool]
    describe: Callable[[InputProbe, ConvertSettings], str]
    list_part: Callable[[InputSplit, Context], Iterator[ImageRef | ClassId]]
    split: Callable[[Input, Context], Iterator[InputSplit]] = whole
    unique_keys: bool = False
    names_images: bool = False
    names_classes_by_folder: bool = False
    has_columns: bool = False
    settings: frozenset[str] = frozenset()
    metadata_settings: frozenset[str] = frozenset()


def source_by_name(name: str) -> Source:
    """Returns a source; only the modules of those that are used are loaded."""
    found: Source = import_module(f"shardwright.transforms.sources.{name}").SOURCE
    return found


def all_sources() -> Iterator[Source]:
    """Yields every source in the order in which `auto` asks them."""
    return map(source_by_name, SOURCES)
