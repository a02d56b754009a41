"""Hides the packages that the reader's distribution leaves out, then reads datasets. Tests run it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

LEFT_OUT = frozenset((
    "apache_beam", "obstore", "cykooz_resizer", "imagecodecs", "jinja2",
    "prometheus_client", "pyarrow", "pycocotools", "pydantic", "requests", "tensorflow_metadata", "yaml",
    "zstandard",
))  # fmt: skip


class Hidden:
    """A finder that says that packages are not installed."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self.names or name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def read_all(dataset: str) -> None:
    """Reads a dataset with `Records` and the command line, which draws its pictures in this folder."""
    import numpy as np

    import shardwright
    from shardwright.pipelines.cli import main

    records = shardwright.Records(dataset, split="train")
    pictures = [records.image(number) for number in range(len(records))]
    assert len(pictures) > 1 and all(picture.std() > 0 for picture in pictures)
    images, classes = next(iter(records.batches(len(records))))
    assert np.array_equal(images, pictures) and len(classes) == len(pictures)
    assert main(["inspect", dataset, "--contact_sheet", f"{Path(dataset).name}.png"]) == 0


def refuse_to_convert(dataset: str) -> None:
    """Checks that what cannot work says what to install."""
    import shardwright
    from shardwright.pipelines.cli import main

    for name in ("convert", "validate", "rebuild"):
        try:
            getattr(shardwright, name)
        except ImportError as error:
            assert f"{name} needs " in str(error) and "`pip install shardwright`" in str(error), error
        else:
            raise AssertionError(name)
        assert main([name, dataset]) == 2
    for place in ("gs://a-bucket/dataset", "s3://a-bucket/dataset", "hdfs://host/dataset"):
        assert main(["inspect", place]) == 2


def train(dataset: str) -> None:
    """Reads a dataset with `load`, and with the code in it that needs only TensorFlow."""
    import shardwright

    images, labels = next(iter(shardwright.load(dataset, "train", batch_size=4)))
    assert images.shape[0] == labels.shape[0] == 4
    sys.path.insert(0, dataset)
    parse = import_module("parse")
    examples = list(parse.load("train"))
    assert len(examples) == len(shardwright.Records(dataset, split="train"))
    assert all(example["image/encoded"].shape.rank == 3 for example in examples)


if __name__ == "__main__":
    what, *datasets = sys.argv[1:]
    # TensorFlow brings some packages of its own.
    hidden = LEFT_OUT - {"requests"} if what == "train" else LEFT_OUT | {"google.auth"}
    hidden |= {"google.cloud"}
    # Python's start imports the namespace `google.cloud` if an installed package has a .pth file for it.
    for name in hidden & sys.modules.keys():
        del sys.modules[name]
    sys.meta_path.insert(0, Hidden(hidden))  # type: ignore[arg-type]
    if what == "train":
        train(*datasets)
    else:
        for dataset in datasets:
            read_all(dataset)
        refuse_to_convert(datasets[0])
    assert not hidden & sys.modules.keys()
