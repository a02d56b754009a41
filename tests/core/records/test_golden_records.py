"""The records of every layout equal those of the golden file, so a change of them is deliberate."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.fewer_imports import late

tf = late("tensorflow")

GOLDEN = Path(__file__).parents[2] / "contract" / "golden"
RECORDS = json.loads((GOLDEN / "records.json").read_text("utf-8"))


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("golden_records", GOLDEN / "golden_records.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", RECORDS)
def test_records_equal_those_of_the_golden_file(name: str) -> None:
    script = _script()
    made = script.record(script.layouts()[name])
    assert script.shown(made) == RECORDS[name]["features"]
    assert made.hex() == RECORDS[name]["record"]


def test_every_layout_has_a_golden_record() -> None:
    assert [*RECORDS] == [*_script().layouts()]


def test_the_encodings_are_tensorflows() -> None:
    features = tf.train.Example.FromString(bytes.fromhex(RECORDS["own"]["record"])).features.feature

    def tensor(name: str, dtype: Any) -> Any:
        return tf.io.parse_tensor(features[name].bytes_list.value[0], dtype).numpy().tolist()

    assert tensor("picture", tf.uint8)[1][2] == [15, 16, 17]
    assert tensor("size", tf.int64) == [2, 3, 3]
    assert tensor("corners", tf.float32) == [[0.0, 0.0, 0.5, 1.0], [0.5, 0.25, 1.0, 0.5]]
    assert tensor("exact", tf.float64) == 0.1
    assert tensor("tags", tf.string) == [b"a", "ü".encode()]
    assert tensor("mean", tf.float32) == [[0.5, 0.25], [1.0, 2.0]]
    assert tf.io.decode_base64(features["name"].bytes_list.value[0]).numpy() == "größe 1.jpg".encode()
    assert list(features["grid"].int64_list.value) == [1, 2, 3, 4]
    assert "rare" not in features
