"""Converts labels in arrays (numbers, names, one-hot rows) to class names with ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

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
MISSING = ArrayLabel("", QuarantineReason.BAD_ANNOTATION, "the labels end before this image")


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
        self._numbers: dict[float, ArrayLabel] = {}
        self._texts: dict[bytes, ArrayLabel] = {}
        self._columns = 0

    def read(self, values: np.ndarray) -> list[ArrayLabel]:
        """Returns the label of each row.

        Raises:
          UsageError: if the array does not hold labels.
        """
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        kind = values.dtype.kind
        if values.ndim == 1 and kind in "SU":
            size = values.dtype.itemsize
            data = values.tobytes()
            codec = "utf-8" if kind == "S" else f"utf-32-{'be' if values.dtype.str[0] == '>' else 'le'}"
            return [self._text(data[i * size : (i + 1) * size], codec) for i in range(len(values))]
        if values.ndim == 1 and kind in "biuf":
            known = self._numbers
            return [known.get(number) or self._number(number) for number in values.tolist()]
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
        if self._columns:
            yield from (ClassId(str(number), number) for number in range(self._columns))
        for number, label in self._numbers.items():
            if label.label:
                yield ClassId(label.label, min(int(number), MAX_OWN_ID + 1))

    def _number(self, number: float) -> ArrayLabel:
        """Returns the label for a number."""
        if number != number:
            return ArrayLabel(message="its label is NaN")
        if number in (float("inf"), float("-inf")) or number != int(number):
            raise UsageError(
                f"{self._where} holds {number}, which is not a class number; labels are whole numbers, names "
                "or one-hot rows: name the right array with --label_column."
            )
        self._numbers[number] = label = self._class(int(number))
        return label

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
        found = self._texts.get(raw)
        if found is None:
            try:
                found = self._named(raw.decode(codec).rstrip("\0").replace(LABEL_SEPARATOR, " "))
            except UnicodeDecodeError:
                found = ArrayLabel("", QuarantineReason.BAD_ANNOTATION, f"its label {raw[:40]!r} is not text")
            self._texts[raw] = found
        return found

    def _named(self, text: str) -> ArrayLabel:
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
        self._columns = values.shape[1]
        several = chosen.sum(axis=1)
        if several.size and several.max() > 1:
            return self._several(chosen)
        known = [self._class(number) for number in range(self._columns)]
        none = ArrayLabel(message="no class is marked in its row of labels")
        return [
            known[place] if count else none
            for place, count in zip(chosen.argmax(axis=1).tolist(), several.tolist(), strict=True)
        ]

    def _several(self, chosen: np.ndarray) -> list[ArrayLabel]:
        if not self._separator:
            raise UsageError(
                f"{self._where} marks several classes for one image; give --label_separator '|' to keep "
                "them all."
            )
        labels = []
        for row in chosen:
            classes = [self._class(number) for number in np.flatnonzero(row).tolist()]
            wrong = [item for item in classes if not item.label]
            label = LABEL_SEPARATOR.join(item.label for item in classes)
            labels.append(
                wrong[0]
                if wrong
                else ArrayLabel(label, "", "" if label else "no class is marked in its row of labels")
            )
        return labels
