"""Converts labels in arrays (numbers, names, one-hot rows) to class names with ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shardwright.core.sources.arrays.files import Rows
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.labels import MAX_OWN_ID, ClassId
from shardwright.schemas.units import counted

#: Most columns of a one-hot array; a wider array is not one.
_MAX_COLUMNS = 100_000


class ArrayLabel(NamedTuple):
    """Label of an image from an array.

    Attributes:
      label: Class name or names; empty if there is none.
      reason: Quarantine reason of an invalid label; empty if there is none.
      message: Why the label is missing or invalid.
    """

    label: str = ""
    reason: str = ""
    message: str = ""


#: Label of an image after the end of the labels.
_MISSING = ArrayLabel("", QuarantineReason.BAD_ANNOTATION, "the labels end before this image")


class LabelReader:
    """Converts the values of label arrays to class names, and remembers the ids of the classes.

    Args:
      where: Name of the array, for messages.
      names: Class names by number; empty if numbers are the only names.
      separator: Separator of several classes in a text; empty if an image has only one.
    """

    def __init__(self, where: str, names: Sequence[str] = (), separator: str = "") -> None:
        self._where = where
        self._names = names
        self._separator = separator
        self._numbers: dict[int, ArrayLabel] = {}
        self._columns = 0

    def read_rows(self, rows: Rows | None, first: int, count: int) -> list[ArrayLabel]:
        """Returns the labels of some images, also of those whose labels are missing.

        Raises:
          UsageError: If the array does not hold labels.
        """
        if rows is None:
            return [ArrayLabel(message="there are no labels for its array")] * count
        if rows.damage:
            return [ArrayLabel("", rows.damage.reason, f"its label: {rows.damage.message}")] * count
        labels = self.read(rows.values(first, count))
        return labels + [_MISSING] * (count - len(labels))

    def read(self, values: np.ndarray) -> list[ArrayLabel]:
        """Returns the label of each row.

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
            return [self._number(number) for number in values.tolist()]
        if values.ndim == 2 and kind in "biuf" and 0 < values.shape[1] <= _MAX_COLUMNS:
            return self._one_hot(values)
        raise UsageError(
            f"{self._where} holds {values.dtype} of shape {values.shape[1:]} for each image, not labels; "
            "name the right array with --label_column."
        )

    def class_ids(self) -> Iterator[ClassId]:
        """Yields the ids of the classes; classes with known names are included even if no image has them."""
        if self._names:
            yield from map(ClassId, self._names, range(len(self._names)))
            return
        yield from (ClassId(str(number), number) for number in range(self._columns))
        for number, label in self._numbers.items():
            if label.label:
                yield ClassId(label.label, min(number, MAX_OWN_ID + 1))

    def _number(self, number: float) -> ArrayLabel:
        """Returns the label for a number."""
        if number != number:
            return ArrayLabel(message="its label is NaN")
        if number in (float("inf"), float("-inf")) or number != int(number):
            raise UsageError(
                f"{self._where} holds {number}, which is not a class number; labels are whole numbers, names "
                "or one-hot rows: name the right array with --label_column."
            )
        return self._numbers.setdefault(int(number), self._class(int(number)))

    def _class(self, number: int) -> ArrayLabel:
        if number < 0:
            return ArrayLabel(message=f"its label is {number}")
        if not self._names:
            return ArrayLabel(str(number))
        if number < len(self._names):
            return ArrayLabel(self._names[number])
        message = f"its label is {number}, but there are names for {counted(len(self._names), 'class')} only"
        return ArrayLabel("", QuarantineReason.BAD_ANNOTATION, message)

    def _text(self, raw: bytes, codec: str) -> ArrayLabel:
        try:
            text = raw.decode(codec).rstrip("\0").replace(LABEL_SEPARATOR, " ")
        except UnicodeDecodeError:
            message = f"its label {raw[:40]!r} is not text"
            return ArrayLabel("", QuarantineReason.BAD_ANNOTATION, message)
        if not text.strip():
            return ArrayLabel(message="its label is empty")
        if not self._separator:
            return ArrayLabel(text)
        several = (name.strip() for name in text.split(self._separator))
        return ArrayLabel(LABEL_SEPARATOR.join(dict.fromkeys(filter(None, several))))

    def _one_hot(self, values: np.ndarray) -> list[ArrayLabel]:
        chosen = values == 1
        if not (chosen | (values == 0)).all():
            raise UsageError(
                f"{self._where} has {values.shape[1]} values for each image, but not only 0 and 1; labels "
                "are whole numbers, names or one-hot rows: name the right array with --label_column."
            )
        if not self._separator and (chosen.sum(axis=1) > 1).any():
            raise UsageError(
                f"{self._where} marks several classes for one image; give --label_separator '|' to keep "
                "them all."
            )
        self._columns = values.shape[1]
        return [self._several(np.flatnonzero(row).tolist()) for row in chosen]

    def _several(self, numbers: list[int]) -> ArrayLabel:
        """Returns the label of an image with these classes."""
        if not numbers:
            return ArrayLabel(message="no class is marked in its row of labels")
        classes = [self._class(number) for number in numbers]
        label = ArrayLabel(LABEL_SEPARATOR.join(item.label for item in classes))
        return next((item for item in classes if not item.label), label)
