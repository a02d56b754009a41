"""A record whose features may be encoded: base64 text and serialized tensors read as what they hold."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from shardwright.schemas.byte_range import BASE64, STORED
from shardwright.schemas.example import Feature, FeatureType
from shardwright.schemas.example_spans import ExampleSpans, Span, fields_in
from shardwright.schemas.layouts import Encoding, FeatureSpec
from shardwright.transforms.records.encodings import plain_feature

_NOTHING: Mapping[str, FeatureSpec] = {}


class SourceRecord(ExampleSpans):
    """A record's features by name, without their encodings.

    Attributes:
      encoded: the features that are not plain, by name.

    Raises:
      NotAnExample: if it is a SequenceExample.
      ValueError: if it is malformed.
    """

    __slots__ = ("encoded",)

    def __init__(self, data: bytes, encoded: Mapping[str, FeatureSpec] = _NOTHING) -> None:
        super().__init__(data)
        self.encoded = encoded

    def feature(self, name: str) -> Feature:
        """Returns a feature with its values.

        Raises:
          ValueError: if it is malformed, not of its encoding, or has too many values.
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
        """Returns where the values of a list of bytes are, those in a serialized tensor too.

        What is base64 is so there: `method_of` says it.

        Raises:
          ValueError: if it is malformed.
        """
        spans = super().bytes_of(name)
        spec = self.encoded.get(name)
        if not spans or spec is None or spec.encoding is not Encoding.TENSOR or spec.dtype != "object":
            return spans
        self.feature(name)  # raises if it is no such tensor
        texts = fields_in(self.data, *spans[0])
        return [Span(begin, end) for field, wire, begin, end in texts if (field, wire) == (8, 2)]

    def method_of(self, name: str) -> str:
        """Returns how the bytes of `bytes_of` are stored, as a `Place` says it."""
        spec = self.encoded.get(name)
        return BASE64 if spec is not None and spec.encoding is Encoding.BASE64 else STORED

    def size_of(self, name: str, span: Span) -> int:
        """Returns the number of bytes that one of `bytes_of` holds."""
        size = span.end - span.begin
        if self.method_of(name) == STORED:
            return size
        padding = self.data.count(b"=", max(span.begin, span.end - 2), span.end)
        return size // 4 * 3 - padding

    def value_of(self, name: str, span: Span) -> bytes:
        """Returns one of `bytes_of`.

        Raises:
          ValueError: if it is not of its encoding.
        """
        data = self.data[span.begin : span.end]
        return data if self.method_of(name) == STORED else base64.b64decode(data, b"-_", validate=True)
