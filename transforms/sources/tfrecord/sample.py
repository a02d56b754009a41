"""Checks the first records of an input against the settings."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO

import numpy as np

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, UsageError
from shardwright.schemas.example import NotAnExample
from shardwright.schemas.image_ref import printable
from shardwright.schemas.units import parse_pixel_shape
from shardwright.transforms import storage
from shardwright.transforms.images.pixel_order import are_planar
from shardwright.transforms.records.framing import Record, read_records
from shardwright.transforms.sources.tfrecord.columns import check_columns
from shardwright.transforms.sources.tfrecord.files import compression_in, unpack
from shardwright.transforms.sources.tfrecord.images import (
    FoundImage,
    NoImage,
    find_image,
    own_image,
    pixel_values,
)
from shardwright.transforms.sources.tfrecord.layouts import names_by_role
from shardwright.transforms.sources.tfrecord.needs import check_needs
from shardwright.transforms.sources.tfrecord.own import OwnRecords
from shardwright.transforms.sources.tfrecord.record import SourceRecord

#: Number of files to read, of records in each, and of bytes in one that is remote or compressed.
_FILES, _RECORDS, _HEAD_BYTES = 4, 16, 1 << 22
_UNPACKED_BYTES = 1 << 24


def pixel_shape_of(settings: ConvertSettings) -> tuple[int, int, int] | None:
    """Returns the shape in `--pixel_shape`; None if it is not set."""
    return parse_pixel_shape(settings.pixel_shape) if settings.pixel_shape else None


def sample(paths: Sequence[str]) -> list[bytes]:
    """Returns the first undamaged records of some of the files."""
    chosen = paths[:: max(1, -(-len(paths) // _FILES))]
    found: list[bytes] = []
    for path in (*chosen, *(path for path in paths[:_FILES] if path not in chosen)):
        with storage.translated_errors("read", path), _beginning(path) as file:
            sound = (item.data for item in islice(read_records(file), _RECORDS) if isinstance(item, Record))
            found += sound
        if len(found) >= _FILES * _RECORDS:
            break
    return found


@contextlib.contextmanager
def _beginning(path: str) -> Iterator[IO[bytes]]:
    """Opens a local file, or the unpacked first bytes of a remote or compressed file."""
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


def check_sample(
    path: str, records: Sequence[bytes], settings: ConvertSettings, own: OwnRecords | None = None
) -> set[str]:
    """Returns the names of the features in records.

    Args:
      path: Path of the input.
      records: First records of the input.
      settings: Checked settings.
      own: Description of the records, if they belong to a dataset of Shardwright.

    Raises:
      UsageError: If no record has an image and the annotations that the layout needs.
    """
    shown = f"--input {printable(path)}"
    examples: list[SourceRecord] = []
    fault: ValueError | None = None
    for data in records:
        try:
            examples.append(SourceRecord(data, own.encoded) if own else SourceRecord(data))
        except NotAnExample as error:
            raise UsageError(
                f"{shown}: {error}, not a tf.train.Example with one image; convert reads the latter only."
            ) from None
        except ValueError as error:
            fault = error
    if fault and not examples:
        raise UsageError(f"{shown}: its records are not tf.train.Example ({fault}); convert reads no others.")
    names = set().union(*(example.features for example in examples)) if examples else set()
    _check_images(shown, examples, settings, own)
    if own:
        found = [own.names_in(names)] if examples else []
    else:
        found = [names_by_role(tuple(example.features)) for example in examples]
    check_needs(printable(path), sorted(names), found, settings)
    check_columns(printable(path), names, own.columns if own else {}, settings)
    return names


def image_of(record: SourceRecord, own: OwnRecords | None, settings: ConvertSettings) -> FoundImage:
    """Returns the position of the image in a record.

    Raises:
      NoImage: If the record has no image.
      ValueError: If the record is malformed.
    """
    if own:
        return own_image(record, own, pixel_shape_of(settings))
    return find_image(record, names_by_role(tuple(record.features)), pixel_shape_of(settings))


def _check_images(
    shown: str, examples: Sequence[SourceRecord], settings: ConvertSettings, own: OwnRecords | None
) -> None:
    faults: list[NoImage] = []
    for example in examples:
        try:
            image_of(example, own, settings)
        except NoImage as fault:
            faults.append(fault)
        except ValueError:
            continue
        else:
            return
    if faults:
        raise UsageError(f"{shown}: the first record: {faults[0]}.")


def pixels_are_planar(records: IO[bytes], settings: ConvertSettings) -> bool:
    """Returns whether a file's raw pixels are stored channel by channel, judged by the first records."""

    def pictures() -> Iterator[tuple[np.ndarray, tuple[int, ...]]]:
        for item in islice(read_records(records), _RECORDS):
            if isinstance(item, Record):
                # Faults are reported when the record is listed or converted.
                with contextlib.suppress(ValueError, ImageFault):
                    example = SourceRecord(item.data)
                    image = image_of(example, None, settings)
                    if image.planar is None:
                        yield pixel_values(example, image), image.shape

    return are_planar(pictures())
