"""A look at the first records of an input: what they hold, and whether that is what is asked for."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO

import numpy as np

from shardwright.schemas.errors import ImageFault, UsageError
from shardwright.schemas.example_spans import ExampleSpans, NotAnExample
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import LAYOUTS, Needs
from shardwright.schemas.settings import ConvertSettings
from shardwright.schemas.units import parse_pixel_shape
from shardwright.transforms import storage
from shardwright.transforms.images.pixel_order import are_planar, brightest_if_dark
from shardwright.transforms.records.framing import Record, read_records
from shardwright.transforms.sources.tfrecord.files import compression_in, unpack
from shardwright.transforms.sources.tfrecord.images import FoundImage, NoImage, find_image, pixel_values
from shardwright.transforms.sources.tfrecord.layouts import roles_of

#: Files looked into, records of each, and bytes of one that is remote or compressed.
_FILES, _RECORDS, _HEAD_BYTES = 4, 16, 1 << 22
_UNPACKED_BYTES = 1 << 24
_WHAT = {
    Needs.LABEL: "no class of the image",
    Needs.OBJECTS: "no boxes",
    Needs.SEMANTIC: "no mask of classes",
    Needs.PANOPTIC: "no panoptic masks",
}


def pixel_shape_of(settings: ConvertSettings) -> tuple[int, int, int] | None:
    """Returns the shape that `--pixel_shape` says; None if it says none."""
    return parse_pixel_shape(settings.pixel_shape) if settings.pixel_shape else None


def sample(paths: Sequence[str]) -> list[bytes]:
    """Returns the first sound records of some of the files."""
    chosen = paths[:: max(1, -(-len(paths) // _FILES))]
    found: list[bytes] = []
    for path in (*chosen, *(path for path in paths[:_FILES] if path not in chosen)):
        with storage.faults("read", path), _beginning(path) as file:
            sound = (item.data for item in islice(read_records(file), _RECORDS) if isinstance(item, Record))
            found += sound
        if len(found) >= _FILES * _RECORDS:
            break
    return found


@contextlib.contextmanager
def _beginning(path: str) -> Iterator[IO[bytes]]:
    """Opens a file, or what the first bytes of one that is remote or compressed unpack to."""
    head = storage.read_head(path, 4096)
    compression = compression_in(path, head)
    if compression == "none" and not storage.is_remote(path):
        with open(path, "rb") as file:
            yield file
        return
    head = storage.read_head(path, _HEAD_BYTES)
    with tempfile.TemporaryFile() as file:
        file.write(head if compression == "none" else unpack(head, compression, _UNPACKED_BYTES))
        file.flush()
        file.seek(0)
        yield file


def check_sample(path: str, records: Sequence[bytes], settings: ConvertSettings) -> set[str]:
    """Returns the names of the features in records.

    Raises:
      UsageError: if none of them can be an image's record of the layout that is asked for.
    """
    shown = f"--input {printable(path)}"
    examples: list[ExampleSpans] = []
    fault: ValueError | None = None
    for data in records:
        try:
            examples.append(ExampleSpans(data))
        except NotAnExample as error:
            raise UsageError(
                f"{shown}: {error}, not a tf.train.Example with one image; convert reads the latter only."
            ) from None
        except ValueError as error:
            fault = error
    if fault and not examples:
        raise UsageError(f"{shown}: its records are no tf.train.Example ({fault}); convert reads these only.")
    names = set().union(*(example.features for example in examples)) if examples else set()
    features = ", ".join(sorted(names)[:20])
    _check_images(shown, examples, settings)
    _check_needs(shown, examples, settings, features)
    for column in settings.parsed_extra_columns:
        if names and column.name not in names and not column.is_list:
            raise UsageError(
                f"--extra_columns {column.name}: the records of {printable(path)} have no such feature "
                f"(features: {features})."
            )
    return names


def _check_images(shown: str, examples: Sequence[ExampleSpans], settings: ConvertSettings) -> None:
    faults: list[NoImage] = []
    found: list[tuple[ExampleSpans, FoundImage]] = []
    for example in examples:
        try:
            roles = roles_of(tuple(example.features))
            found.append((example, find_image(example, roles, pixel_shape_of(settings))))
        except NoImage as fault:
            faults.append(fault)
        except ValueError:
            continue
    if faults and not found:
        raise UsageError(f"{shown}: the first record: {faults[0]}.")
    highest = brightest_if_dark(pixel_values(*item) for item in found if item[1].dtype == "<u2")
    if highest:
        raise UsageError(
            f"{shown}: the values of its first images run up to {highest} only, but white is 65535 in "
            f"pixels of 16 bits; write them {'as uint8' if highest <= 0xFF else 'from 0 to 65535'}."
        )


def pixels_are_planar(records: IO[bytes], settings: ConvertSettings) -> bool:
    """Tells of a file whose records do not say it whether the channels of pixels stand one after another."""

    def pictures() -> Iterator[tuple[np.ndarray, tuple[int, ...]]]:
        for item in islice(read_records(records), _RECORDS):
            if isinstance(item, Record):
                # What is wrong with it is told when it is listed, or converted.
                with contextlib.suppress(ValueError, ImageFault):
                    example = ExampleSpans(item.data)
                    image = find_image(example, roles_of(tuple(example.features)), pixel_shape_of(settings))
                    if image.planar is None:
                        yield pixel_values(example, image), image.shape

    return are_planar(pictures())


def _check_needs(
    shown: str, examples: Sequence[ExampleSpans], settings: ConvertSettings, features: str
) -> None:
    needs = settings.record_layout.needs
    if not examples or (needs is Needs.LABEL and settings.unlabelled == "keep"):
        return
    roles = [roles_of(tuple(example.features)) for example in examples]
    if any(role.has(needs) for role in roles):
        return
    fitting = [layout.name for layout in LAYOUTS.values() if any(role.has(layout.needs) for role in roles)]
    advice = "name records with annotations of that kind"
    if fitting:
        advice = f"choose --layout {' or '.join(fitting)}"
    elif needs is Needs.LABEL:
        advice = "choose --unlabelled keep"
    raise UsageError(
        f"--layout {settings.layout}: {shown.removeprefix('--input ')} says {_WHAT[needs]} "
        f"(features: {features}); {advice}."
    )
