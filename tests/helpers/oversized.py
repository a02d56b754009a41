"""Small files that would keep a careless decoder busy for minutes or make it allocate gigabytes.

Each function returns the bytes of one file. Small arguments make harmless files of the same form.
"""

from __future__ import annotations

import struct
import zlib

from PIL import Image

from helpers.pictures import file_of, png_chunk


def _jpeg_parts(size: tuple[int, int], **options: object) -> tuple[bytes, bytes]:
    """Returns a gray JPEG up to its end marker, and the marker."""
    data = file_of(Image.new("L", size, 128), "JPEG", **options)
    return data[:-2], data[-2:]


def jpeg_of_scans(scans: int, side: int = 64) -> bytes:
    """Returns a progressive gray JPEG with this many extra scans, which change no coefficient."""
    begin, end = _jpeg_parts((side, side), progressive=True)
    blocks = (-(-side // 8)) ** 2
    # One code of one bit: a run of 2^14 blocks that end at once (EOBn), and as many more as 14 bits can
    # state.
    table = b"\xff\xc4" + struct.pack(">HB", 2 + 17 + 1, 0x10) + bytes((1, *[0] * 15)) + b"\xe0"
    runs = -(-blocks // (2**15 - 1))
    bits = "".join("0" + "1" * 14 for _ in range(runs))
    bits += "1" * (-len(bits) % 8)
    entropy = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8)).replace(b"\xff", b"\xff\x00")
    scan = b"\xff\xda" + struct.pack(">HBBBBBB", 6 + 2, 1, 1, 0, 1, 63, 0) + entropy
    return begin + table + scan * scans + end


def jpeg_of_segments(segments: int, padding: int = 0, side: int = 16) -> bytes:
    """Returns a JPEG with this many comments, and fill bytes, before its first scan."""
    begin, end = _jpeg_parts((side, side))
    return begin[:2] + b"\xff\xfe\x00\x02" * segments + b"\xff" * padding + begin[2:] + end


def progressive_jpeg(side: int) -> bytes:
    """Returns a progressive color JPEG without chroma subsampling; its decoder keeps all coefficients."""
    return file_of(Image.new("RGB", (side, side), "teal"), "JPEG", progressive=True, subsampling=0)


def exif_of_shared_values(tags: int, size: int) -> bytes:
    """Returns Exif data whose tags all refer to the same bytes."""
    return _tiff({1000 + tag: (7, size, 10 + 12 * tags) for tag in range(tags)}, bytes(size))


def with_exif(kind: str, values: int) -> bytes:
    """Returns a picture with Exif data whose orientation tag has this many values."""
    exif = _tiff({274: (4, values, bytes(4 * values))})
    return file_of(Image.new("RGB", (16, 16)), kind, exif=b"Exif\0\0" + exif)


def png_of_texts(texts: int) -> bytes:
    """Returns a PNG with this many text chunks before its pixels."""
    data = file_of(Image.new("L", (16, 16)), "PNG")
    return data[:33] + b"".join(png_chunk(b"tEXt", b"%d\0" % number) for number in range(texts)) + data[33:]


def _gif_with(content: bytes) -> bytes:
    """Returns a GIF with these bytes before its frame."""
    data = file_of(Image.new("P", (16, 16)), "GIF")
    head = 13 + (3 << (data[10] & 7) + 1 if data[10] & 0x80 else 0)
    return data[:head] + content + data[head:]


def gif_of_comment_blocks(blocks: int) -> bytes:
    """Returns a GIF with a comment of blocks of one byte each."""
    return _gif_with(b"!\xfe" + b"\x01a" * blocks + b"\0")


def gif_of_comments(comments: int) -> bytes:
    """Returns a GIF with this many comments."""
    return _gif_with(b"!\xfe\x01a\0" * comments)


def gif_of_zeros(count: int) -> bytes:
    """Returns a GIF with this many unused bytes before its frame."""
    return _gif_with(bytes(count))


def _tiff(tags: dict[int, tuple[int, int, bytes | int]], tail: bytes = b"") -> bytes:
    """Returns a TIFF with these tags (type, count, value, or the bytes of its values), followed by data."""
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    position = len(head) + 12 * len(tags) + 4
    entries, values = b"", b""
    for tag, (kind, count, value) in sorted(tags.items()):
        if isinstance(value, bytes) and len(value) <= 4:  # such values are in the entry itself
            entries += struct.pack("<HHI4s", tag, kind, count, value)
        elif isinstance(value, bytes):
            entries += struct.pack("<HHII", tag, kind, count, position + len(values))
            values += value
        else:
            entries += struct.pack("<HHII", tag, kind, count, value)
    return head + entries + struct.pack("<I", 0) + values + tail


def tiff_of_strips(strips: int) -> bytes:
    """Returns an uncompressed gray TIFF with a strip for each row of one pixel; all strips share a byte."""
    return _tiff(
        {
            256: (4, 1, 1), 257: (4, 1, strips), 258: (3, 1, 8), 259: (3, 1, 1), 262: (3, 1, 1),
            277: (3, 1, 1), 278: (4, 1, 1), 273: (4, strips, struct.pack("<I", 8) * strips),
            279: (4, strips, struct.pack("<I", 1) * strips),
        }
    )  # fmt: skip


def tiff_of_tiles(width: int, height: int, tile: tuple[int, int]) -> bytes:
    """Returns a Deflate TIFF of black tiles."""
    columns, rows = -(-width // tile[0]), -(-height // tile[1])
    count = columns * rows
    deflate = zlib.compressobj(9)
    row = bytes(tile[0] * 3)
    packed = b"".join(deflate.compress(row) for _ in range(tile[1])) + deflate.flush()
    tags: dict[int, tuple[int, int, bytes | int]] = {
        256: (4, 1, width), 257: (4, 1, height), 258: (3, 3, struct.pack("<H", 8) * 3),
        259: (3, 1, 8), 262: (3, 1, 2), 277: (3, 1, 3), 322: (4, 1, tile[0]), 323: (4, 1, tile[1]),
        324: (4, count, bytes(4 * count)), 325: (4, count, struct.pack("<I", len(packed)) * count),
    }  # fmt: skip
    tags[324] = (4, count, struct.pack("<I", len(_tiff(tags))) * count)
    return _tiff(tags, packed)


def webp_canvas(width: int, height: int) -> bytes:
    """Returns an animated WebP with a canvas of this size and two frames of one pixel each."""
    still = file_of(Image.new("RGBA", (1, 1), (255, 0, 0, 128)), "WEBP", lossless=True)
    pixels = still[still.index(b"VP8L") :]
    pixels += b"\0" * (len(pixels) % 2)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return kind + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)

    def three(value: int) -> bytes:
        return struct.pack("<I", value)[:3]

    frame = chunk(b"ANMF", three(0) * 2 + three(0) * 2 + three(100) + b"\0" + pixels)
    body = chunk(b"VP8X", b"\x12\0\0\0" + three(width - 1) + three(height - 1))
    body += chunk(b"ANIM", bytes(6)) + frame * 2
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def long_ppm_header(size: int) -> bytes:
    """Returns a PPM with a comment of this many bytes in its header."""
    return b"P6 #" + b"a" * size + b"\n1 1 255\n" + bytes(3)


def run_length_bmp(width: int, height: int, commands: int) -> bytes:
    """Returns a BMP with this many commands that end a row."""
    body = b"\0\0" * commands + b"\0\1"
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(body), 0, 0, 2, 0)
    offset = 14 + 40 + 8
    return b"BM" + struct.pack("<IHHI", offset + len(body), 0, 0, offset) + head + bytes(8) + body
