"""Lists the record layouts, or explains one of them.

Needs neither Beam nor TensorFlow.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from shardwright.core import storage
from shardwright.pipelines.command import CommandResult
from shardwright.pipelines.tables import as_text, console, print_table
from shardwright.schemas.configuration.layout_file import parse_layout_file
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.feature_roles import OBJECT_ROLES, FeatureRole, Needs
from shardwright.schemas.json_values import to_json
from shardwright.schemas.layouts import LAYOUTS, Encoding, FeatureSpec, Layout, is_layout_file
from shardwright.schemas.parsing import parsing_of, parsing_source, spec_source
from shardwright.schemas.units import shape_text

EXAMPLE = "shardwright layouts detection"
_NEEDS = {
    Needs.LABEL: "the class of each image",
    Needs.OBJECTS: "boxes",
    Needs.SEMANTIC: "a mask with a class for every pixel",
    Needs.PANOPTIC: "a mask with a segment for every pixel",
}
_ENCODINGS = {
    Encoding.BASE64: "URL-safe base64 (tf.io.decode_base64)",
    Encoding.TENSOR: "serialized tensor of {dtype} (tf.io.parse_tensor)",
}


def layouts(layout: str = "") -> dict[str, Any]:
    """Lists the layouts, or explains one, like `shardwright layouts --json`.

    Args:
      layout: Name of a built-in layout, or a file LAYOUT.yaml; empty to list the built-in layouts.

    Returns:
      `{"layouts": [...]}`, or the explanation of one layout, as JSON stores it.

    Raises:
      UsageError: If the layout does not exist, or the file is wrong.
    """
    if not layout:
        return {"layouts": [_in_short(item) for item in LAYOUTS.values()]}
    if is_layout_file(layout):
        return explain(parse_layout_file(storage.read_text("layout", layout), layout))
    if layout not in LAYOUTS:
        others = f"; choose one of {', '.join(LAYOUTS)}, or name a file.yaml."
        raise UsageError(f"There is no layout {as_text(layout)}{nearest(layout, list(LAYOUTS)) or others}")
    return explain(LAYOUTS[layout])


def _in_short(layout: Layout) -> dict[str, Any]:
    return {
        "name": layout.name,
        "summary": layout.summary,
        "first_label": layout.first_label,
        "needs": layout.needs.value,
    }


def explain(layout: Layout) -> dict[str, Any]:
    """Returns the explanation of a layout, as JSON stores it."""
    features = [
        {
            **fields,
            "optional": spec.optional,
            "encoding": spec.encoding.value,
            "what": _what(spec, layout),
            "parsing": parsing_source(parsing_of(spec)),
        }
        for spec, fields in zip(layout.features, to_json(layout.features))
    ]
    return {
        **_in_short(layout),
        "pixels": layout.pixels,
        "format_names": dict(layout.format_names),
        "features": features,
        "notes": list(_notes(layout)),
        "parsing_spec": spec_source(layout.features),
    }


def _what(spec: FeatureSpec, layout: Layout) -> str:
    """Returns the content of a feature, in words."""
    if spec.fill is None:
        return "unknown"
    if spec.fill is FeatureRole.EXTRA:
        of = f", one of {', '.join(spec.value)}" if spec.value else ""
        return f"the source's column {spec.column or spec.name} ({spec.value_type or spec.type.value}{of})"
    if spec.fill is FeatureRole.CONSTANT:
        return f"always {', '.join(map(str, spec.value))}"
    if spec.fill is FeatureRole.ENCODED:
        bare = f"the image's bare {spec.pixel_type or 'uint8'} pixels, row by row"
        return bare if layout.pixels else spec.fill.what
    if spec.fill is FeatureRole.FORMAT:
        names = [layout.format_names.get(name, name) for name in ("jpg", "png", "webp", "raw")]
        return f"the stored image's format: {', '.join(names[:-1])} or {names[-1]}"
    return spec.fill.what


def _notes(layout: Layout) -> Iterator[str]:
    """Yields notes that the table of features does not show."""
    if layout.needs is Needs.IMAGE:
        yield "Takes images from any folder, archive, table or TFRecord; their classes are not read."
    elif layout.needs is not Needs.LABEL or FeatureRole.LABEL in layout.by_role:
        unused = "; 0 stays free, as for a background" if layout.first_label == 1 else ""
        yield f"Class ids begin at {layout.first_label}{unused}."
    if layout.needs is not Needs.IMAGE:
        kept = "stored without objects" if layout.needs is Needs.OBJECTS else "quarantined"
        if layout.needs is Needs.LABEL:
            kept = f"{kept}, or with --unlabelled keep stored with the label -1"
        yield f"Requires a source with {_NEEDS[layout.needs]}; images without are {kept}."
    of_objects = [spec for spec in layout.features if spec.fill in (*OBJECT_ROLES, FeatureRole.BOXES)]
    if of_objects:
        yield "All object features list the objects in the same order."
    if any(not spec.optional for spec in of_objects):
        yield "For an image without objects, object features that are not optional are empty lists."
    if any(spec.optional for spec in layout.features):
        yield "Optional features are left out of a record if the source does not provide them."
    if layout.pixels:
        yield "Images are stored as bare pixels, not as files: larger, but readable without a decoder."
    if layout.pixels and not layout.stores_size:
        yield "Records do not contain the size of the image, so --resize must choose one size for all."


def print_list(description: Mapping[str, Any]) -> None:
    """Prints the list of layouts."""
    out = console()
    fields = ("name", "first_label", "needs", "summary")
    rows = [[item[name] for name in fields] for item in description["layouts"]]
    print_table(out, ("layout", "first id", "needs", "what it is"), rows)
    out.print("  shardwright layouts NAME explains one; docs/layouts.md says how to write one of your own.")


def print_explanation(description: Mapping[str, Any]) -> None:
    """Prints what `explain` returned."""
    out = console()
    out.print(f"  {as_text(description['name'])}: {description['summary']}")
    rows = []
    for item in description["features"]:
        shape = (shape_text(item["shape"]) or "one") + (", optional" if item["optional"] else "")
        rows.append([as_text(item["name"]), item["type"], shape, _words(item)])
    print_table(out, ("feature", "type", "shape", "what"), rows)
    for note in description["notes"]:
        out.print(f"  {note}")
    # Users copy these lines, so the table's console must not wrap them.
    print(f"\n# tf.io.parse_single_example(record, features)\n{description['parsing_spec']}", end="")


def _words(item: Mapping[str, Any]) -> str:
    if item["encoding"] == Encoding.PLAIN:
        return as_text(item["what"])
    # TensorFlow's name for the type of a serialized tensor, with the shape.
    dtype = {"object": "string"}.get(item.get("dtype", ""), item.get("dtype", ""))
    sides = shape_text(item.get("tensor_shape", ()))
    tensor = f"{dtype}, {sides}" if sides else str(dtype)
    encoding = _ENCODINGS[Encoding(item["encoding"])].format(dtype=tensor)
    return f"{as_text(item['what'])}; as {encoding}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument(
        "layout", nargs="*", metavar="LAYOUT", help="name of a layout, or your own file LAYOUT.yaml"
    )


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    if len(options.layout) > 1:
        raise UsageError(f"Name one layout, not {len(options.layout)}.")
    description = layouts(options.layout[0] if options.layout else "")
    show = print_list if "layouts" in description else print_explanation
    return CommandResult(lambda: show(description), lambda: description)
