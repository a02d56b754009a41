"""WebP: still pictures are decoded without the canvases that Pillow's decoder for animations keeps.

That decoder reads the header. It refuses a file that is shorter than it says, but not in words that differ
from those about other damage.

Source: RFC 9649.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from PIL import Image

from shardwright.core.images.faults import truncated
from shardwright.core.images.formats.containers import check_chunks, chunks
from shardwright.core.images.formats.jpeg import wrap_rgb
from shardwright.core.images.formats.opened_image import MetadataBlock, OpenedImage

_METADATA = {b"EXIF": "exif", b"XMP ": "xmp"}
#: The flags of this metadata in VP8X (2.7.1).
_METADATA_FLAGS = 0x08 | 0x04
#: Most chunks in which metadata is looked for.
_MAX_CHUNKS = 100_000
#: Bytes per pixel in Pillow's decoder of animations: two canvases, a copy, the image, its colors.
_ANIMATED_BYTES = 20


class WebpImage(OpenedImage):
    """A WebP."""

    kind = "webp"
    storable = True
    _plugin = "WEBP"

    def _read_header(self, max_pixels: int) -> Image.Image:
        end = _end_of(self.data)
        if end > len(self.data):
            raise truncated(f"webp: it ends after {len(self.data)} of {end} bytes")
        check_chunks(self.data, "webp", self.bounds)
        if b"VP8L" in self.data:
            self._bytes_per_pixel = 8  # the lossless decoder keeps its own picture
        return super()._read_header(max_pixels)

    def _is_animated(self) -> bool:
        animated = super()._is_animated()
        if animated:
            self._bytes_per_pixel = _ANIMATED_BYTES
        return animated

    def is_lossy(self) -> bool:
        """Returns whether the pixels are those of a video frame (2.5)."""
        return any(chunk.type == b"VP8 " for chunk in chunks(self.data, "webp"))

    def _load(self) -> Image.Image:
        """Decodes the pixels of a file with one frame to RGB or RGBA, as Pillow chooses."""
        if self.animated:
            return super()._load()
        import imagecodecs

        pixels = imagecodecs.webp_decode(self.data, hasalpha=True)
        if self.image.mode == "RGB":
            decoded = wrap_rgb(pixels)
        else:
            decoded = Image.frombuffer("RGBA", self.image.size, pixels, "raw", "RGBA", 0, 1)
        decoded.info = self.image.info
        return decoded

    @staticmethod
    def without_metadata(data: bytes) -> bytes:
        """Drops chunks, and their flags in VP8X (2.7)."""
        out, end = [], _end_of(data)
        for chunk in chunks(data, "webp"):
            if chunk.content.start > end:
                break
            content = data[chunk.begin : chunk.end]
            if chunk.type == b"VP8X":
                flags = bytes(byte & ~_METADATA_FLAGS for byte in content[8:9])  # none in a damaged chunk
                content = content[:8] + flags + content[9:]
            if chunk.type not in _METADATA:
                out.append(content)
        body = b"WEBP" + b"".join(out)
        return b"RIFF" + len(body).to_bytes(4, "little") + body

    @staticmethod
    def metadata(data: bytes) -> Iterator[MetadataBlock]:
        """Yields EXIF and XMP."""
        for chunk in islice(chunks(data, "webp"), _MAX_CHUNKS):
            if chunk.type in _METADATA:
                yield MetadataBlock(_METADATA[chunk.type], data[chunk.content].removeprefix(b"Exif\0\0"))


def _end_of(data: bytes) -> int:
    """Returns the position after a file, as its header says (2.4)."""
    return 8 + int.from_bytes(data[4:8], "little")
