"""Custom layouts: what a file may contain, the message for each mistake, and hostile YAML."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from helpers.repository import ROOT
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.configuration.layout_file import parse_layout_file
from shardwright.schemas.dataset import pretty_json
from shardwright.schemas.errors import UsageError
from shardwright.schemas.example import FeatureType
from shardwright.schemas.layouts import (
    LAYOUTS,
    Encoding,
    FeatureRole,
    Layout,
    Needs,
    inline_layout,
    layout_by_name,
)
from shardwright.schemas.plan import Plan

EVERYTHING = """
name: shop
extends: classification
drop: [image/key/sha256, image/channels]
rename: {image/encoded: picture}
first_label: 1
format_names: {jpg: JPEG}
features:
  image/filename: {fill: file_basename}
  kind: {fill: label_text, base64: true}
  price: {column: cost, type: double}
  grid: {column: grid, type: int32, shape: [2, 2]}
  rows: {column: rows, type: float, shape: [null, 4], optional: true}
  tags: {column: tags, type: string, shape: [null], tensor: true}
  exact: {column: exact, type: double, tensor: true}
  colour: {column: colour, type: enum, values: [red, "grün"]}
  version: {constant: 3, type: int}
  mean: {constant: [[0.5, 0.25], [1, 2]], type: float, tensor: true}
  says: {constant: [a, "ü"], type: string}
  on: {constant: yes, type: bool}
""".replace("  on:", '  "on":')


def read(text: str) -> Layout:
    return parse_layout_file(text, "dir/my.yaml")


def refused(text: str) -> str:
    """Returns the message with which a file is refused."""
    with pytest.raises(UsageError) as refusal:
        read(text)
    message = refusal.value.message
    assert message.startswith("--layout ") and message.endswith((".", "?"))
    assert len(message) < 1000 and "\n" not in message
    return message.split(": ", 1)[1]


def with_feature(how: str) -> str:
    return f"extends: minimal\nfeatures:\n  new: {how}\n"


def test_a_file_can_use_every_key() -> None:
    layout = read(EVERYTHING)
    assert (layout.name, layout.first_label, layout.needs, layout.pixels) == ("shop", 1, Needs.LABEL, False)
    assert layout.format_names == {"jpg": "JPEG"}
    assert [spec.name for spec in layout.features] == [
        "image/class/label", "image/class/text", "picture", "image/filename", "image/format", "image/height",
        "image/width", "kind", "price", "grid", "rows", "tags", "exact", "colour", "version", "mean", "says",
        "on",
    ]  # fmt: skip
    specs = {spec.name: spec for spec in layout.features}
    assert specs["picture"].fill is FeatureRole.ENCODED
    assert specs["image/filename"].fill is FeatureRole.FILE_BASENAME
    assert specs["kind"].encoding is Encoding.BASE64
    price = specs["price"]
    assert (price.type, price.column, price.value_type) == (FeatureType.FLOAT, "cost", "double")
    assert specs["grid"].shape == (2, 2)
    assert (specs["rows"].shape, specs["rows"].optional) == ((None, 4), True)
    tags = specs["tags"]
    assert (tags.type, tags.dtype) == (FeatureType.BYTES, "object")
    assert (tags.shape, tags.tensor_shape) == ((), (None,))
    assert specs["exact"].dtype == "float64"
    assert specs["colour"].value == ("red", "grün")
    assert specs["version"].value == (3,) and specs["version"].type is FeatureType.INT64
    assert (specs["mean"].tensor_shape, specs["mean"].value) == ((2, 2), (0.5, 0.25, 1.0, 2.0))
    assert (specs["says"].shape, specs["says"].constant) == ((2,), (b"a", "ü".encode()))
    assert specs["on"].value == (1,)
    columns = {column.name: column for column in layout.columns}
    assert [*columns] == ["cost", "grid", "rows", "tags", "exact", "colour"]
    assert columns["exact"].wide and not columns["cost"].wide
    assert columns["rows"].optional and columns["rows"].rows == (None, 4)
    assert columns["colour"].names == ("red", "grün")


def test_a_layout_without_extends_is_named_after_its_file() -> None:
    layout = read("pixels: true\nfeatures: {x: {fill: encoded, tensor: true}, y: {fill: label}}")
    assert (layout.name, layout.pixels, layout.stores_size) == ("my", True, True)
    assert layout.features[0].tensor_shape == (None, None, None)


def test_two_features_may_have_the_same_fill() -> None:
    layout = read("extends: minimal\nfeatures: {a: {fill: key}, b: {fill: key}}")
    assert [spec.fill for spec in layout.features].count(FeatureRole.KEY) == 2


def test_a_mask_is_required_if_one_feature_requires_it() -> None:
    text = "extends: vision\nfeatures: {a: {fill: object_mask}, b: {fill: object_mask, optional: true}}"
    assert not read(text).by_role[FeatureRole.OBJECT_MASK].optional


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file: write `key: value` lines, such as `name: ...`"),
        ("[1]", "the file: write `key: value` lines"),
        ("extend: minimal", "'extend' is not a key here; write name, extends, .*did you mean extends"),
        ("1: minimal", "'1' is not a key here"),
        ("extends: minimum", "extends: 'minimum' is not one of classification, .*did you mean minimal"),
        ("extends: [minimal]", r"extends: \['minimal'\] is not one of"),
        ("extends: minimal\nname: 5", "name: 5 is not a name; write text, in quotes"),
        ("extends: minimal\nname: ''", "name: '' is not a name; write 1 to 200 characters"),
        ('extends: minimal\nname: "a\\nb"', "is not a name"),
        ("extends: minimal\nname: tfds", "tfds is the name of a built-in layout; .*name: my_tfds"),
        ("extends: minimal\npixels: 1", "pixels: write true or false, not '1'"),
        ("extends: minimal\nfirst_label: -1", "first_label: write a number such as 0 or 1, not '-1'"),
        ("extends: minimal\nfirst_label: true", "0 or 1, not 'true'"),
        ("extends: minimal\nneeds: boxes", "needs: 'boxes' is not one of label, objects"),
        ("extends: minimal\nformat_names: jpg", "format_names: write `key: value` lines below it, not 'jpg'"),
        ("extends: minimal\nformat_names: {jpeg: x}", "'jpeg' is not one of jpg, png.*did you mean jpg"),
        ("extends: minimal\ndrop: image", r"drop: write a list of names, such as \[one, two\]"),
        ("extends: minimal\ndrop: [label, label]", "drop: 'label' occurs twice"),
        ("extends: minimal\ndrop: [lable]", "drop: 'lable' is not one of image, label; did you mean label"),
        ("extends: minimal\ndrop: [image]", "no feature holds the image; add one with fill: encoded"),
        ("extends: minimal\ndrop: [label]", "no feature holds the class; add one with fill: label"),
        ("drop: [label]", "drop and rename are for the features of a built-in layout"),
        ("features: {}", "no feature holds the image"),
        ("extends: classification\nneeds: image", "needs: image has no classes; drop the feature"),
        ("extends: images\nneeds: label", "or write needs: image"),
        ("extends: images\nfeatures: {box: {fill: boxes}}", "needs: objects"),
        ("features: []", r"features: write `key: value` lines below it, not '\[\]'"),
        ("extends: minimal\nrename: {image: label}", "two features are called 'label' then"),
        ("extends: minimal\nrename: {image: x, label: x}", "two features are called 'x' then"),
        ("extends: minimal\nrename: {x: y}", "rename: 'x' is not one of image, label"),
        ("extends: minimal\ndrop: [label]\nrename: {label: y}", "rename: 'label' is not one of image"),
        ("extends: minimal\nfeatures: {no: {fill: key}}", "features: False is not a name"),
        ('extends: minimal\nfeatures: {"\\ud800": {fill: key}}', "is not a name"),
        (f"extends: minimal\nfeatures: {{{'x' * 300}: {{fill: key}}}}", "is not a name"),
        ("extends: minimal\nfeatures: {image: {fill: key}}", "no feature holds the image"),
        ("extends: minimal\nfeatures: {x: {fill: encoded, dtype: uint16}}", "with pixels: true"),
        ("extends: raw\nfeatures: {y: {fill: label, dtype: uint16}}", "with pixels: true"),
        ("extends: raw\nfeatures: {x: {fill: encoded, dtype: int16}}", "'int16' is not one of uint8, uint16"),
        ("extends: raw\nfeatures: {x: {fill: encoded, dtype: uint16, tensor: true}}", "leave tensor or"),
        ("extends: raw\nfeatures: {x: {fill: encoded, dtype: uint16}}", "state different types; give all of"),
        # Hostile YAML.
        ("a: &a [x, x]\nb: &b [*a, *a]\nname: [*b, *b]", "in line 2, column 8: write out what"),
        ("name: &a [*a]", "write out what"),
        ("x: &a {p: 1}\nfeatures: {<<: *a}", "is not YAML in line 2"),
        ("features: {<<: [{a: 1}, {a: 2}]}", "is not YAML"),
        ("name: !!python/object/apply:os.system [ls]", "without the tag !!python/object/apply:os.system"),
        ("? [a]\n: b", "unhashable"),
        ("name: " + "[" * 700, "nested too deeply"),
        ("name: " + "[" * 300 + "]" * 300, "nested too deeply|is not a name"),
        ("first_label: " + "9" * 5000, "in line 1, column 14: this value cannot be read"),
        ("first_label: 0x" + "f" * 50_000, "0 or 1, not 'a number of thousands of digits"),
        ("extends: 0x" + "f" * 50_000, "a number of thousands of digits is not one of"),
        ("first_label: 1" + ":59" * 20_000, "0 or 1, not 'a number of thousands of digits"),
        ("name: 2024-13-45", "this value cannot be read"),
        ("name: !!bool foo", "this value cannot be read"),
        ("features:\n\tx: {fill: key}", r"line 2, column 1: found character '\\t'"),
        ("a: 1\n---\nb: 2", "another document"),
        ("name: " + "x" * 200_000, "more than 131,072 characters"),
        ("features: {" + ", ".join(f"f{i}: {{fill: ky}}" for i in range(500)) + "}", "features: f0: fill"),
    ],
)  # fmt: skip
def test_messages_about_a_wrong_file(text: str, message: str) -> None:
    assert re.search(message, refused(text)), refused(text)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("key", "features: new: write `key: value` lines, such as `fill: ...`"),
        ("{}", "write one of fill, column and constant"),
        ("{fill: key, column: x}", "write one of fill, column and constant"),
        ("{fil: key}", "'fil' is not a key here; write fill, .*did you mean fill"),
        ("{fill: encode}", "fill: 'encode' is not one of encoded, .*did you mean encoded"),
        ("{fill: constant}", "fill: 'constant' is not one of"),
        ("{fill: key, type: int}", "key has its own type and shape; leave type, values and shape out"),
        ("{fill: key, tensor: true, base64: true}", "write tensor or base64, not both"),
        ("{fill: width, base64: true}", "base64 is for texts and bytes"),
        ("{fill: key, optional: true}", "every image has it; leave optional out"),
        ("{constant: 1, type: int, optional: true}", "every image has it"),
        ("{fill: boxes}", "features: new: only a layout with needs: objects always has boxes"),
        ("{column: x}", "write its type, one of bool, enum, .*bytes, int"),
        ("{column: x, type: flaot}", "type: 'flaot' is not one of bool, .*did you mean float"),
        ("{column: x, type: int, values: [a]}", "values are the names of an enum; write type: enum"),
        ("{column: x, type: enum, values: [a, a]}", "values: 'a' occurs twice"),
        ("{column: x, type: int, shape: 0}", "shape: 0 is not a shape; write"),
        ("{column: x, type: int, shape: [2, true]}", "is not a shape; write"),
        ("{column: x, type: int, shape: null}", "shape: None is not a shape; write .*null. for any number"),
        ("{column: x, type: int, shape: [null, null]}", "only one side of a shape can be null"),
        ("{column: x, type: int, shape: [1000, 1001]}", "more than 1,000,000 values"),
        ("{constant: a, type: int}", "'a' is not a valid int64"),
        ("{constant: 1e400, type: float}", "."),
        ("{constant: [1, .nan], type: float}", "dataset.json holds no infinite numbers"),
        ("{constant: .inf, type: double}", "dataset.json holds no infinite numbers"),
        ("{constant: 2024-01-01, type: string}", "is not a valid string; write it as text"),
        ("{constant: blue, type: enum, values: [red]}", "'blue' is not a valid enum of red"),
        ("{constant: [], type: int}", "its constant holds nothing"),
        ("{constant: [[1], [2, 3]], type: int}", "rows have different lengths"),
        ("{constant: [1, [2]], type: int}", "rows have different lengths"),
        ("{constant: [1, 2], type: int, shape: [3]}", r"its constant has the shape \[2\]"),
        ("{constant: !!binary gICA, type: bytes}", "its bytes are not UTF-8"),
        ('{constant: "\\udc80", type: bytes}', "its bytes are not UTF-8"),
    ],
)
def test_messages_about_a_wrong_feature(how: str, message: str) -> None:
    assert re.search(message, refused(with_feature(how))), refused(with_feature(how))


@pytest.mark.parametrize("second", ["type: string", "type: int, shape: [2]", "type: uint64, tensor: true"])
def test_two_features_cannot_read_one_column_as_different_types(second: str) -> None:
    text = f"extends: minimal\nfeatures: {{a: {{column: c, type: uint64}}, b: {{column: c, {second}}}}}"
    assert "features 'a' and 'b' read the column 'c' as different types" in refused(text)


@pytest.mark.parametrize(
    ("type_", "value", "stored"),
    [
        ("bool", "true", 1), ("enum", "7", 7), ("int32", "-1", -1), ("uint32", "4294967295", 2**32 - 1),
        ("int64", "-9223372036854775808", -(2**63)), ("uint64", "1", 1),
        ("float", "0.1", 0.10000000149011612), ("int", "'12'", 12),
        ("double", "1", 1.0), ("string", "a b", b"a b"), ("bytes", "!!binary YWI=", b"ab"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_constants_of_each_type_and_shape(type_: str, value: str, stored: Any, depth: int) -> None:
    written = "[" * depth + ", ".join([value] * (2 if depth else 1)) + "]" * depth
    spec = read(with_feature(f"{{constant: {written}, type: {type_}}}")).features[-1]
    assert spec.constant == (stored,) * (2 if depth else 1)
    assert spec.shape == ((), (2,), (1, 1, 2))[min(depth, 2)]


def test_a_double_in_a_tensor_keeps_all_its_bits() -> None:
    spec = read(with_feature("{constant: [0.1, 1.0e+300], type: double, tensor: true}")).features[-1]
    assert spec.value == (0.1, 1e300)
    spec = read(with_feature("{constant: 18446744073709551615, type: uint64, tensor: true}")).features[-1]
    assert spec.value == (2**64 - 1,)


@given(st.text(max_size=300))
def test_random_text_is_refused_in_a_sentence(text: str) -> None:
    refused(text)


class _WithoutAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


NO_NAMES = ("Cs", "Cc", "Zl", "Zp", "Zs", "Cn", "Co", "Cf")
NAMES = st.text(st.characters(exclude_categories=NO_NAMES), min_size=1, max_size=20)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
CONSTANTS = st.one_of(
    st.tuples(st.just("int64"), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4)),
    st.tuples(st.just("double"), st.lists(FLOATS, min_size=1)),
    st.tuples(st.just("string"), st.lists(TEXTS, min_size=1)),
    st.tuples(st.just("bool"), st.lists(st.booleans(), min_size=1)),
)
FEATURES = st.one_of(
    st.fixed_dictionaries({"fill": st.sampled_from(["key", "label", "shape"]), "tensor": st.booleans()}),
    st.builds(
        lambda pair, tensor: {"type": pair[0], "constant": pair[1], "tensor": tensor},
        CONSTANTS,
        st.booleans(),
    ),
    st.fixed_dictionaries(
        {
            "column": NAMES,
            "type": st.just("enum"),
            "shape": st.sampled_from([[3], [None], [None, 4]]),
            "tensor": st.booleans(),
            "optional": st.booleans(),
            "values": st.lists(NAMES, unique=True),
        }
    ),
)


@given(NAMES.filter(lambda name: name not in LAYOUTS), st.dictionaries(NAMES, FEATURES, max_size=5))
def test_a_custom_layout_survives_as_a_setting(name: str, features: dict[str, Any]) -> None:
    columns = [spec["column"] for spec in features.values() if "column" in spec]
    if len(set(columns)) < len(columns) or {"image", "label"} & features.keys():
        return
    content = {"name": name, "extends": "minimal", "features": features}
    layout = read(yaml.dump(content, Dumper=_WithoutAliases, allow_unicode=True))
    inline = inline_layout(layout)
    assert inline.startswith("{")
    assert layout_by_name(inline) == layout
    assert inline_layout(layout_by_name(inline)) == inline
    plan = Plan(("a",), {"train": 1}, {"train": 1}, {"layout": inline})
    stored = pretty_json(plan.as_json())
    assert Plan.from_json(json.loads(stored.encode())) == plan
    assert json.loads(stored)["settings"]["layout"]["name"] == name  # an object that people can read


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_built_in_layout_survives_as_a_setting(name: str) -> None:
    travelled = layout_by_name(inline_layout(LAYOUTS[name]))
    assert (travelled.features, travelled.pixels) == (LAYOUTS[name].features, LAYOUTS[name].pixels)


@pytest.mark.parametrize("value", ["{", "{}", '{"a": 1}', "{'extends': 'x'}", "{" * 5000, '{"name": NaN}'])
def test_invalid_inline_layouts_are_refused(value: str) -> None:
    with pytest.raises(UsageError, match="this is not a layout; name a file") as refusal:
        layout_by_name(value)
    assert len(refusal.value.message) < 400


SECTION = (ROOT / "docs" / "layouts.md").read_text().partition("## Feature names")[2].partition("\n## ")[0]


def row(layout: Layout) -> str:
    """Returns the line of the table in docs/layouts.md that lists a layout's features."""
    required, optional = (
        ", ".join(f"`{spec.name}`" for spec in layout.features if spec.optional is is_optional)
        for is_optional in (False, True)
    )
    return f"| `{layout.name}` | {required} | {optional} |"


def test_the_features_of_all_layouts_are_listed() -> None:
    assert re.findall(r"^\| `\w+` .*", SECTION, re.MULTILINE) == [row(layout) for layout in LAYOUTS.values()]
