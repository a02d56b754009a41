"""Run as a script: reads datasets with the `parse.py` in each, as if only TensorFlow were installed.

`only_tensorflow.py RESULT DIRECTORY...` pickles the constants and the records of each `parse.py`.
"""

from __future__ import annotations

import importlib.abc
import pickle
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

#: TensorFlow needs the last two only to convert and store its models; they take long to import.
_MISSING = ("shardwright", "apache_beam", "PIL", "yaml", "cykooz", "jax", "h5py")


class _NotInstalled(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.partition(".")[0] in _MISSING:
            raise ModuleNotFoundError(fullname)


def read(directory: Path, tried: set[str]) -> dict[str, Any]:
    """Reads the first split of a dataset.

    Args:
      directory: The dataset.
      tried: What `loads` returned for those of which all splits were read, shuffled and loaded twice.
    """
    module = SimpleNamespace(**runpy.run_path(str(directory / "parse.py")))
    found: dict[str, Any] = {"labels": module.labels, "splits": {}, "lengths": {}, "shapes": {}}
    first, *others = module._dataset_json(str(directory))["splits"]
    is_new = loads(directory) not in tried
    tried.add(loads(directory))
    for split in (first, *others) if is_new else (first,):
        dataset = module.load(split)
        found["lengths"][split] = len(dataset)
        found["shapes"][split] = {
            name: tensor.shape.as_list() if tensor.shape.rank is not None else None
            for name, tensor in dataset.element_spec.items()
        }
        found["splits"][split] = list(dataset.as_numpy_iterator())
        if not is_new:
            continue
        for data in (dataset, module.load(split)):
            again = list(data.as_numpy_iterator())
            assert pickle.dumps(again) == pickle.dumps(found["splits"][split]), "another order"
        shuffled = list(module.load(split, shuffle=100, seed=1).as_numpy_iterator())
        assert len(shuffled) == len(again)
    return found


def loads(directory: Path) -> str:
    """Returns the code that reads the shards, without the code that parses a record."""
    _, _, code = (directory / "parse.py").read_text(encoding="utf-8").partition("\ndef load(")
    assert code
    return code


def main(result: str, *directories: str) -> None:
    sys.meta_path.insert(0, _NotInstalled())
    tried: set[str] = set()
    found = [read(Path(directory), tried) for directory in directories]
    assert not {"shardwright", "PIL"} & sys.modules.keys()
    Path(result).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
