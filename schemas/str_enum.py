"""`enum.StrEnum`, which Python 3.10 does not have."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """An enumeration whose members are strings, also where they are printed and formatted."""

        __str__ = str.__str__
        __format__ = str.__format__


__all__ = ["StrEnum"]
