"""A small dataset in each annotation format, most with faults."""

from __future__ import annotations

import base64
from pathlib import Path

from helpers.annotation_sets.box_table import HEADER as BOX_HEADER
from helpers.annotation_sets.box_table import put as put_box_table
from helpers.annotation_sets.box_table import rows_of as box_rows_of
from helpers.annotation_sets.cityscapes import put_city
from helpers.annotation_sets.coco import coco_of, save
from helpers.annotation_sets.coco_panoptic import panoptic_of
from helpers.annotation_sets.cvat import put_set as put_cvat_set
from helpers.annotation_sets.json_exports import create_ml_of, put_class_columns, put_label_studio
from helpers.annotation_sets.kitti import put_kitti
from helpers.annotation_sets.labelme import document, put_labelme
from helpers.annotation_sets.labelme import save as save_labelme
from helpers.annotation_sets.objects_column import row_of
from helpers.annotation_sets.open_images import put_csv, rows_of
from helpers.annotation_sets.path_lists import put_imagenet
from helpers.annotation_sets.semantic_masks import put_set as put_mask_set
from helpers.annotation_sets.voc import put_list, put_voc, put_xml
from helpers.annotation_sets.yolo import DARKNET, SPLITS, YAML, put_darknet
from helpers.annotation_sets.yolo import put_set as put_yolo_set
from helpers.listing import put_photos
from helpers.manifests import write_jsonl


def _coco(root: Path) -> str:
    for split, names in SPLITS.items():
        photos = put_photos(root / f"{split}2017", names)
        save(root / "annotations" / f"instances_{split}2017.json", coco_of(photos))
    return ""


def _coco_file(root: Path) -> str:
    document = coco_of(put_photos(root / "val2017"))
    document["annotations"].append({"image_id": -1})
    save(root / "annotations" / "instances_val2017.json", document)
    return "annotations/instances_val2017.json"


def _panoptic(root: Path) -> str:
    photos = put_photos(root / "val2017")
    masks = root / "annotations" / "panoptic_val2017"
    save(root / "annotations" / "panoptic_val2017.json", panoptic_of(photos, masks))
    return "annotations/panoptic_val2017.json"


def _yolo(root: Path) -> str:
    put_yolo_set(root, SPLITS, YAML)
    (root / "labels" / "train" / "gone.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    (root / "labels" / "train" / "eagle.txt").write_text("")
    return "data.yaml"


def _voc(root: Path) -> str:
    put_voc(root)
    put_list(root, "Main", train=("eagle", "apple"), val=("house", "gone"))
    return ""


def _open_images(root: Path) -> str:
    photos = put_photos(root / "images")
    put_csv(root / "boxes.csv", [*rows_of(photos)[::-1], "bad\n"])
    return "boxes.csv"


def _box_tables(root: Path) -> str:
    for split, names in SPLITS.items():
        photos = put_photos(root / split, names)
        put_box_table(root / split / "_annotations.csv", BOX_HEADER, ["bad", *box_rows_of(photos)[::-1]])
    return ""


def _cvat(root: Path) -> str:
    put_cvat_set(root)
    (root / "images" / "apple.jpg").unlink()
    return ""


def _labelme(root: Path) -> str:
    photos = put_labelme(root)
    (root / "apple.json").write_text("{")
    data = base64.b64encode((root / photos[0].name).read_bytes()).decode()
    save_labelme(root / "eagle.json", document(photos[0], data=data))
    (root / photos[0].name).unlink()
    return ""


def _kitti(root: Path) -> str:
    put_kitti(root / "training")
    (root / "training" / "label_2" / "apple.txt").write_text("Car")
    (root / "training" / "label_2" / "gone.txt").write_text("")
    return ""


def _cityscapes(root: Path) -> str:
    put_city(root, "train", SPLITS["train"])
    put_city(root, "val", SPLITS["val"])
    return ""


def _objects(root: Path) -> str:
    write_jsonl(root / "metadata.jsonl", [row_of(photo) for photo in put_photos(root)])
    return ""


def _path_lists(root: Path) -> str:
    put_imagenet(root)
    return ""


def _masks(root: Path) -> str:
    put_mask_set(root / "images" / "train", root / "masks" / "train")
    put_mask_set(root / "images" / "test", root / "masks" / "test")
    (root / "masks" / "test" / "eagle.png").unlink()
    return "images"


def _darknet(root: Path) -> str:
    put_darknet(root, DARKNET, "data/")
    (root / "train.txt").write_text("C:\\old\\eagle.jpg\ndata/obj_train_data/apple.jpg\n/old/house.jpg\n")
    return ""


def _moved(root: Path) -> str:
    document = coco_of(put_photos(root / "data"))
    document["images"][1]["file_name"] = "C:\\photos\\apple.jpg"
    document["images"][2]["file_name"] = "/home/ann/house.jpg"
    save(root / "labels.json", document)
    return ""


def _voc_pair(root: Path) -> str:
    photos = put_photos(root / "data")
    put_xml(root / "labels", photos)
    (root / "labels" / "apple.xml").rename(root / "labels" / "7.xml")
    return ""


def _label_studio(root: Path) -> str:
    photos = put_photos(root / "images")
    put_label_studio(root, photos)
    (root / "images" / "apple.jpg").unlink()
    return ""


def _create_ml(root: Path) -> str:
    for split, names in SPLITS.items():
        photos = put_photos(root / split, names)
        save(root / split / "_annotations.createml.json", [*create_ml_of(photos), {"image": "gone.jpg"}])
    return ""


def _class_columns(root: Path) -> str:
    for split, names in SPLITS.items():
        put_class_columns(root / split, put_photos(root / split, names))
    return ""


SETS = {
    "label_studio": (_label_studio, "detection"),
    "create_ml": (_create_ml, "detection"),
    "class_columns": (_class_columns, "classification"),
    "darknet": (_darknet, "detection"),
    "paths of another machine": (_moved, "detection"),
    "voc in two folders": (_voc_pair, "detection"),
    "coco": (_coco, "detection"),
    "coco file": (_coco_file, "detection"),
    "panoptic": (_panoptic, "panoptic"),
    "yolo": (_yolo, "detection"),
    "voc": (_voc, "detection"),
    "open_images": (_open_images, "detection"),
    "box tables": (_box_tables, "detection"),
    "cvat": (_cvat, "detection"),
    "labelme": (_labelme, "detection"),
    "kitti": (_kitti, "detection"),
    "cityscapes": (_cityscapes, "segmentation"),
    "objects": (_objects, "detection"),
    "path lists": (_path_lists, "classification"),
    "semantic_masks": (_masks, "segmentation"),
}
