"""Text that is safe to show: it cannot break a line, control a terminal or change the direction.

`shell_word` quotes a path for the commands that messages suggest.

Text that is read is UTF-8, with or without a byte order mark.
"""

from __future__ import annotations

import codecs
import shlex

#: What messages say about a text in UTF-16, after the name of the file and a verb.
UTF16 = "not UTF-8 text but UTF-16; save it as UTF-8, such as with iconv -f UTF-16 -t UTF-8 FILE > NEW"

#: C0 and C1 control characters, line separators, and characters that change the direction of writing.
CONTROLS = (
    *range(32), *range(127, 160), 0x2028, 0x2029, 0x200E, 0x200F, *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)  # fmt: skip
_ESCAPES = {code: ascii(chr(code))[1:-1] for code in CONTROLS}


def printable(text: str) -> str:
    """Replaces the surrogate escapes of undecodable bytes by `%HH`, and other surrogates by `?`."""
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    chars = (f"%{ord(char) - 0xDC00:02X}" if "\udc80" <= char <= "\udcff" else char for char in text)
    return "".join(chars).encode("utf-8", "replace").decode()


def is_utf16(data: bytes) -> bool:
    """Returns whether a file begins with a byte order mark of UTF-16, as Windows writes it."""
    return data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def escape_controls(text: str, keep: str = "") -> str:
    """Returns a text with control characters escaped as in Python, such as `\\x1b`.

    Args:
      text: Any text.
      keep: Control characters that stay.
    """
    if text.isprintable():
        return text
    return text.translate({code: escaped for code, escaped in _ESCAPES.items() if chr(code) not in keep})


def shell_word(path: str) -> str:
    """Returns a path in a form that can be pasted into a shell."""
    return shlex.quote(f"./{printable(path)}" if path.startswith("-") else printable(path))
