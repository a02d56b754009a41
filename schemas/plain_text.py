"""Text that is safe to show: it cannot break a line, control a terminal or change the direction."""

from __future__ import annotations

#: C0 and C1 control characters, line separators, and characters that change the direction of writing.
_CONTROLS = (
    *range(32), *range(127, 160), 0x2028, 0x2029, 0x200E, 0x200F, *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)  # fmt: skip
_ESCAPES = {code: ascii(chr(code))[1:-1] for code in _CONTROLS}


def escape_controls(text: str, keep: str = "") -> str:
    """Returns a text with control characters escaped as in Python, such as `\\x1b`.

    Args:
      text: any text.
      keep: control characters that stay.
    """
    if text.isprintable():
        return text
    return text.translate({code: escaped for code, escaped in _ESCAPES.items() if chr(code) not in keep})
