"""What the values of arrays mean: images by shape and type, and labels (numbers, names, one-hot rows)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from shardwright.core.images.byte_ranges import PICTURES, are_planar
from shardwright.core.sources.arrays.files import ArrayFile, ArrayHeader, Rows
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef
from shardwright.schemas.labels import MAX_OWN_ID, ClassId
from shardwright.schemas.units import counted, parse_pixel_shape

_CHANNELS = (1, 3, 4)
#: Bytes of the first images to check.
_FIRST_BYTES = 1 << 18
#: Most columns of a one-hot array; a wider array is not one.
_MAX_COLUMNS = 100_000


def image_shape(header: ArrayHeader, settings: ConvertSettings, where: str) -> tuple[tuple[int, ...], bool]:
    """Returns (height, width, channels) of the images of an array, and whether they are planar.

    Raises:
      UsageError: If its values or its shape do not fit images, or the shape is ambiguous.
    """
    dtype, row = np.dtype(header.dtype), header.shape[1:]
    if dtype.kind not in "buif" or dtype.itemsize > 8:
        raise UsageError(
            f"{where} holds values of type {dtype}, which is not a type of pixels; name the array of "
            "images with --image_column, or save it as uint8."
        )
    if settings.pixel_shape:
        height, width, channels = shape = parse_pixel_shape(settings.pixel_shape)
        if row in (shape, shape[:2] if channels == 1 else shape, (math.prod(shape),)):
            return shape, False
        if row == (channels, height, width):
            return shape, True
        raise UsageError(
            f"{where} holds images of shape {times(row)}, which is not --pixel_shape {times(shape)}."
        )
    counts = (settings.channels,) if settings.channels else _CHANNELS
    if 0 not in row:
        if len(row) == 2 and min(row) > max(_CHANNELS):
            return (*row, 1), False
        last, first = (row[2] in counts, row[0] in counts) if len(row) == 3 else (False, False)
        if last and (not first or row == (3, 3, 3)):
            return row, False
        if first and not last:
            return (*row[1:], row[0]), True
        if len(row) == 1 or (len(row) in (2, 3) and min(row) <= max(_CHANNELS)):
            raise UsageError(
                f"{where} has shape {times(header.shape)}, which leaves open what is height, width and "
                "channels of an image; give them with --pixel_shape HxWxC, such as 32x32x3."
            )
    raise UsageError(
        f"{where} has shape {times(header.shape)}, which is not a shape of images (N x height x width, with "
        f"{' or '.join(map(str, counts))} channels after N or last); name the right array with "
        "--image_column, or give another number of channels with --channels."
    )


def times(shape: tuple[int, ...]) -> str:
    """Returns a shape as text, such as 32x32x3."""
    return "x".join(map(str, shape))


def rows_are_planar(rows: Rows, shape: tuple[int, ...]) -> bool:
    """Returns whether flat rows hold images channel by channel, as CIFAR does."""
    if len(rows.shape) != 1 or shape[2] == 1:
        return False
    # One image at a time, because images may be large.
    return are_planar((rows.values(index, 1), shape) for index in range(min(PICTURES, rows.whole)))


def check_first_images(array: ArrayFile, settings: ConvertSettings) -> None:
    """Checks that the values of the first images can be pixels, before anything is written.

    In Fortran order, the first values are values of many images, which serve as well.

    Raises:
      UsageError: If they cannot be pixels.
    """
    header = array.header
    dtype = np.dtype(header.dtype)
    if dtype.kind == "b" or dtype.str[1:] in ("u1", "u2") or header.row_bytes > settings.max_source_bytes:
        return
    most = header.begin + min(header.end - header.begin, max(header.row_bytes, _FIRST_BYTES))
    data = array.read_first(most)[header.begin :]
    count = len(data) // header.row_bytes
    values = np.frombuffer(data[: count * header.row_bytes], dtype).reshape(count, -1)
    highest = 1 if dtype.kind == "f" else 255
    wrong = ~((values >= 0) & (values <= highest)).all(axis=1)  # NaN fails both comparisons
    if 2 * wrong.sum() <= count:  # the conversion leaves a few bad images out
        return
    finite = values[np.isfinite(values)]
    low, high = (finite.min().item(), finite.max().item()) if finite.size else (math.nan, math.nan)
    raise UsageError(
        f"{array.name}: the values of its first images run from {low:g} to {high:g}, but pixels of type "
        f"{dtype} must be between 0 and {highest}; scale them, or save them as uint8, or as uint16 if they "
        "have 16 bits."
    )


#: Reference to an image that has no label yet.
_NONE = ImageRef("", "")


@dataclass
class LabelReader:
    """Converts the values of label arrays to class names, and remembers the ids of the classes.

    Attributes:
      where: Name of the array, for messages.
      rows: Its rows; None if there are no labels.
      names: Class names by number; empty if numbers are the only names.
      separator: Separator of several classes in a text; empty if an image has only one.
    """

    where: str
    rows: Rows | None = None
    names: Sequence[str] = ()
    separator: str = ""
    _refs: dict[int, ImageRef] = field(default_factory=dict)
    _columns: int = 0

    def read_rows(self, first: int, count: int) -> list[ImageRef]:
        """Returns references with nothing but the labels of some images, also of those that have none.

        Raises:
          UsageError: If the array does not hold labels.
        """
        rows = self.rows
        if rows is None:
            return [_NONE._replace(message="there are no labels for its array")] * count
        if rows.damage:
            return [_NONE.quarantined(rows.damage.reason, f"its label: {rows.damage.message}")] * count
        labels = self.read(rows.values(first, count))
        missing = _NONE.quarantined(QuarantineReason.BAD_ANNOTATION, "the labels end before this image")
        return labels + [missing] * (count - len(labels))

    def read(self, values: np.ndarray) -> list[ImageRef]:
        """Returns a reference with nothing but the label of each row.

        Raises:
          UsageError: If the array does not hold labels.
        """
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        kind = values.dtype.kind
        if values.ndim == 1 and kind in "SU":
            size, data = values.dtype.itemsize, values.tobytes()
            codec = "utf-8" if kind == "S" else f"utf-32-{'be' if values.dtype.str[0] == '>' else 'le'}"
            return [self._text(data[i * size : (i + 1) * size], codec) for i in range(len(values))]
        if values.ndim == 1 and kind in "biuf":
            return [self._label_for(value) for value in values.tolist()]
        if values.ndim == 2 and kind in "biuf" and 0 < values.shape[1] <= _MAX_COLUMNS:
            return self._one_hot(values)
        raise UsageError(
            f"{self.where} holds {values.dtype} of shape {values.shape[1:]} for each image, not labels; "
            "name the right array with --label_column."
        )

    def class_ids(self) -> Iterator[ClassId]:
        """Yields the ids of the classes; classes with known names are included even if no image has them."""
        if self.names:
            yield from map(ClassId, self.names, range(len(self.names)))
            return
        yield from (ClassId(str(class_id), class_id) for class_id in range(self._columns))
        for class_id, label in self._refs.items():
            if label.label:
                yield ClassId(label.label, min(class_id, MAX_OWN_ID + 1))

    def _label_for(self, value: float) -> ImageRef:
        """Returns the label for a number."""
        if value != value:
            return _NONE._replace(message="its label is NaN")
        if value in (float("inf"), float("-inf")) or value != int(value):
            raise UsageError(
                f"{self.where} holds {value}, which is not a class number; labels are whole numbers, names "
                "or one-hot rows: name the right array with --label_column."
            )
        return self._refs.setdefault(int(value), self._class(int(value)))

    def _class(self, class_id: int) -> ImageRef:
        if class_id < 0:
            return _NONE._replace(message=f"its label is {class_id}")
        if not self.names:
            return _NONE._replace(label=str(class_id))
        if class_id < len(self.names):
            return _NONE._replace(label=self.names[class_id])
        message = f"its label is {class_id}, but there are names for {counted(len(self.names), 'class')} only"
        return _NONE.quarantined(QuarantineReason.BAD_ANNOTATION, message)

    def _text(self, raw: bytes, codec: str) -> ImageRef:
        try:
            text = raw.decode(codec).rstrip("\0").replace(LABEL_SEPARATOR, " ")
        except UnicodeDecodeError:
            message = f"its label {raw[:40]!r} is not text"
            return _NONE.quarantined(QuarantineReason.BAD_ANNOTATION, message)
        if not text.strip():
            return _NONE._replace(message="its label is empty")
        if not self.separator:
            return _NONE._replace(label=text)
        several = (name.strip() for name in text.split(self.separator))
        return _NONE._replace(label=LABEL_SEPARATOR.join(dict.fromkeys(filter(None, several))))

    def _one_hot(self, values: np.ndarray) -> list[ImageRef]:
        chosen = values == 1
        if not (chosen | (values == 0)).all():
            raise UsageError(
                f"{self.where} has {values.shape[1]} values for each image, but not only 0 and 1; labels "
                "are whole numbers, names or one-hot rows: name the right array with --label_column."
            )
        if not self.separator and (chosen.sum(axis=1) > 1).any():
            raise UsageError(
                f"{self.where} marks several classes for one image; give --label_separator '|' to keep "
                "them all."
            )
        self._columns = values.shape[1]
        return [self._several(np.flatnonzero(row).tolist()) for row in chosen]

    def _several(self, class_ids: list[int]) -> ImageRef:
        """Returns the label of an image with these classes."""
        if not class_ids:
            return _NONE._replace(message="no class is marked in its row of labels")
        classes = [self._class(class_id) for class_id in class_ids]
        label = _NONE._replace(label=LABEL_SEPARATOR.join(item.label for item in classes))
        return next((item for item in classes if not item.label), label)
