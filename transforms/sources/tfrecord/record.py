"""Reads records with encoded features: values are decoded from base64 text and serialized tensors."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from shardwright.schemas.byte_range import BASE64, STORED
from shardwright.schemas.example import ExampleSpans, Feature, FeatureType, Span
from shardwright.schemas.layouts import Encoding, FeatureSpec
from shardwright.schemas.wire_format import fields_in
from shardwright.transforms.records.encodings import plain_feature

_NOTHING: Mapping[str, FeatureSpec] = {}


class SourceRecord(ExampleSpans):
    """Decoded features of a record by name.

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
        texts = fields_in(self.data, *spans[0])
        return [Span(begin, end) for field, wire, begin, end in texts if (field, wire) == (8, 2)]

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
