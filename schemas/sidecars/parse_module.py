"""`parse.py`: code that reads a dataset with TensorFlow alone, for people to copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from shardwright.schemas.dataset import Dataset, picture_shape, sample_types, stored_format
from shardwright.schemas.feature_roles import PICTURE_SIDES, PIXEL_MASKS, FeatureRole
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import Encoding, FeatureSpec
from shardwright.schemas.parsing import quoted, spec_source
from shardwright.schemas.sample_types import HIGHEST, UINT16_OF_UINT8, widest
from shardwright.schemas.templates import fill_in
from shardwright.schemas.units import counted

#: Maximum number of class names to list in the file; if there are more, it reads `dataset.json`.
_MAX_NAMES = 300
_WIDTH = 100
_TEMPLATE = Path(__file__).with_name("parse.py.jinja")
_COMPRESSION_TYPES = {"gzip": "GZIP", "zlib": "ZLIB"}
#: NumPy's name of a type -> TensorFlow's name, if they differ.
_TENSOR_TYPES = {"object": "string"}


def parse_py(dataset: Dataset) -> str:
    """Returns the source of `parse.py`."""
    splits = ", ".join(f"{_one_line(name)} {dataset.records(name):,}" for name in dataset.splits)
    classes = counted(len(dataset.classes), "class") if dataset.labels else "no classes"
    id_masks = [spec for spec in dataset.features if spec.fill in PIXEL_MASKS]
    compression = _COMPRESSION_TYPES.get(str(dataset.plan.settings.get("compression", "none")))
    read = "tf.data.TFRecordDataset"
    return fill_in(
        _TEMPLATE,
        {"in_docstring": lambda text: text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')},
        summary=f"Reads the dataset {_one_line(dataset.name)} (layout {_one_line(dataset.layout)}) with "
        "TensorFlow alone.",
        counts=f"Records: {splits or 'none'}; {classes}.",
        split=quoted(next((name for name in dataset.splits if dataset.records(name)), "train")),
        printed=_printed(dataset),
        labels=_labels(dataset),
        features=spec_source(dataset.features),
        picture=_picture_of_types(dataset) if _needs_type_of_record(dataset) else None,
        has_id_masks=bool(id_masks),
        may_lack_id_masks=any(_may_be_absent(dataset, spec) for spec in id_masks),
        has_object_masks=dataset.spec(FeatureRole.OBJECT_MASK) is not None,
        statements=_parse_lines(dataset),
        read_file=f'lambda file: {read}(file, compression_type="{compression}")' if compression else read,
    )


def _printed(dataset: Dataset) -> str:
    """Returns what the example in the docstring prints of a record."""
    picture = dataset.spec(FeatureRole.ENCODED)
    label = next((s for s in dataset.features if s.fill is FeatureRole.LABEL and s.value_shape == ()), None)
    first = f" - {dataset.first_label}" if dataset.first_label else ""
    printed = [f"{_item(picture)}.shape"] if picture else []
    printed += [f"labels[{_item(label)}{first}]"] if label and dataset.labels else []
    return ", ".join(printed)


def _one_line(text: str) -> str:
    """Returns a name without line ends and control characters."""
    return quoted(text)[1:-1]


def _labels(dataset: Dataset) -> str:
    """Returns the statement that defines the class names."""
    if not dataset.labels:
        return "# There are no classes.\nlabels = ()\n"
    source = f"# Class names in the order of their ids; the first id is {dataset.first_label}.\n"
    if dataset.plan.unused_ids:
        source += "# A number stands for an id that no class has.\n"
    if dataset.keeps_unlabelled:
        source += f"# Pictures without a class have {UNLABELLED}.\n"
    if len(dataset.labels) > _MAX_NAMES:
        return f'{source}labels = tuple(_dataset_json(HERE)["labels"])\n'
    names = _wrapped([quoted(name) for name in dataset.labels])
    if "\n" in names or len(names) > _WIDTH - len("labels = ()"):
        return f"{source}labels = (\n{indent(names, '    ')}\n)\n"
    return f"{source}labels = ({names if len(dataset.labels) == 1 else names[:-1]})\n"


def _wrapped(literals: Sequence[str]) -> str:
    """Returns literals with commas, with as many on a line as fit."""
    lines, line = [], ""
    for literal in literals:
        if line and len(line) + len(literal) + 2 > _WIDTH - 4:
            lines.append(line)
            line = ""
        line += f"{' ' if line else ''}{literal},"
    return "\n".join((*lines, line))


def _parse_lines(dataset: Dataset) -> Iterator[str]:
    """Yields the statements that turn a record into tensors."""
    yield "example = tf.io.parse_single_example(record, features)"
    for spec in dataset.features:  # its encoding is undone
        item = _item(spec)
        if spec.encoding is Encoding.BASE64:
            yield f"{item} = tf.io.decode_base64({item})"
        if spec.encoding is Encoding.TENSOR:
            parsed = f"tf.io.parse_tensor({item}, tf.{_TENSOR_TYPES.get(spec.dtype, spec.dtype)})"
            yield f"{item} = tf.ensure_shape({parsed}, {list(spec.tensor_shape)})"
    for spec in dataset.features:  # it gets its declared shape and type
        item, is_tensor = _item(spec), spec.encoding is Encoding.TENSOR
        if None in spec.shape[1:] and not is_tensor:
            sides = [-1 if side is None else side for side in spec.shape]
            yield f"{item} = tf.reshape({item}, {sides})"
        if spec.value_type == "bool" and not is_tensor:
            yield f"{item} = {item} > 0"  # -1, for an absent one, is not True
        if spec.fill is FeatureRole.ENCODED:
            yield from _picture_lines(dataset, spec)
    yield from _mask_lines(dataset)
    picture, objects = map(dataset.spec, (FeatureRole.ENCODED, FeatureRole.OBJECT_MASK))
    if picture and objects:
        yield f"masks = {_item(objects)}"
        yield f"{_item(objects)} = _object_masks(masks, {_item(picture)})"


def _may_be_absent(dataset: Dataset, spec: FeatureSpec) -> bool:
    """Returns whether a record may lack a mask, or hold an empty one."""
    return spec.optional or dataset.keeps_unlabelled


def _mask_lines(dataset: Dataset) -> Iterator[str]:
    """Yields the statements that decode masks with an id for every pixel."""
    masks = [spec for spec in dataset.features if spec.fill in PIXEL_MASKS]
    for absent, reader in ((False, "_id_mask"), (True, "_optional_id_mask")):
        specs = [spec for spec in masks if _may_be_absent(dataset, spec) is absent]
        if len(specs) == 1:
            yield f"ids = {_item(specs[0])}"
            yield f"{_item(specs[0])} = {reader}(ids)"
        elif specs:
            yield "for name in ("
            yield from (f"    {quoted(spec.name)}," for spec in specs)
            yield "):"
            yield f"    example[name] = {reader}(example[name])"


def _picture_lines(dataset: Dataset, spec: FeatureSpec) -> Iterator[str]:
    """Yields the statements that turn the stored picture into [height, width, channels]."""
    item, shape, types = _item(spec), picture_shape(dataset.plan.settings), sample_types(dataset)
    if spec.holds_pixels:  # these have their shape already
        yield f"{item} = tf.ensure_shape({item}, {list(shape)})"
        return
    if _needs_type_of_record(dataset):
        yield f"{item} = _picture(example)"
        return
    stored = stored_format(dataset)
    if stored == "raw":
        yield f"pixels = tf.io.decode_raw({item}, tf.{types[0]})"
        yield f"{item} = {_reshaped(dataset)}"
        return
    encoded = item
    if stored != "png":
        yield f"encoded = {item}"
        encoded = "encoded"
    elif len(types) > 1:
        yield "# This stretches 8 bits to 16, so that 255 becomes 65535."
    yield f"image = {_decoded(dataset, encoded, types[-1])}"
    yield f"{item} = " + ("image" if None in shape[:2] else f"tf.ensure_shape(image, {list(shape)})")


def _decoded(dataset: Dataset, encoded: str, dtype: str) -> str:
    """Returns the expression that decodes an image file whose samples have a type."""
    stored, channels = stored_format(dataset), picture_shape(dataset.plan.settings)[2]
    arguments = f"{encoded}, channels={channels or 0}"  # 0: the number in the file
    if stored == "jpeg":
        recover = ", try_recover_truncated=True" if dataset.plan.settings.get("damaged") == "keep" else ""
        # This DCT gives the same pixels as other decoders.
        return f'tf.io.decode_jpeg({arguments}{recover}, dct_method="INTEGER_ACCURATE")'
    if dtype == "uint16":
        return f"tf.io.decode_png({arguments}, dtype=tf.uint16)"
    if stored == "png":
        return f"tf.io.decode_png({arguments})"
    return f"tf.io.decode_image({arguments}, expand_animations=False)"


def _needs_type_of_record(dataset: Dataset) -> bool:
    """Returns whether only a record's sample type says how to decode its picture."""
    return len(sample_types(dataset)) > 1 and stored_format(dataset) != "png"


def _picture_of_types(dataset: Dataset) -> dict[str, Any]:
    """Returns how `_picture` decodes pictures of several sample types."""
    types, target = sample_types(dataset), widest(sample_types(dataset))
    stored, dtype = (dataset.spec(role) for role in (FeatureRole.ENCODED, FeatureRole.DTYPE))
    assert stored and dtype
    *others, last = types
    return {
        "target": target,
        "scale": "integers from 0 to 1, floats as stored"
        if target == "float32"
        else "8 bits are stretched to 16",
        "stored": _item(stored),
        "dtype": _item(dtype),
        "branches": [(name, _branch_lines(dataset, name, target)) for name in types],
        "cases": ", ".join(f'(dtype == b"{name}", of_{name})' for name in others),
        "last": last,
        "shape": list(picture_shape(dataset.plan.settings)),
    }


def _branch_lines(dataset: Dataset, name: str, target: str) -> list[str]:
    """Returns the statements that decode a picture of one sample type and return it as another."""
    if stored_format(dataset) == "raw" or name == "float32":
        lines, image = [f"pixels = tf.io.decode_raw(stored, tf.{name})"], _reshaped(dataset)
    else:
        lines, image = [], _decoded(dataset, "stored", name)
    if name == target:
        return [*lines, f"return {image}"]
    lines.append(f"image = {image}")
    if target == "uint16":
        return [*lines, f"return tf.cast(image, tf.uint16) * {UINT16_OF_UINT8}"]
    if name == "uint16":
        return [*lines, f"return tf.cast(image, tf.float32) / {HIGHEST[name]}"]
    return [*lines, "return tf.image.convert_image_dtype(image, tf.float32)"]


def _reshaped(dataset: Dataset) -> str:
    """Returns the expression that reshapes raw pixels: to common sides if there are, else to the record's."""
    shape, whole = picture_shape(dataset.plan.settings), dataset.spec(FeatureRole.SHAPE)
    if None not in shape:
        return f"tf.reshape(pixels, {list(shape)})"
    if whole:
        return f"tf.ensure_shape(tf.reshape(pixels, {_item(whole)}), {list(shape)})"
    sides = [_side(size, spec) for size, spec in zip(shape, map(dataset.spec, PICTURE_SIDES))]
    # Raw pixels of unknown sides stay a flat list.
    return "pixels" if sides.count("-1") > 1 else f"tf.reshape(pixels, [{', '.join(sides)}])"


def _side(size: int | None, spec: FeatureSpec | None) -> str:
    if size is not None:
        return str(size)
    if spec is None:
        return "-1"
    return f"tf.cast({_item(spec)}, tf.int64)" if spec.encoding is Encoding.TENSOR else _item(spec)


def _item(spec: FeatureSpec) -> str:
    return f"example[{quoted(spec.name)}]"
