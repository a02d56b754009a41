"""Reads the features of a record, also those that are stored as base64 text or serialized tensors."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from shardwright.core.records.encodings import plain_feature
from shardwright.schemas.byte_range import BASE64, STORED
from shardwright.schemas.example import ExampleSpans, Feature, FeatureType, Span
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.layouts import Encoding, FeatureSpec
from shardwright.schemas.tensor_proto import find_tensor

_NOTHING: Mapping[str, FeatureSpec] = {}
#: Largest number of bytes in a class name.
_MAX_CLASS_NAME = 1000


class SourceRecord(ExampleSpans):
    """Decoded features of a record by name. An empty name stands for a feature that records do not have.

    Attributes:
      encoded: Features with an encoding other than plain, by name.

    Raises:
      NotAnExample: If the record is a SequenceExample.
      ValueError: If the record is malformed.
    """

    __slots__ = ("encoded",)

    def __init__(self, data: bytes, encoded: Mapping[str, FeatureSpec] = _NOTHING) -> None:
        super().__init__(data)
        self.encoded = encoded

    def feature(self, name: str) -> Feature:
        """Returns a feature with its values.

        Raises:
          ValueError: If the feature is malformed, does not match its encoding, or has too many values.
        """
        if name not in self.features:
            return Feature(None, [])
        spec = self.encoded.get(name)
        if spec is None:
            return super().feature(name)
        spans = super().bytes_of(name)
        if not spans:
            return Feature(None, [])
        stored = Feature(FeatureType.BYTES, [self.data[span.begin : span.end] for span in spans])
        return plain_feature(spec, stored)

    def bytes_of(self, name: str) -> list[Span] | None:
        """Returns the positions of the values in a list of bytes, also within a serialized tensor.

        Values may be base64 text, which `method_of` tells.

        Raises:
          ValueError: If the feature is malformed.
        """
        spans = super().bytes_of(name)
        spec = self.encoded.get(name)
        if not spans or spec is None or spec.encoding is not Encoding.TENSOR or spec.dtype != "object":
            return spans
        self.feature(name)  # raises if the tensor is malformed
        return list(map(Span._make, find_tensor(self.data, *spans[0]).texts))

    def only_bytes(self, name: str) -> Span | None:
        """Returns the position of the only value in a list of bytes; None if it has none or several.

        Raises:
          ValueError: If the feature is malformed.
        """
        spans = self.bytes_of(name)
        return spans[0] if spans and len(spans) == 1 else None

    def method_of(self, name: str) -> str:
        """Returns the `ByteRange` method with which the bytes of `bytes_of` are stored."""
        spec = self.encoded.get(name)
        return BASE64 if spec is not None and spec.encoding is Encoding.BASE64 else STORED

    def size_of(self, name: str, span: Span) -> int:
        """Returns the number of decoded bytes in a span of `bytes_of`."""
        size = span.end - span.begin
        if self.method_of(name) == STORED:
            return size
        padding = self.data.count(b"=", max(span.begin, span.end - 2), span.end)
        return size // 4 * 3 - padding

    def value_of(self, name: str, span: Span) -> bytes:
        """Returns the decoded value of a span of `bytes_of`.

        Raises:
          ValueError: If the value does not match its encoding.
        """
        data = self.data[span.begin : span.end]
        return data if self.method_of(name) == STORED else base64.b64decode(data, b"-_", validate=True)

    def numbers(self, name: str) -> Sequence[Any]:
        """Returns the numbers of a feature; none if the feature is missing.

        Raises:
          ValueError: If the feature has bytes.
        """
        feature = self.feature(name)
        if feature.type is FeatureType.BYTES:
            raise ValueError(f"its feature {name!r} is not a list of numbers")
        return feature.values

    def texts(self, name: str) -> list[str]:
        """Returns the class names in a feature; none if it has no bytes.

        Raises:
          ValueError: If a value cannot be a class name.
        """
        texts = []
        for span in self.bytes_of(name) or ():
            size = span.end - span.begin
            if size > _MAX_CLASS_NAME:
                raise ValueError(f"its feature {name!r} has {size} bytes, which is not a class name")
            try:
                text = str(self.value_of(name, span), "utf-8")
            except UnicodeDecodeError:
                raise ValueError(f"its feature {name!r} is not UTF-8 text") from None
            if LABEL_SEPARATOR in text:
                raise ValueError(f"its feature {name!r} holds the control character U+001F")
            texts.append(text)
        return texts

    def text(self, name: str, limit: int) -> str:
        """Returns the only value of a feature as text; empty if there is none, or it is not text.

        Args:
          name: Name of the feature.
          limit: Largest number of bytes of a text.
        """
        values = self.feature(name).values
        value = values[0] if len(values) == 1 else None
        if isinstance(value, int):
            return str(value)
        try:
            return str(value, "utf-8") if isinstance(value, bytes) and len(value) <= limit else ""
        except UnicodeDecodeError:
            return ""
