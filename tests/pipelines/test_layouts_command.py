"""`shardwright layouts`: lists and explains layouts, for people and as JSON, and reports mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardwright.pipelines.cli import main
from shardwright.pipelines.layouts import layouts
from shardwright.schemas.feature_roles import FEATURE_ROLES
from shardwright.schemas.layouts import LAYOUTS
from shardwright.schemas.parsing import spec_source

OWN = """
extends: classification
drop: [image/key/sha256]
rename: {image/encoded: "the \\"picture\\""}
features:
  price: {column: cost, type: double}
  kind: {column: kind, type: enum, values: [small, large]}
  version: {constant: [[1, 2], [3, 4]], type: int32}
  note: {constant: "it's", type: string}
  corners: {fill: boxes, optional: true, tensor: true}
  key: {fill: key, base64: true}
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["layouts", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_it_lists_every_layout(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for layout in LAYOUTS.values():
        assert layout.summary
        assert rows[layout.name].split()[1:3] == [str(layout.first_label), layout.needs.value]
        assert layout.summary[:20] in rows[layout.name]
    assert "…" not in out  # a pipe gets whole lines
    code, out, _ = run(capsys, "--json")
    found = json.loads(out)["layouts"]
    assert [item["name"] for item in found] == list(LAYOUTS)
    assert all(item.keys() == {"name", "summary", "first_label", "needs"} for item in found)
    assert {"layouts": found} == layouts()


@pytest.mark.parametrize("name", LAYOUTS)
def test_it_explains_each(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    layout = LAYOUTS[name]
    code, out, _ = run(capsys, name)
    assert code == 0
    table, spec = out.split("\n# tf.io.parse_single_example(record, features)\n")
    assert spec == spec_source(layout.features)
    for feature in layout.features:
        (row,) = (line for line in table.splitlines() if line.split()[:1] == [feature.name])
        assert row.split()[1] == feature.type.value
        assert (", optional" in row) == feature.optional
    words = one_line(table)
    assert (f"Class ids begin at {layout.first_label}" in words) == (name not in ("images", "raw_with_shape"))
    assert ("bare pixels" in words) == layout.pixels
    assert ("Optional features are left out" in words) == any(item.optional for item in layout.features)
    code, out, _ = run(capsys, "--json", name)
    found = json.loads(out)
    assert found.items() >= layouts(name).items()
    assert [item["name"] for item in found["features"]] == [feature.name for feature in layout.features]
    assert found["parsing_spec"] == spec
    for item, feature in zip(found["features"], layout.features):
        assert f"    {json.dumps(item['name'])}: {item['parsing']},\n" in spec
        assert feature.fill is not None and item["what"]
        if feature.fill.value not in ("encoded", "format"):  # these depend on the layout
            assert item["what"] == FEATURE_ROLES[feature.fill].what


def features_of(explained: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in explained["features"]}


def test_spelling_and_pixels_depend_on_the_layout() -> None:
    formats = {
        name: next(item["what"] for item in layouts(name)["features"] if item["fill"] == "format")
        for name in ("classification", "imagenet", "detection")
    }
    assert formats["classification"].endswith(": jpg, png, webp or raw")
    assert formats["imagenet"].endswith(": JPEG, PNG, WEBP or raw")
    assert formats["detection"].endswith(": jpeg, png, webp or raw")
    assert "bare" in features_of(layouts("raw"))["image"]["what"]
    assert any("--resize" in note for note in layouts("raw")["notes"])
    assert not any("--resize" in note for note in layouts("raw_with_shape")["notes"])


def test_it_explains_a_custom_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(OWN)
    code, out, _ = run(capsys, str(path))
    assert code == 0
    words = one_line(out)
    assert words.startswith("shop: a layout of your own")
    assert "the source's column cost (double)" in words
    assert "the source's column kind (enum, one of small, large)" in words
    assert "always 1, 2, 3, 4" in words
    assert "always it's" in words
    assert "as serialized tensor of float32, any x 4 (tf.io.parse_tensor)" in words
    assert "as URL-safe base64 (tf.io.decode_base64)" in words
    features = features_of(layouts(str(path)))
    assert "image/key/sha256" not in features
    assert features['the "picture"']["fill"] == "encoded"
    assert features["version"]["shape"] == [2, 2]
    assert features["corners"]["tensor_shape"] == [None, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["detectoin"], "There is no layout detectoin; did you mean detection?"),
        (["xyzzy"], "There is no layout xyzzy; choose one of classification, "),
        (["raw", "minimal"], "Name one layout, not 2."),
        (["--jsn"], "Unknown option --jsn; did you mean --json?"),
        (["nowhere.yaml"], "nowhere.yaml: no such file or directory; check the path."),
        (["bad.yaml"], "bad.yaml: features: price: "),
        (["latin.yaml"], "latin.yaml is not UTF-8 text"),
        (["a\nb\x1b[31m"], "There is no layout a\\nb\\x1b[31m; choose "),
    ],
)
def test_mistakes_are_reported_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text("features: {price: {column: price, type: money}}")
    Path("latin.yaml").write_bytes(b"name: caf\xe9")
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_neither_beam_nor_tensorflow_is_needed() -> None:
    script = (
        "import sys; from shardwright.pipelines.cli import main; assert main(['layouts', 'raw']) == 0; "
        "assert not {'apache_beam', 'tensorflow', 'numpy'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "tf.io.FixedLenFeature([], tf.int64)" in done.stdout
